// Keyed wake-ups within one process. No wake-up between a check and the wait is lost.
import type { Clock } from './clock.ts';

type Parked = () => void;

/**
 * One round of "check, and wait if nothing is there". Open the waiter before the check, so that a
 * wake-up between the check and the wait is not lost.
 */
export interface Waiter {
  /**
   * Waits for a wake-up since `open`, at most `ms`, or until the signal aborts. Returns true if
   * woken. `onWake` is called within the wake-up, for work that cannot wait until the promise
   * settles.
   */
  wait(ms: number, signal?: AbortSignal, onWake?: () => void): Promise<boolean>;
  close(): void;
}

interface ParkOptions {
  ms: number;
  signal: AbortSignal | undefined;
  onWake: (() => void) | undefined;
}

interface WaiterState {
  woken: boolean;
  parked: Parked | undefined;
}

export class Waiters {
  readonly #clock: Clock;
  readonly #entries = new Map<string, Set<WaiterState>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  open(key: string): Waiter {
    const entry: WaiterState = { woken: false, parked: undefined };
    const entries = this.#entries.get(key) ?? new Set();
    this.#entries.set(key, entries.add(entry));
    return {
      wait: (ms, signal, onWake) => this.#park(entry, { ms, signal, onWake }),
      close: () => {
        entries.delete(entry);
        if (entries.size === 0 && this.#entries.get(key) === entries) this.#entries.delete(key);
      },
    };
  }

  /** Whether no waiter is open. */
  get isEmpty(): boolean {
    return this.#entries.size === 0;
  }

  /** Open waiters of the key. */
  count(key: string): number {
    return this.#entries.get(key)?.size ?? 0;
  }

  /** Whether a waiter of the key is open. */
  has(key: string): boolean {
    return this.#entries.has(key);
  }

  /**
   * Wakes up to `count` waiters, the longest waiting first. Waiters that are still checking are
   * asked to check again and do not count, because they may have checked too early.
   */
  wake(key: string, count = Number.POSITIVE_INFINITY): void {
    let left = count;
    for (const entry of this.#entries.get(key) ?? []) {
      if (!entry.parked) {
        entry.woken = true;
      } else if (left > 0) {
        left--;
        entry.woken = true;
        entry.parked();
      }
    }
  }

  /** Wakes the waiters of all keys, or of the keys that match. */
  wakeAll(isMeant: (key: string) => boolean = () => true): void {
    for (const key of this.#entries.keys()) if (isMeant(key)) this.wake(key);
  }

  #park(entry: WaiterState, { ms, signal, onWake }: ParkOptions): Promise<boolean> {
    if (entry.woken) {
      entry.woken = false;
      return Promise.resolve(true);
    }
    if (ms <= 0 || signal?.aborted) return Promise.resolve(false);
    return new Promise((resolve) => {
      const end = () => {
        cancel();
        signal?.removeEventListener('abort', end);
        entry.parked = undefined;
        resolve(entry.woken);
        entry.woken = false;
      };
      const cancel = this.#clock.after(ms, end);
      signal?.addEventListener('abort', end, { once: true });
      entry.parked = () => {
        onWake?.();
        end();
      };
    });
  }
}
