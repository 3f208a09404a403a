// Notes in the commit that ends a job of a batch that its result is to be written: the feeder does so once.
import type { BatchPlace, Reader, Transaction } from '../../store/store.ts';
import { BATCH_LIMITS } from '../../wire/job/batch.ts';
import type { ParentEnd } from '../../wire/job/job.ts';
import type { Change } from '../changes.ts';
import { findEnd } from '../lifecycle/links.ts';
import { dropOpenBatch, END_KIND, listBatches } from './batch-record.ts';

/** Ends of each batch that one commit drops. */
const DROPPED_AT_ONCE = 128;

export interface BatchEnd {
  endpointId: string;
  jobId: string;
  line: number;
  customId: string;
  status: ParentEnd;
}

/** One for each line at most. */
function nameEnd(batchId: string, line: number) {
  return { kind: END_KIND, id: `${batchId}/${line}` };
}

export function noteBatchEnds(tx: Transaction, changes: readonly Change[], now: number): void {
  for (const [index, { before, transition }] of changes.entries()) {
    const place = before.links?.batch;
    if (!place) continue;
    const status = findEnd(before, transition);
    if (status === undefined) continue;
    const { customId, id, line } = place;
    const { endpointId } = before;
    const body: BatchEnd = { endpointId, jobId: before.id, line, customId, status };
    // Lists begin with the highest position: the first end comes first.
    const position = -(now * 1_000 + index);
    const text = JSON.stringify(body);
    tx.putResource({ ...nameEnd(id, line), userId: '', parent: id, position, body: text });
  }
}

/** The first ones, in their order. */
export function listEnds(tx: Reader, batchId: string, limit: number): BatchEnd[] {
  return tx
    .resources({ kind: END_KIND, parent: batchId, limit })
    .map(({ body }): BatchEnd => JSON.parse(body));
}

export function removeEnd(tx: Transaction, batchId: string, { line }: BatchEnd): void {
  tx.removeResource(nameEnd(batchId, line));
}

/** Whether the result of the job is yet to be written: until then, its record is kept. */
export function isUnwritten(tx: Reader, { id, line }: BatchPlace): boolean {
  return tx.resource(nameEnd(id, line)) !== undefined;
}

/** Part of the removal of an endpoint. @returns whether none of its batches is open */
export function dropBatches(tx: Transaction, endpointId: string): boolean {
  const limit = BATCH_LIMITS.openBatchesOfUser;
  const open = listBatches(tx, { endpointId, limit }, ['open']);
  const ends = tx.each(open, ({ id }) =>
    tx.resources({ kind: END_KIND, parent: id, limit: DROPPED_AT_ONCE }),
  );
  for (const [index, batch] of open.entries()) {
    const some = ends[index] ?? [];
    for (const end of some) tx.removeResource(end);
    if (some.length < DROPPED_AT_ONCE) dropOpenBatch(tx, batch);
  }
  return open.length === 0;
}
