// Stores inputs and outputs. Small ones are columns of the job's row, which saves a row and its index entry.
// Others are rows of bounded size: a database copies a value several times while writing it, and bounded
// rows bound these copies.
import { Buffer } from 'node:buffer';
import { giveBack } from '../../base/spent-bytes.ts';
import type { JobKey, Step } from '../store.ts';
import { bytes, number } from './rows.ts';
import { isUsed } from './unused-payloads.ts';

type PayloadTable = 'job_input' | 'job_output';

/** Largest payload that the job's row has, bytes. */
export const INLINE_BYTES = 1_024;

/** Largest row of a payload. */
export const PART_BYTES = 1_048_576;

/** Where the payloads of each table are if they are small. */
const KINDS = { job_input: 'input', job_output: 'output' } as const;

/** The payload must not exist yet. */
export function* insertParts(
  table: PayloadTable,
  { endpointId, id }: JobKey,
  payload: Uint8Array,
): Step<void> {
  let at = 0;
  do {
    yield {
      sql: `insert into ${table} (endpoint_id, job_id, at, bytes) values (?, ?, ?, ?)`,
      params: [endpointId, id, at, payload.subarray(at, at + PART_BYTES)],
    };
    at += PART_BYTES;
  } while (at < payload.length);
}

export function readInlineOutput(key: JobKey): Step<Uint8Array | undefined> {
  return readInline('output', key);
}

function* readInline(
  column: 'input' | 'output',
  { endpointId, id }: JobKey,
): Step<Uint8Array | undefined> {
  const [row] = yield {
    sql: `select ${column} as bytes from job where endpoint_id = ? and id = ?
      and ${column} is not null`,
    params: [endpointId, id],
  };
  return row && bytes(row, 'bytes');
}

export function* readPayload(
  table: PayloadTable,
  { endpointId, id }: JobKey,
): Step<Uint8Array | undefined> {
  const inline = yield* readInline(KINDS[table], { endpointId, id });
  return inline ?? (yield* readParts(table, { endpointId, id }));
}

/** Returns the payload, or its size if it is larger than `maxBytes`. */
export function* readUpTo(
  table: PayloadTable,
  key: JobKey,
  maxBytes: number,
): Step<Uint8Array | number | undefined> {
  const inline = yield* readInline(KINDS[table], key);
  if (inline) return inline;
  const { bytes } = yield* measureParts(table, key);
  return bytes > maxBytes ? bytes : yield* readParts(table, key);
}

function* readParts(table: PayloadTable, { endpointId, id }: JobKey): Step<Uint8Array | undefined> {
  const rows = yield {
    sql: `select bytes from ${table} where endpoint_id = ? and job_id = ? and ${isUsed(KINDS[table])}
      order by at`,
    params: [endpointId, id],
  };
  const parts = rows.map((row) => bytes(row, 'bytes'));
  if (parts.length <= 1) return parts[0];
  const payload = Buffer.concat(parts);
  for (const part of parts) giveBack(part);
  return payload;
}

/** Returns the size of the output without reading it; 0 without one. */
export function* measureOutput(key: JobKey): Step<number> {
  const [inline] = yield {
    sql: `select octet_length(output) as bytes from job where endpoint_id = ? and id = ?
      and output is not null`,
    params: [key.endpointId, key.id],
  };
  return inline ? number(inline, 'bytes') : (yield* measureParts('job_output', key)).bytes;
}

/** Returns the number and the size of the payload's rows. */
export function* measureParts(
  table: PayloadTable,
  { endpointId, id }: JobKey,
): Step<{ parts: number; bytes: number }> {
  const [row] = yield {
    sql: `select count(*) as parts, coalesce(sum(octet_length(bytes)), 0) as bytes
      from ${table} where endpoint_id = ? and job_id = ? and ${isUsed(KINDS[table])}`,
    params: [endpointId, id],
  };
  if (!row) return { parts: 0, bytes: 0 };
  return { parts: number(row, 'parts'), bytes: number(row, 'bytes') };
}

/** Removes a small output from the row of its job. */
export function* clearOutput({ endpointId, id }: JobKey): Step<void> {
  yield {
    sql: `update job set output = null where endpoint_id = ? and id = ? and output is not null`,
    params: [endpointId, id],
  };
}

/** Removes the payload that the job has; parts of uploads stay. */
export function* deleteParts(table: PayloadTable, { endpointId, id }: JobKey): Step<void> {
  yield {
    sql: `delete from ${table} where endpoint_id = ? and job_id = ? and ${isUsed(KINDS[table])}`,
    params: [endpointId, id],
  };
}

/** Part number `index` of the payload, which must not be in the row of its job. */
export function* readPart(
  table: PayloadTable,
  { endpointId, id }: JobKey,
  index: number,
): Step<Uint8Array | undefined> {
  const [row] = yield {
    sql: `select bytes from ${table} where endpoint_id = ? and job_id = ? and ${isUsed(KINDS[table])}
      order by at limit 1 offset ?`,
    params: [endpointId, id, index],
  };
  return row && bytes(row, 'bytes');
}
