// Writes the sums of users from the rows that were stored before there were sums: once in the life of a database.
import type { Step, Store, Transaction } from '../../store/store.ts';
import { kindOf, positionOf, putUserSum, readBill, STEP_MS, type StoredBill } from './bill-rows.ts';

/** Rows read at a time. */
const PAGE = 1_000;
/** Days before today that a budget may need. */
const DAYS = 31;
const MARK = { kind: 'bill-user-complete', id: 'complete' };

/** One operation, so that no interval that ends meanwhile is missed or counts twice. `now`: Unix ms */
export async function completeSums(
  store: Pick<Store, 'read' | 'write'>,
  now: number,
): Promise<void> {
  if (await store.read((tx) => tx.resource(MARK))) return;
  await store.write(function* (tx) {
    for (const { at, units, userId } of (yield* addUp(tx, now)).values()) {
      yield* putUserSum(tx, { userId, at }, units);
    }
    const body = '{}';
    yield* tx.putResource({ ...MARK, userId: '', parent: '', position: 0, body });
  });
}

interface UserSum {
  userId: string;
  at: number;
  units: bigint;
}

function* addUp(tx: Transaction, now: number): Step<Map<string, UserSum>> {
  const sums = new Map<string, UserSum>();
  const first = positionOf('day', now - DAYS * STEP_MS.day);
  let before = Number.MAX_SAFE_INTEGER;
  let known: ReadonlySet<string> = new Set();
  for (;;) {
    const page: StoredBill[] = yield* tx.resources({ kind: kindOf('day'), before, limit: PAGE });
    const rows = page.filter(({ id, position }) => position >= first && !known.has(id));
    for (const row of rows) {
      const { at, units, userId } = readBill(row, 'day');
      const name = `${at}/${userId}`;
      sums.set(name, { userId, at, units: units + (sums.get(name)?.units ?? 0n) });
    }
    const last = page.at(-1)?.position ?? 0;
    if (page.length < PAGE || last < first) return sums;
    known = new Set(page.map(({ id }) => id));
    // Two rows may have the same position, so the last one is read again.
    before = Math.min(last + 1, before - 1);
  }
}
