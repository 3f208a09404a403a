// Large payloads are stored before the operation that makes them visible, in several transactions or in a file, and are
// deleted after the operation that hides them. In between a row of `unused_payload` names them. After a crash, an
// unfinished upload leaves that row and the rows of the payload, which say whether a file must be removed.
import { randomInt } from 'node:crypto';
import type {
  JobKey,
  PayloadKind,
  Query,
  Row,
  StagedPayload,
  Step,
  UnusedPayload,
} from '../store.ts';
import { number, text } from './rows.ts';

/** Distance between the payloads of one job: more than any payload has bytes. */
const SPAN = 2 ** 31;
/** Origins of files: half of those whose rows have safe integers. */
const FILE_ORIGINS = 2 ** 21;
/** Origin of an entry for all rows of a job. */
const ALL = -1;
/** Rows that one query of a deletion looks at. */
const ROWS_READ = 64;
/** Most rows that the deletion of several payloads deletes, about. */
const ROWS_DELETED = 1_024;
/** Largest part of a payload that a row has, or names if it is in a file. */
export const PART_BYTES = 1_048_576;
const NO_BYTES = new Uint8Array(0);
/** Payloads of a job up to this size are deleted at once. */
const SMALL_BYTES = 262_144;
const SMALL_ROWS = 128;
/** Rows of such payloads that the removal of several jobs deletes in one statement. */
const LISTED_ROWS = 512;
/** Bytes of such payloads that the removal of several jobs deletes at once. */
const DROPPED_BYTES = 1_048_576;

/**
 * Tables of the payloads, the column that tells the payloads of a job apart, and the one that, together with it,
 * tells its rows apart. `file`: not null if the row names a part of a file.
 */
const TABLES = {
  input: { table: 'job_input', place: 'at', row: 'at', file: 'file_bytes' },
  output: { table: 'job_output', place: 'at', row: 'at', file: 'file_bytes' },
  chunks: { table: 'job_chunk', place: 'attempt', row: 'first', file: 'null' },
} as const;

/** Origin of the payload whose row has this `at`, and the row's place in it. */
export function splitAt(at: number): { origin: number; offset: number } {
  const offset = at % SPAN;
  return { origin: at - offset, offset };
}

/** Condition for rows of the table, under its own name, that belong to a job. */
export function isUsed(kind: 'input' | 'output'): string {
  const { table } = TABLES[kind];
  return `not exists (select 1 from unused_payload as unused
    where unused.endpoint_id = ${table}.endpoint_id and unused.job_id = ${table}.job_id
      and unused.kind = '${kind}'
      and unused.origin in (${ALL}, ${table}.at - ${table}.at % ${SPAN}))`;
}

/** Stores the first part. */
export function* beginPayload(payload: StagedPayload, part: Uint8Array): Step<void> {
  yield* addUnused(payload);
  yield* addPart(payload, 0, part);
}

/** Stores rows that name the parts of a file of so many bytes. */
export function* beginFile(payload: StagedPayload, bytes: number): Step<void> {
  yield* addUnused(payload);
  const { endpointId, id, kind, origin } = payload;
  for (let at = 0; at < bytes; at += PART_BYTES) {
    const size = Math.min(PART_BYTES, bytes - at);
    yield {
      sql: `insert into ${TABLES[kind].table} (endpoint_id, job_id, at, bytes, file_bytes)
        values (?, ?, ?, ?, ?)`,
      params: [endpointId, id, origin + at, NO_BYTES, size],
    };
  }
}

export function* chooseFileOrigin(
  kind: 'input' | 'output',
  { endpointId, id }: JobKey,
): Step<number> {
  for (;;) {
    const origin = SPAN * (1 + randomInt(FILE_ORIGINS));
    const taken = yield {
      sql: `select 1 as found from ${TABLES[kind].table} where endpoint_id = ? and job_id = ?
        and at >= ? and at < ? limit 1`,
      params: [endpointId, id, origin, origin + SPAN],
    };
    if (taken.length === 0) return origin;
  }
}

export function* findNextOrigin(
  kind: 'input' | 'output',
  { endpointId, id }: JobKey,
): Step<number> {
  const [row] = yield {
    sql: `select coalesce(max(at), 0) as last from ${TABLES[kind].table}
      where endpoint_id = ? and job_id = ?`,
    params: [endpointId, id],
  };
  const last = row ? number(row, 'last') : 0;
  return splitAt(last).origin + SPAN;
}

/** `at`: bytes before the part. Does nothing if the payload has been deleted meanwhile. */
export function* addPart(
  { kind, endpointId, id, origin }: StagedPayload,
  at: number,
  part: Uint8Array,
): Step<void> {
  yield {
    sql: `insert into ${TABLES[kind].table} (endpoint_id, job_id, at, bytes)
      select ?, ?, ?, ? where exists (select 1 from unused_payload
        where endpoint_id = ? and job_id = ? and kind = ? and origin = ?)`,
    params: [endpointId, id, origin + at, part, endpointId, id, kind, origin],
  };
}

