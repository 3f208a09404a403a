// Stores inputs and outputs as rows of bounded size. A database copies a value several times while
// writing it; bounded rows bound these copies.
import { Buffer } from 'node:buffer';
import { giveBack } from '../base/spent-bytes.ts';
import { bytes, number } from './rows.ts';
import type { JobKey, Step } from './store.ts';

type PayloadTable = 'job_input' | 'job_output';

/** Largest row of a payload. */
export const PART_BYTES = 1_048_576;

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

export function* readParts(
  table: PayloadTable,
  { endpointId, id }: JobKey,
): Step<Uint8Array | undefined> {
  const rows = yield {
    sql: `select bytes from ${table} where endpoint_id = ? and job_id = ? order by at`,
    params: [endpointId, id],
  };
  const parts = rows.map((row) => bytes(row, 'bytes'));
  if (parts.length <= 1) return parts[0];
  const payload = Buffer.concat(parts);
  for (const part of parts) giveBack(part);
  return payload;
}

/** Returns the payload's size without reading it. */
export function* measureParts(
  table: PayloadTable,
  { endpointId, id }: JobKey,
): Step<{ parts: number; bytes: number }> {
  const [row] = yield {
    sql: `select count(*) as parts, coalesce(sum(octet_length(bytes)), 0) as bytes
      from ${table} where endpoint_id = ? and job_id = ?`,
    params: [endpointId, id],
  };
  if (!row) return { parts: 0, bytes: 0 };
  return { parts: number(row, 'parts'), bytes: number(row, 'bytes') };
}

export function* deleteParts(table: PayloadTable, { endpointId, id }: JobKey): Step<void> {
  yield {
    sql: `delete from ${table} where endpoint_id = ? and job_id = ?`,
    params: [endpointId, id],
  };
}
