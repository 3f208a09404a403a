// Who waits for what: keyed wake-ups inside one process, without lost ones.
import type { Clock } from './clock.ts';

type Parked = () => void;

/**
 * One round of "look, and if there is nothing, wait". It is opened before the look, so that a
 * wake-up between the look and the wait is not lost.
 */
export interface Waiter {
  /**
   * Waits for a wake-up since `open`, at most `ms`, or until the signal aborts. True if woken.
   * `onWake` is called within the wake-up itself, for what cannot wait until the promise is settled.
   */
  wait(ms: number, signal?: AbortSignal, onWake?: () => void): Promise<boolean>;
  close(): void;
}

interface Parking {
  ms: number;
  signal: AbortSignal | undefined;
  onWake: (() => void) | undefined;
}

interface Entry {
  woken: boolean;
  parked: Parked | undefined;
}

export class Waiters {
  readonly #clock: Clock;
  readonly #entries = new Map<string, Set<Entry>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  open(key: string): Waiter {
    const entry: Entry = { woken: false, parked: undefined };
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

  /**
   * Wakes up to `count` of those that wait, the longest waiting first. Those that are still looking
   * are told to look again and do not count: they may have looked too early.
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

  /** Of all keys, or of those that are meant. */
  wakeAll(isMeant: (key: string) => boolean = () => true): void {
    for (const key of this.#entries.keys()) if (isMeant(key)) this.wake(key);
  }

  #park(entry: Entry, { ms, signal, onWake }: Parking): Promise<boolean> {
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