/** From now on the job has the payload. */
export function* usePayload(payload: StagedPayload): Step<void> {
  const isThere = yield* removeUnused(payload);
  if (!isThere) throw new Error(`the ${payload.kind} of job ${payload.id} has been deleted`);
}

function* removeUnused({ endpointId, id, kind, origin }: UnusedPayload): Step<boolean> {
  const removed = yield {
    sql: `delete from unused_payload where endpoint_id = ? and job_id = ? and kind = ?
      and origin = ? returning origin`,
    params: [endpointId, id, kind, origin],
  };
  return removed.length > 0;
}

function* addUnused({ endpointId, id, kind, origin }: UnusedPayload): Step<void> {
  yield {
    sql: `insert into unused_payload (endpoint_id, job_id, kind, origin) values (?, ?, ?, ?)
      on conflict do nothing`,
    params: [endpointId, id, kind, origin],
  };
}

export function* listUnused(limit: number): Step<UnusedPayload[]> {
  const rows = yield {
    sql: 'select endpoint_id, job_id, kind, origin from unused_payload limit ?',
    params: [limit],
  };
  return rows.map(readUnused);
}

function readUnused(row: Row): UnusedPayload {
  const kind = text(row, 'kind');
  return {
    endpointId: text(row, 'endpoint_id'),
    id: text(row, 'job_id'),
    kind: kind === 'input' || kind === 'output' ? kind : 'chunks',
    origin: number(row, 'origin'),
  };
}

/** The payload that the job has, if it is in a file. */
export function* findFile(
  kind: 'input' | 'output',
  { endpointId, id }: JobKey,
): Step<StagedPayload | undefined> {
  const [row] = yield {
    sql: `select at from ${TABLES[kind].table} where endpoint_id = ? and job_id = ?
      and file_bytes is not null and ${isUsed(kind)} limit 1`,
    params: [endpointId, id],
  };
  return row && { kind, endpointId, id, origin: splitAt(number(row, 'at')).origin };
}

/** The files that the unused payload may have. */
export function* listFiles({ endpointId, id, kind, origin }: UnusedPayload): Step<StagedPayload[]> {
  if (kind === 'chunks') return [];
  // The deletion of all rows of the job may have deleted these too, before the file was created.
  if (origin !== ALL) return [{ kind, endpointId, id, origin }];
  const rows = yield {
    sql: `select distinct at - at % ${SPAN} as origin from ${TABLES[kind].table}
      where endpoint_id = ? and job_id = ? and file_bytes is not null`,
    params: [endpointId, id],
  };
  return rows.map((row) => ({ kind, endpointId, id, origin: number(row, 'origin') }));
}

/** Removes the payload that the job has; parts of uploads stay. Its file is deleted later. */
export function* deletePayload(kind: 'input' | 'output', { endpointId, id }: JobKey): Step<void> {
  const rows = `${TABLES[kind].table} where endpoint_id = ? and job_id = ? and ${isUsed(kind)}`;
  yield disuseFiles(kind, rows, [endpointId, id]);
  // From now on, the rows that name a file are no longer used.
  yield { sql: `delete from ${rows}`, params: [endpointId, id] };
}

/** Makes an entry for each file that these rows of the kind's table name. `rows`: the table with a condition. */
export function disuseFiles(
  kind: 'input' | 'output',
  rows: string,
  params: readonly string[],
): Query {
  return {
    sql: `insert into unused_payload (endpoint_id, job_id, kind, origin)
      select distinct endpoint_id, job_id, '${kind}', at - at % ${SPAN} from ${rows}
        and file_bytes is not null
      on conflict do nothing`,
    params,
  };
}

/**
 * For jobs that are removed: deletes their payloads if all together are small. Otherwise it deletes the
 * small ones, up to a limit, and makes only an entry for each of the others.
 */
export function* dropPayloads(
  kind: PayloadKind,
  endpointId: string,
  ids: readonly string[],
): Step<void> {
  const { file, table } = TABLES[kind];
  const those = `endpoint_id = ? and job_id in ${writeList(ids.length)}`;
  const params = [endpointId, ...ids];
  const limit = ids.length === 1 ? SMALL_ROWS : LISTED_ROWS;
  const rows = yield {
    sql: `select octet_length(bytes) as size, ${file} as file from ${table} where ${those} limit ${limit}`,
    params,
  };
  if (rows.length === 0) return;
  if (rows.length < limit && isSmall(rows, SMALL_BYTES)) {
    yield { sql: `delete from ${table} where ${those}`, params };
    return;
  }
  let left = DROPPED_BYTES;
  for (const id of new Set(ids)) left -= yield* dropPayload({ kind, endpointId, id }, left);
}

