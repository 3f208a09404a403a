// Sends pings at an interval, with the running jobs, and reports once that the worker is unfit.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { RunPodAddresses } from './addresses.ts';
import { isSuccess, RUNPOD_PROTOCOL_VERSION, type RunPodCaller } from './caller.ts';

const UNFIT_LIMIT_MS = 2_000;
const MAX_REASON_LENGTH = 256;
/** Many servers reject longer addresses. */
const MAX_IDS_LENGTH = 6_000;

interface RunPodPingsOptions {
  addresses: RunPodAddresses;
  caller: RunPodCaller;
  /** Interval, ms. */
  everyMs: number;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
  listJobIds: () => readonly string[];
}

export class RunPodPings {
  readonly #options: RunPodPingsOptions;
  #failures = 0;

  constructor(options: RunPodPingsOptions) {
    this.#options = options;
  }

  /** Ends with the signal; never rejects. The first ping is sent at once. */
  async run(): Promise<void> {
    const { clock, everyMs, signal } = this.#options;
    while (!signal.aborted) {
      const askedAt = clock.now();
      await this.#ping();
      await sleep(clock, Math.max(0, everyMs - (clock.now() - askedAt)), signal);
    }
  }

  /** Best effort: the caller is about to exit. */
  async reportUnfit(check: string, reason: string): Promise<void> {
    const url = this.#options.addresses.ping([
      ['status', 'unhealthy'],
      ['check', check],
      ['reason', reason.slice(0, MAX_REASON_LENGTH)],
      ['runpod_version', RUNPOD_PROTOCOL_VERSION],
    ]);
    if (url === undefined) return;
    try {
      await this.#options.caller.get(url, { limitMs: UNFIT_LIMIT_MS });
    } catch (error) {
      this.#options.log.warn({ err: error }, 'reporting the unfit worker failed');
    }
  }

  async #ping(): Promise<void> {
    const { addresses, caller, everyMs, log, signal } = this.#options;
    const ids = joinIds(this.#options.listJobIds());
    const url = addresses.ping([
      ...(ids === '' ? [] : [['job_id', ids] as const]),
      ['runpod_version', RUNPOD_PROTOCOL_VERSION],
    ]);
    if (url === undefined) return;
    try {
      const answer = await caller.get(url, { limitMs: 2 * everyMs, signal });
      if (!isSuccess(answer)) throw new Error(`ping: ${answer.status}`);
      if (this.#failures > 0) log.info('reconnected to the platform');
      this.#failures = 0;
    } catch (error) {
      if (signal.aborted) return;
      this.#failures += 1;
      log[this.#failures === 1 ? 'warn' : 'debug']({ err: error }, 'ping failed');
    }
  }
}

/** Joins as many IDs as fit. */
function joinIds(jobIds: readonly string[]): string {
  const text = jobIds.join(',');
  if (text.length <= MAX_IDS_LENGTH) return text;
  const cut = text.slice(0, MAX_IDS_LENGTH + 1);
  return cut.slice(0, cut.lastIndexOf(','));
}
