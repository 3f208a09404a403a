// What a RunPod worker's requests and silences say: how long it has been silent, and whether it is being replaced.
import { type Clock, sleep } from '../../base/clock.ts';
import { MAX_MISSED_PINGS } from './held-leases.ts';

export interface SilenceTerms {
  leaseMs: number;
  renewEveryMs: number;
  pingMs: number;
}

/** How long a lease lasts after the worker's last request: three pings, and at least a lease. */
export function findLeaseEndMs({ leaseMs, pingMs }: SilenceTerms): number {
  return Math.max(MAX_MISSED_PINGS * pingMs, leaseMs);
}

/**
 * The silence after which leases are no longer renewed: the last renewal was up to a renewal's wait
 * ago.
 */
export function findQuietMs(terms: SilenceTerms): number {
  const { leaseMs, renewEveryMs } = terms;
  return findLeaseEndMs(terms) - leaseMs + renewEveryMs;
}

/** How long a worker has been silent. One that waits for an answer is not silent. */
export class WorkerActivity {
  /** Interval of the worker's pings, ms. */
  pingMs = 10_000;
  readonly #clock: Clock;
  #lastRequestAt: number;
  #openPolls = 0;
  /** Aborts when the worker sends a request again. */
  #quiet: AbortController | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#lastRequestAt = clock.now();
  }

  get silentMs(): number {
    return this.#openPolls > 0 ? 0 : this.#clock.now() - this.#lastRequestAt;
  }

  /** The worker has sent a request, or got the answer to one. */
  note(): void {
    this.#lastRequestAt = this.#clock.now();
    this.#quiet?.abort();
  }

  /** Runs a poll of the worker, which is active until the poll ends. */
  async poll<T>(run: () => Promise<T>): Promise<T> {
    this.#openPolls += 1;
    try {
      return await run();
    } finally {
      this.note();
      this.#openPolls -= 1;
    }
  }

  /** Waits for the next request, at most until the worker has been silent for `silentMs`. */
  async waitForRequest(silentMs: number, signal: AbortSignal): Promise<void> {
    this.#quiet = new AbortController();
    const leftMs = Math.max(0, silentMs - this.silentMs);
    await sleep(this.#clock, leftMs, AbortSignal.any([signal, this.#quiet.signal]));
    this.#quiet = undefined;
  }
}

/** A worker that has asked and was silent for this long has exited, ms. */
const GONE_MS = 2_000;
/** A worker that has asked and still polls after this time is not being replaced, ms. */
const UNREPLACED_MS = 30_000;

/**
 * Decides when a worker that has asked to be replaced gets jobs again: after its successor has arrived, or if nobody
 * replaces it. Both use the same ID: the successor is recognised by its first take, or by a silence before it.
 */
export class Recycling {
  readonly #clock: Clock;
  readonly #onNotReplaced: () => void;
  #since: number | undefined;

  /** `onNotReplaced`: the worker is not replaced and gets jobs again. */
  constructor(clock: Clock, onNotReplaced: () => void) {
    this.#clock = clock;
    this.#onNotReplaced = onNotReplaced;
  }

  begin(): void {
    this.#since = this.#clock.now();
  }

  /** A request has arrived after this silence. */
  noteSilence(silentMs: number): void {
    if (silentMs >= GONE_MS) this.end();
  }

  /** The successor has arrived. */
  end(): void {
    this.#since = undefined;
  }

  get isActive(): boolean {
    if (this.#since === undefined) return false;
    if (this.#clock.now() - this.#since < UNREPLACED_MS) return true;
    this.#since = undefined;
    this.#onNotReplaced();
    return false;
  }
}
