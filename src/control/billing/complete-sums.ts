// Writes the sums of users from the rows of the bill: of the days in which a version without sums may have written rows.
import { z } from 'zod';
import type { Step, Store, Transaction } from '../../store/store.ts';
import { kindOf, positionOf, putUserSum, readBill, STEP_MS, type StoredBill } from './bill-rows.ts';

/** Rows read at a time. */
const PAGE = 1_000;
/** Days before today that a budget may need. */
const DAYS = 31;
const MARK = { kind: 'bill-user-complete', id: 'complete' };

const storedMark = z.object({
  /** Until then, each row was added to its sum: Unix ms. */
  at: z.number().default(0),
});

/**
 * Such a version may have run since the mark: beside this one, or because the operator went back to it. It may also have
 * ended an interval of the day before. `now`: Unix ms
 */
export async function completeSums(
  store: Pick<Store, 'read' | 'write'>,
  now: number,
): Promise<void> {
  const row = await store.read((tx) => tx.resource(MARK));
  const mark = row ? storedMark.parse(JSON.parse(row.body)).at : 0;
  const today = startDay(now);
  const first = Math.max(today - DAYS * STEP_MS.day, startDay(Math.min(mark, now)) - STEP_MS.day);
  for (let at = first; at <= today; at += STEP_MS.day) {
    await store.write((tx) => completeDay(tx, at));
  }
  await markComplete(store, now);
}

/** Each row that was written up to now was added to its sum. */
export async function markComplete(store: Pick<Store, 'write'>, now: number): Promise<void> {
  const body = JSON.stringify({ at: now });
  await store.write((tx) => tx.putResource({ ...MARK, userId: '', parent: '', position: 0, body }));
}

function startDay(time: number): number {
  return Math.floor(time / STEP_MS.day) * STEP_MS.day;
}

/** One operation, so that no interval that ends meanwhile is missed or counts twice. */
function* completeDay(tx: Transaction, at: number): Step<void> {
  for (const [userId, units] of yield* addUp(tx, at)) yield* putUserSum(tx, { userId, at }, units);
}

/** By user. */
function* addUp(tx: Transaction, at: number): Step<Map<string, bigint>> {
  const sums = new Map<string, bigint>();
  const first = positionOf('day', at);
  let before = positionOf('day', at + STEP_MS.day);
  let known: ReadonlySet<string> = new Set();
  for (;;) {
    const page: StoredBill[] = yield* tx.resources({ kind: kindOf('day'), before, limit: PAGE });
    const rows = page.filter(({ id, position }) => position >= first && !known.has(id));
    for (const row of rows) {
      const { units, userId } = readBill(row, 'day');
      sums.set(userId, units + (sums.get(userId) ?? 0n));
    }
    const last = page.at(-1)?.position ?? 0;
    if (page.length < PAGE || last < first) return sums;
    known = new Set(page.map(({ id }) => id));
    // Two rows may have the same position, so the last one is read again.
    before = Math.min(last + 1, before - 1);
  }
}
