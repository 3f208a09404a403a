// Stores the record of a delivery as rows of bounded size. A job's output is not copied: the record
// refers to its rows, which outlive the job until the delivery has ended.

import type { PartFiles } from '../disk/payload-files.ts';
import type { JobKey, Query, RecordPiece, Step } from '../store.ts';
import { measureParts, readInlineOutput, readRow } from './payload-parts.ts';
import { text, textOrNull } from './rows.ts';
import { dropPayloads, isUsed, PART_BYTES } from './unused-payloads.ts';

export function* insertRecord(key: JobKey, pieces: readonly RecordPiece[]): Step<void> {
  let at = 0;
  for (const piece of pieces) {
    if (piece instanceof Uint8Array) {
      for (let from = 0; from < piece.length; from += PART_BYTES) {
        yield insertPart(key, at++, piece.subarray(from, from + PART_BYTES));
      }
    } else {
      const inline = yield* readInlineOutput(piece.outputOf);
      if (inline) yield insertPart(key, at++, inline);
      const { parts } = yield* measureParts('job_output', piece.outputOf);
      for (let part = 0; part < parts; part++) {
        yield referToPart(key, at++, { jobId: piece.outputOf.id, part });
      }
    }
  }
}

function insertPart({ endpointId, id }: JobKey, at: number, bytes: Uint8Array): Query {
  return {
    sql: 'insert into delivery_record (endpoint_id, delivery_id, at, bytes) values (?, ?, ?, ?)',
    params: [endpointId, id, at, bytes],
  };
}

function referToPart(
  { endpointId, id }: JobKey,
  at: number,
  { jobId, part }: { jobId: string; part: number },
): Query {
  return {
    sql: `insert into delivery_record (endpoint_id, delivery_id, at, source_job, source_at)
      select ?, ?, ?, job_id, at from job_output
      where endpoint_id = ? and job_id = ? and ${isUsed('output')} order by at limit 1 offset ?`,
    params: [endpointId, id, at, endpointId, jobId, part],
  };
}

export function* readRecordPart(
  { endpointId, id }: JobKey,
  at: number,
  files: PartFiles | undefined,
): Step<Uint8Array | undefined> {
  const [row] = yield {
    sql: `select coalesce(record.bytes, output.bytes) as bytes, record.source_job as source,
        output.at as at, output.file_bytes as file_bytes
      from delivery_record as record left join job_output as output
        on output.endpoint_id = record.endpoint_id and output.job_id = record.source_job
        and output.at = record.source_at
      where record.endpoint_id = ? and record.delivery_id = ? and record.at = ?`,
    params: [endpointId, id, at],
  };
  if (!row || row['bytes'] === null) return undefined;
  const key = { endpointId, id: textOrNull(row, 'source') ?? id };
  return readRow(row, { key, kind: 'output', files });
}

/** Deletes the output of a removed job unless the record of another delivery refers to it. */
function* dropOutputOfJob({ endpointId, id }: JobKey): Step<void> {
  const [used] = yield {
    sql: 'select 1 as found from delivery_record where endpoint_id = ? and source_job = ? limit 1',
    params: [endpointId, id],
  };
  if (!used) yield* dropPayloads('output', endpointId, [id]);
}

/** Also removes the output that the record refers to, if its job has been removed. */
export function* removeRecord({ endpointId, id }: JobKey): Step<void> {
  const found = yield {
    sql: `select distinct source_job from delivery_record
      where endpoint_id = ? and delivery_id = ? and source_job is not null`,
    params: [endpointId, id],
  };
  yield {
    sql: 'delete from delivery_record where endpoint_id = ? and delivery_id = ?',
    params: [endpointId, id],
  };
  for (const row of found) {
    const jobId = text(row, 'source_job');
    const [job] = yield {
      sql: 'select 1 as found from job where endpoint_id = ? and id = ?',
      params: [endpointId, jobId],
    };
    if (!job) yield* dropOutputOfJob({ endpointId, id: jobId });
  }
}
