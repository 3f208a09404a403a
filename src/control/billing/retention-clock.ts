// The time by which rows of the bill get old. A clock that is far ahead must not remove the bill, so this time follows the
// clock at no more than twice the speed at which time passes while the platform runs.
import { z } from 'zod';
import type { Clock } from '../../base/clock.ts';
import type { Store, Transaction } from '../../store/store.ts';
import { kindOf, positionOf, readBill, STEP_MS } from './bill-rows.ts';

/** A platform that was down catches up at this speed. */
const MAX_SPEED = 2;
const KEY = { kind: 'bill-retention', id: 'clock' };

const storedTime = z.object({ now: z.number() });

export interface RetentionClockOptions {
  store: Pick<Store, 'write'>;
  clock: Clock & { monotonic?: () => number };
}

export class RetentionClock {
  readonly #options: RetentionClockOptions;
  /** Of the last read in this process, by the monotonic clock, ms. */
  #readAt: number | undefined;

  constructor(options: RetentionClockOptions) {
    this.#options = options;
  }

  /** Moves the time on and stores it. @returns Unix ms, never later than the clock */
  async read(): Promise<number> {
    const { clock, store } = this.#options;
    const now = clock.now();
    const at = clock.monotonic?.() ?? now;
    const passedMs = Math.max(0, at - (this.#readAt ?? at));
    const time = await store.write((tx) => {
      const before = readTime(tx, now);
      const after = Math.min(now, before + passedMs * MAX_SPEED);
      const body = JSON.stringify({ now: after });
      tx.putResource({ ...KEY, userId: '', parent: '', position: 0, body });
      return after;
    });
    this.#readAt = at;
    return time;
  }
}

/** At first, the end of the newest day on the bill. */
function readTime(tx: Transaction, now: number): number {
  const stored = tx.resource(KEY);
  if (stored) return storedTime.parse(JSON.parse(stored.body)).now;
  const before = positionOf('day', now) + positionOf('day', STEP_MS.day);
  const [newest] = tx.resources({ kind: kindOf('day'), before, limit: 1 });
  return newest ? readBill(newest, 'day').at + STEP_MS.day : now;
}