/** @returns the deleted bytes */
function* dropPayload(
  { endpointId, id, kind }: Omit<UnusedPayload, 'origin'>,
  maxBytes: number,
): Step<number> {
  const { file, table } = TABLES[kind];
  const params = [endpointId, id];
  const rows = yield {
    sql: `select octet_length(bytes) as size, ${file} as file from ${table}
      where endpoint_id = ? and job_id = ? limit ${SMALL_ROWS}`,
    params,
  };
  if (rows.length === 0) return 0;
  if (rows.length < SMALL_ROWS && isSmall(rows, Math.min(SMALL_BYTES, maxBytes))) {
    yield { sql: `delete from ${table} where endpoint_id = ? and job_id = ?`, params };
    return sumSizes(rows);
  }
  yield* addUnused({ endpointId, id, kind, origin: yield* findOrigin(kind, params) });
  return 0;
}

/** Whether the rows have so few bytes, and name no files. */
function isSmall(rows: readonly Row[], maxBytes: number): boolean {
  return rows.every((row) => row['file'] === null) && sumSizes(rows) <= maxBytes;
}

function sumSizes(rows: readonly Row[]): number {
  return rows.reduce((sum, row) => sum + number(row, 'size'), 0);
}

/** A job keeps its ID for further attempts, so only the newest attempt's chunks are meant. */
function* findOrigin(kind: PayloadKind, params: string[]): Step<number> {
  if (kind !== 'chunks') return ALL;
  const [row] = yield {
    sql: 'select max(attempt) as attempt from job_chunk where endpoint_id = ? and job_id = ?',
    params,
  };
  return row ? number(row, 'attempt') : ALL;
}

/** Deletes rows of the payloads, of about `maxBytes` and `ROWS_DELETED` at most. Their files must be gone. */
export function* deleteUnused(payloads: readonly UnusedPayload[], maxBytes: number): Step<void> {
  let bytes = 0;
  let rows = 0;
  for (const payload of payloads) {
    let isLast = false;
    while (!isLast) {
      if (bytes >= maxBytes || rows >= ROWS_DELETED) return;
      const deletion = yield* deleteRows(payload, maxBytes - bytes);
      bytes += deletion.bytes;
      rows += deletion.rows;
      isLast = deletion.isLast;
    }
  }
}

interface Deletion {
  /** Deleted bytes. */
  bytes: number;
  /** Deleted rows. */
  rows: number;
  /** Nothing of the payload is left. */
  isLast: boolean;
}

/** Deletes some rows, of about `maxBytes` at most, and the entry with the last row. */
function* deleteRows(payload: UnusedPayload, maxBytes: number): Step<Deletion> {
  const { endpointId, id, kind, origin } = payload;
  const { place, row: rowColumn, table } = TABLES[kind];
  const first = origin === ALL ? 0 : origin;
  const span = kind === 'chunks' ? 1 : SPAN;
  const end = origin === ALL ? Number.MAX_SAFE_INTEGER : origin + span;
  const rows = yield {
    sql: `select ${place} as place, ${rowColumn} as row, octet_length(bytes) as size from ${table}
      where endpoint_id = ? and job_id = ? and ${place} >= ? and ${place} < ? limit ?`,
    params: [endpointId, id, first, end, ROWS_READ],
  };
  let bytes = 0;
  for (const [index, row] of rows.entries()) {
    if (bytes >= maxBytes) return { bytes, rows: index, isLast: false };
    bytes += number(row, 'size');
    yield {
      sql: `delete from ${table} where endpoint_id = ? and job_id = ? and ${place} = ?
        and ${rowColumn} = ?`,
      params: [endpointId, id, number(row, 'place'), number(row, 'row')],
    };
  }
  if (rows.length === ROWS_READ) return { bytes, rows: ROWS_READ, isLast: false };
  yield* removeUnused(payload);
  return { bytes, rows: rows.length, isLast: true };
}

/** Most jobs of a statement. */
const LISTED_JOBS = 32;

/** Splits the keys into lists of `LISTED_JOBS`. The last list repeats its last key, unless it has only one. */
export function splitKeys(keys: readonly string[]): string[][] {
  const lists: string[][] = [];
  for (let at = 0; at < keys.length; at += LISTED_JOBS) {
    const list = keys.slice(at, at + LISTED_JOBS);
    const last = list.at(-1);
    if (last !== undefined && list.length > 1) {
      while (list.length < LISTED_JOBS) list.push(last);
    }
    lists.push(list);
  }
  return lists;
}

const MANY = `(${Array.from({ length: LISTED_JOBS }, () => '?').join(', ')})`;

/** The placeholders of a list of this length, which `splitKeys` returned. */
export function writeList(length: number): string {
  return length === 1 ? '(?)' : MANY;
}
