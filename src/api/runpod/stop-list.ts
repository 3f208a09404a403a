// The attempts that one RunPod worker must stop and that no response has named yet. The platform reports
// the end of a stopped attempt, because these workers report nothing after a stop.
import type { Clock } from '../../base/clock.ts';
import { Waiters } from '../../base/waiters.ts';
import type { RunPodLease } from './lease.ts';

/** Bounded, because old workers never ask for stops. */
const MAX_STOPS = 1_000;

export class StopList {
  /** By name; with the lease if its end must still be reported. */
  readonly #stops = new Map<string, RunPodLease | undefined>();
  readonly #clock: Clock;
  readonly #waiters: Waiters;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#waiters = new Waiters(clock);
  }

  add(name: string, held = this.#stops.get(name)): void {
    this.#stops.set(name, held);
    const [oldest] = this.#stops.keys();
    if (oldest !== undefined && this.#stops.size > MAX_STOPS) this.#stops.delete(oldest);
    this.#waiters.wake('stops');
  }

  /** The attempt has ended by itself. */
  remove({ name }: RunPodLease): void {
    this.#stops.delete(name);
  }

  /** Resolves with the names; empty if there are none within this time. */
  async wait(ms: number, signal: AbortSignal): Promise<string[]> {
    const waiter = this.#waiters.open('stops');
    try {
      if (this.#stops.size === 0) await waiter.wait(ms, signal);
      return [...this.#stops.keys()];
    } finally {
      waiter.close();
    }
  }

  /** The worker has received these names. @throws LinkError, and the queue's errors */
  async noteSent(names: readonly string[]): Promise<void> {
    for (const name of names) {
      const held = this.#stops.get(name);
      this.#stops.delete(name);
      if (!held) continue;
      const executionMs = Math.max(0, this.#clock.now() - held.startedAt);
      const outcome = { kind: 'cancelled', executionMs, stopped: 'signal' } as const;
      await held.report({ kind: 'outcome', outcome });
    }
  }
}
