// Notifies long-lived users of a key when the key becomes invalid: revoked, rotated or expired.
import type { Clock } from '../../base/clock.ts';
import type { Keys } from './keys.ts';

/** Longest timer, so that a changed clock matters only briefly. */
const MAX_TIMER_MS = 60_000;

interface Watcher {
  onEnd: () => void;
  cancelTimer: () => void;
}

export interface KeyWatchOptions {
  keys: Pick<Keys, 'endOf' | 'onChange'>;
  clock: Clock;
}

export class KeyWatch {
  readonly #options: KeyWatchOptions;
  /** By key ID. */
  readonly #watchers = new Map<string, Set<Watcher>>();
  readonly #stop: () => void;

  constructor(options: KeyWatchOptions) {
    this.#options = options;
    this.#stop = options.keys.onChange((keyId) => this.#check(keyId));
  }

  close(): void {
    this.#stop();
    for (const watchers of this.#watchers.values()) for (const each of watchers) each.cancelTimer();
    this.#watchers.clear();
  }

  /** Calls `onEnd` once; at once if the key is invalid now. @returns the function that stops it */
  watch(keyId: string, onEnd: () => void): () => void {
    const watcher: Watcher = { onEnd, cancelTimer: () => {} };
    const watchers = this.#watchers.get(keyId) ?? new Set();
    this.#watchers.set(keyId, watchers.add(watcher));
    // Only the new one: a thousand workers may wait with one key.
    this.#update(keyId, watcher, this.#leftMs(keyId));
    return () => this.#forget(keyId, watcher);
  }

  #check(keyId: string): void {
    const watchers = [...(this.#watchers.get(keyId) ?? [])];
    if (watchers.length === 0) return;
    const leftMs = this.#leftMs(keyId);
    for (const watcher of watchers) this.#update(keyId, watcher, leftMs);
  }

  /** Time until the key becomes invalid; infinite for a key without an end. */
  #leftMs(keyId: string): number {
    const { clock, keys } = this.#options;
    const endsAt = keys.endOf(keyId);
    if (endsAt === undefined) return 0;
    return endsAt === null ? Number.POSITIVE_INFINITY : endsAt - clock.now();
  }

  #update(keyId: string, watcher: Watcher, leftMs: number): void {
    watcher.cancelTimer();
    if (leftMs <= 0) {
      this.#forget(keyId, watcher);
      watcher.onEnd();
    } else if (leftMs < Number.POSITIVE_INFINITY) {
      const waitMs = Math.min(leftMs, MAX_TIMER_MS);
      watcher.cancelTimer = this.#options.clock.after(waitMs, () => this.#check(keyId));
    }
  }

  #forget(keyId: string, watcher: Watcher): void {
    watcher.cancelTimer();
    const watchers = this.#watchers.get(keyId);
    watchers?.delete(watcher);
    if (watchers?.size === 0) this.#watchers.delete(keyId);
  }
}
