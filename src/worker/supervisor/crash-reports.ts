// Reports dead worker processes to the platform, so that their jobs return to the queue at once
// instead of when their leases expire. The keeper decides which deaths are reported.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { LeaseRef, WorkerBye } from '../../wire/link/worker-link.ts';
import { MAX_LISTED } from '../../wire/message-bounds.ts';
import { describeEnd, type KeptProcess, type ProcessEnd } from './worker-process.ts';

const RETRY_MS = [200, 1_000];
const MAX_DETAIL = 4_000;

export interface CrashReportsOptions {
  sayBye: (bye: WorkerBye) => Promise<void>;
  /** Attempts whose outcome a dead process left on disk. */
  readUndelivered: (workerId: string) => Promise<LeaseRef[]>;
  clock: Clock;
  log: Log;
}

export class CrashReports {
  readonly #options: CrashReportsOptions;
  readonly #open = new Set<Promise<void>>();
  /** Aborted when there is no more time for retries. */
  readonly #timeUp = new AbortController();

  constructor(options: CrashReportsOptions) {
    this.#options = options;
  }

  /** Reports nothing about a process that the platform cannot know. */
  report(process: KeptProcess, end: ProcessEnd, reason: WorkerBye['reason']): void {
    const reported = this.#report(process, end, reason).finally(() => this.#open.delete(reported));
    this.#open.add(reported);
  }

  /** Resolves when everything is reported, or after one last attempt. */
  async end(): Promise<void> {
    this.#timeUp.abort();
    await Promise.all(this.#open);
  }

  async #report(
    { failure, identity }: KeptProcess,
    end: ProcessEnd,
    reason: WorkerBye['reason'],
  ): Promise<void> {
    if (!identity) return;
    const { clock, log, readUndelivered, sayBye } = this.#options;
    const { signal } = this.#timeUp;
    const outbox = (await readUndelivered(identity.workerId)).slice(0, MAX_LISTED);
    const detail = (failure?.reason ?? describeEnd(end)).slice(0, MAX_DETAIL);
    for (const waitMs of [...RETRY_MS, undefined]) {
      try {
        return await sayBye({ ...identity, reason, outbox, detail });
      } catch (error) {
        log.debug({ err: error }, 'crash report failed');
        // Its leases expire by themselves, and its successor's hello has the same effect.
        if (waitMs === undefined || signal.aborted) return;
        await sleep(clock, waitMs, signal);
      }
    }
  }
}
