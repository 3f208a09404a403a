// Decides whether device memory has come back after an attempt that ran out of it. Pure: the caller
// passes the time.
import type { GpuFigures } from './usage-meter.ts';

/** Allocators, drivers and neighbours may keep this much. */
export const RETURN_MARGIN_BYTES = 512 * 2 ** 20;
/** After the attempt, its memory gets this time to come back, ms. */
const SETTLE_MS = 1_000;
/** Without an answer by then, the worker takes jobs again, ms. */
export const MAX_HOLD_MS = 10_000;

interface Level {
  readonly bytes: number;
  readonly scope: GpuFigures['vramScope'];
}

interface Check {
  readonly before: Level;
  readonly endedAt: number;
}

/** `excessBytes`: in use above the level before the attempt. */
export type ReturnVerdict =
  | { kind: 'unknown' }
  | { kind: 'returned' }
  | { kind: 'kept'; excessBytes: number };

export class MemoryReturn<Key> {
  readonly #levels = new Map<Key, Level | undefined>();
  #now: Level | undefined;
  #check: Check | undefined;

  /** The worker should take no job, so that the memory can be judged. */
  isPending(now: number): boolean {
    return this.#check !== undefined && now - this.#check.endedAt < MAX_HOLD_MS;
  }

  begin(key: Key): void {
    this.#levels.set(key, this.#now);
  }

  /** Returns whether a check begins. Without figures from before the attempt there is none. */
  end(key: Key, end: { isOutOfMemory: boolean; now: number }): boolean {
    const before = this.#levels.get(key);
    this.#levels.delete(key);
    if (!end.isOutOfMemory || !before) return false;
    const earlier = this.#check?.before;
    const lowest = earlier && earlier.bytes < before.bytes ? earlier : before;
    this.#check = { before: lowest, endedAt: end.now };
    return true;
  }

  /** Judges only while nothing runs: a running attempt may use what it needs. */
  judge(figures: GpuFigures, { isIdle, now }: { isIdle: boolean; now: number }): ReturnVerdict {
    const { vramBytes: bytes, vramScope: scope } = figures;
    this.#now = bytes === undefined ? undefined : { bytes, scope };
    const check = this.#check;
    if (!check || bytes === undefined || check.before.scope !== scope) return { kind: 'unknown' };
    if (!this.isPending(now)) this.#check = undefined;
    if (!isIdle || !this.#check || now - check.endedAt < SETTLE_MS) return { kind: 'unknown' };
    this.#check = undefined;
    const excessBytes = bytes - check.before.bytes;
    return excessBytes > RETURN_MARGIN_BYTES ? { kind: 'kept', excessBytes } : { kind: 'returned' };
  }
}
