// Stores inputs and outputs. Small ones are columns of the job's row, which saves a row and its index entry.
// Others are rows of bounded size: a database copies a value several times while writing it, and bounded
// rows bound these copies. A row names its part of a file instead if the payload is in one.
import { Buffer } from 'node:buffer';
import { giveBack } from '../../base/byte-budget.ts';
import type { PartFiles } from '../disk/payload-files.ts';
import { type JobKey, PayloadFileError, type Row, type Step, type VersionKey } from '../store.ts';
import { bytes, number, text } from './rows.ts';
import { isUsed, PART_BYTES, splitAt, splitKeys, writeList } from './unused-payloads.ts';

type PayloadTable = 'job_input' | 'job_output';

/** Largest payload that the job's row has, bytes. */
export const INLINE_BYTES = 1_024;

/** Column with the size of the part of a file that the row names; null if the row has the bytes. */
export const FILE_COLUMN = 'file_bytes';
/** Size of the part that a row has or names. */
const SIZE = `coalesce(${FILE_COLUMN}, octet_length(bytes))`;

const NO_BYTES = new Uint8Array(0);

/** Where the payloads of each table are if they are small. */
const KINDS = { job_input: 'input', job_output: 'output' } as const;

function isPayloadTable(table: string): table is PayloadTable {
  return Object.hasOwn(KINDS, table);
}

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
  key: JobKey,
  files: PartFiles | undefined,
): Step<Uint8Array | undefined> {
  const inline = yield* readInline(KINDS[table], key);
  return inline ?? (yield* readParts(table, key, files));
}

interface UpTo {
  maxBytes: number;
  files: PartFiles | undefined;
}

/** Returns the payload, or its size if it is larger than `maxBytes`. */
export function* readUpTo(
  table: PayloadTable,
  key: JobKey,
  upTo: UpTo,
): Step<Uint8Array | number | undefined> {
  return (yield* readInline(KINDS[table], key)) ?? (yield* readPartsUpTo(table, key, upTo));
}

function* readPartsUpTo(
  table: PayloadTable,
  key: JobKey,
  { files, maxBytes }: UpTo,
): Step<Uint8Array | number | undefined> {
  const { bytes } = yield* measureParts(table, key);
  return bytes > maxBytes ? bytes : yield* readParts(table, key, files);
}

/** The same for the inputs of several jobs: one query for all small ones. */
export function* readInputsUpTo(
  endpointId: string,
  ids: readonly string[],
  upTo: UpTo,
): Step<Map<string, Uint8Array | number>> {
  const inputs = new Map<string, Uint8Array | number>();
  for (const some of splitKeys(ids)) {
    const rows = yield {
      sql: `select id, input from job where endpoint_id = ? and id in ${writeList(some.length)}
        and input is not null`,
      params: [endpointId, ...some],
    };
    for (const row of rows) inputs.set(text(row, 'id'), bytes(row, 'input'));
  }
  for (const id of ids) {
    if (inputs.has(id)) continue;
    const input = yield* readPartsUpTo('job_input', { endpointId, id }, upTo);
    if (input !== undefined) inputs.set(id, input);
  }
  return inputs;
}

function* readParts(
  table: PayloadTable,
  key: JobKey,
  files: PartFiles | undefined,
): Step<Uint8Array | undefined> {
  const { endpointId, id } = key;
  const rows = yield {
    sql: `select at, bytes, file_bytes from ${table} where endpoint_id = ? and job_id = ? and ${isUsed(KINDS[table])}
      order by at`,
    params: [endpointId, id],
  };
  const parts = rows.map((row) => readRow(row, { key, kind: KINDS[table], files }));
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
    sql: `select count(*) as parts, coalesce(sum(${SIZE}), 0) as bytes
      from ${table} where endpoint_id = ? and job_id = ? and ${isUsed(KINDS[table])}`,
    params: [endpointId, id],
  };
  if (!row) return { parts: 0, bytes: 0 };
  return { parts: number(row, 'parts'), bytes: number(row, 'bytes') };
}

/** Removes a small payload from the row of its job. */
export function* clearPayload(column: 'input' | 'output', { endpointId, id }: JobKey): Step<void> {
  yield {
    sql: `update job set ${column} = null where endpoint_id = ? and id = ? and ${column} is not null`,
    params: [endpointId, id],
  };
}

/** Part number `index` of the payload, which must not be in the row of its job. */
export function* readPart(
  table: PayloadTable,
  key: JobKey,
  { files, index }: { index: number; files: PartFiles | undefined },
): Step<Uint8Array | undefined> {
  const [row] = yield {
    sql: `select at, bytes, file_bytes from ${table} where endpoint_id = ? and job_id = ? and ${isUsed(KINDS[table])}
      order by at limit 1 offset ?`,
    params: [key.endpointId, key.id, index],
  };
  return row && readRow(row, { key, kind: KINDS[table], files });
}

