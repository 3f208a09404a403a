// Logs dropped connections: a flood of them makes one line per cause and minute.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';

/** Dropped connections are logged once per cause in this time, ms. */
const LOG_EVERY_MS = 60_000;

export type DropCause =
  | 'all connections'
  | 'bytes in flight'
  | 'connections of an address'
  | 'connections of a user'
  | 'stalled reader'
  | 'unanswered requests';

export interface Peer {
  /** Address of the client, or the network that stands for it. */
  address: string;
  /** User of the last request with a valid key. */
  userId?: string | undefined;
}

/** Logs once a minute, for each cause, how many connections were dropped. */
export class DropLog {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #counts = new Map<DropCause, { count: number; loggedAt: number }>();

  constructor(clock: Clock, log: Log) {
    this.#clock = clock;
    this.#log = log;
  }

  note(cause: DropCause, { address, userId }: Peer): void {
    const now = this.#clock.now();
    const seen = this.#counts.get(cause) ?? { count: 0, loggedAt: -Infinity };
    seen.count += 1;
    this.#counts.set(cause, seen);
    if (now - seen.loggedAt < LOG_EVERY_MS) return;
    this.#log.warn({ cause, address, userId, count: seen.count }, 'connections dropped');
    this.#counts.set(cause, { count: 0, loggedAt: now });
  }
}
