// The rows of what jobs remember of their earlier attempts: one for each step, child and sleep, numbered from 0. The links of
// the job say how many there are, so a job without any asks for none. They go with the job, or when it can run no more.
import {
  isDeadLetter,
  type JobKey,
  type MemoSize,
  type Reader,
  type StoredJob,
  type Transaction,
} from '../../store/store.ts';
import type { EntryHead } from '../../wire/job/memo.ts';

const KIND = 'memo';

export const NO_MEMO: MemoSize = { entries: 0, bytes: 0 };

function nameRow({ endpointId, id }: JobKey, number: number): { kind: string; id: string } {
  return { kind: KIND, id: `${endpointId}/${id}/${number}` };
}

/** Adds the entry with this number, JSON text, or replaces it. */
export function putEntry(tx: Transaction, key: JobKey, number: number, body: string): void {
  const parent = `${key.endpointId}/${key.id}`;
  tx.putResource({ ...nameRow(key, number), userId: '', parent, position: number, body });
}

/** The memo with one more entry, which must be stored as its number. */
export function addEntry(memo: MemoSize, body: string, isFailed = false): MemoSize {
  return {
    entries: memo.entries + 1,
    bytes: memo.bytes + Buffer.byteLength(body),
    ...(memo.failed && { failed: memo.failed }),
    ...(isFailed && { failed: [...(memo.failed ?? []), memo.entries] }),
  };
}

/** JSON text of an entry, whose last member is JSON already. */
export function composeEntry(head: EntryHead, value?: Uint8Array): string {
  const text = JSON.stringify(head);
  return value ? `${text.slice(0, -1)},"value":${Buffer.from(value).toString()}}` : text;
}

/** All entries, as the worker gets them: a JSON list. */
export function readMemo(tx: Reader, { endpointId, id }: JobKey, { entries }: MemoSize): Buffer {
  const parent = `${endpointId}/${id}`;
  const rows = tx.resources({ kind: KIND, parent, limit: entries });
  return Buffer.from(`[${rows.map(({ body }) => body).join(',')}]`);
}

/** Part of the operation that changes the job: removes what it no longer remembers. */
export function forget(tx: Transaction, before: StoredJob, after: StoredJob | undefined): void {
  // Lists leave out the links. A dead letter runs no more, and remembers nothing.
  const links =
    before.linked && !isDeadLetter(before) ? (before.links ?? tx.anyJob(before)?.links) : undefined;
  const memo = links?.memo;
  if (!memo) return;
  const kept = after?.links?.memo;
  if (!kept) {
    // Those of children are stored before they count.
    const last = memo.entries + (links.wait ? links.parents.length : 0);
    for (let number = 0; number < last; number++) tx.removeResource(nameRow(before, number));
  } else if (memo.failed && !kept.failed) {
    for (const number of memo.failed) tx.removeResource(nameRow(before, number));
  }
}