export interface PayloadOfRow {
  key: JobKey;
  kind: 'input' | 'output';
  files: PartFiles | undefined;
}

/**
 * Returns the bytes that the row, with `at`, `bytes` and `file_bytes`, has or names. @throws PayloadFileError if the file
 * lacks them
 */
export function readRow(row: Row, { files, key, kind }: PayloadOfRow): Uint8Array {
  if (row[FILE_COLUMN] === null) return bytes(row, 'bytes');
  const { endpointId, id } = key;
  if (!files) throw new Error(`the ${kind} of job ${id} is in a file, and this store has none`);
  const { offset, origin } = splitAt(number(row, 'at'));
  const payload = { kind, endpointId, id, origin };
  const part = files.readPartSync(payload, offset, number(row, FILE_COLUMN));
  if (!part) throw files.reportLost(payload);
  return part;
}

/** For a query that reads rows for `loadParts`: a column that says whether a job has the row's payload. */
export function selectUsed(table: string): string {
  return isPayloadTable(table) ? `, ${isUsed(KINDS[table])} as used` : '';
}

/**
 * Returns rows of a table that have the bytes instead of naming parts of files. A part of an upload that no job has
 * becomes an empty row, because its file may be missing. @throws Error if another file lacks a part
 */
export function loadParts(
  { columns, name: table }: { name: string; columns: readonly string[] },
  rows: readonly Row[],
  files: PartFiles | undefined,
): readonly Row[] {
  if (!isPayloadTable(table)) return rows;
  return rows.map((row) => {
    if (row[FILE_COLUMN] === null) return row;
    const key = { endpointId: text(row, 'endpoint_id'), id: text(row, 'job_id') };
    const isUnused = number(row, 'used') === 0;
    const part = isUnused ? NO_BYTES : loadRow(row, { key, kind: KINDS[table], files });
    const values = Object.fromEntries(columns.map((column) => [column, row[column]]));
    return { ...values, bytes: part, [FILE_COLUMN]: null };
  });
}

/** Like readRow. @throws Error that names the job */
function loadRow(row: Row, payload: PayloadOfRow): Uint8Array {
  try {
    return readRow(row, payload);
  } catch (error) {
    if (!(error instanceof PayloadFileError)) throw error;
    const { endpointId, id } = payload.key;
    const job = `job ${id} of endpoint ${endpointId}`;
    throw new Error(
      `the ${payload.kind} of ${job} is lost; remove the job first. ${error.message}`,
    );
  }
}

/** Replaces the part that an interrupted upload of the same number has left. */
export function* insertVersionPart(
  { endpointId, version }: VersionKey,
  index: number,
  part: Uint8Array,
): Step<void> {
  yield {
    sql: `insert into version_part (endpoint_id, version, at, bytes) values (?, ?, ?, ?)
      on conflict (endpoint_id, version, at) do update set bytes = excluded.bytes`,
    params: [endpointId, version, index, part],
  };
}

export function* readVersionPart(
  { endpointId, version }: VersionKey,
  index: number,
): Step<Uint8Array | undefined> {
  const [row] = yield {
    sql: 'select bytes from version_part where endpoint_id = ? and version = ? and at = ?',
    params: [endpointId, version, index],
  };
  return row && bytes(row, 'bytes');
}

export function* listVersionsWithParts(): Step<VersionKey[]> {
  const rows = yield {
    sql: `select distinct endpoint_id, version from version_part order by endpoint_id, version`,
    params: [],
  };
  return rows.map((row) => ({
    endpointId: text(row, 'endpoint_id'),
    version: number(row, 'version'),
  }));
}

export function* countVersionParts({ endpointId, version }: VersionKey): Step<number> {
  const [row] = yield {
    sql: 'select count(*) as parts from version_part where endpoint_id = ? and version = ?',
    params: [endpointId, version],
  };
  return row ? number(row, 'parts') : 0;
}

/** Deletes the last parts first, so that the first one names the version until all are gone. */
export function* deleteVersionParts(
  { endpointId, version }: VersionKey,
  limit: number,
): Step<void> {
  const params = [endpointId, version];
  yield {
    sql: `delete from version_part where endpoint_id = ? and version = ? and at in (
      select at from version_part where endpoint_id = ? and version = ? order by at desc limit ?)`,
    params: [...params, ...params, limit],
  };
}
