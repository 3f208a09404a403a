// Large payloads are stored in several transactions, before the operation that makes them visible, and are
// deleted in several transactions after the operation that hides them. In between a row of `unused_payload`
// names them. After a crash that row is what remains of an upload that nobody finishes.

import type {
  Deletion,
  JobKey,
  PayloadKind,
  Row,
  StagedPayload,
  Step,
  UnusedPayload,
} from '../store.ts';
import { writeList } from './key-lists.ts';
import { number, text } from './rows.ts';

/** Distance between the payloads of one job: more than any payload has bytes. */
const SPAN = 2 ** 31;
/** Origin of an entry for all rows of a job. */
const ALL = -1;
/** Rows that one query of a deletion looks at. */
const ROWS_READ = 64;
/** Payloads of a job up to this size are deleted at once. */
const SMALL_BYTES = 262_144;
const SMALL_ROWS = 128;
/** Rows of such payloads that the removal of several jobs deletes in one statement. */
const LISTED_ROWS = 512;
/** Bytes of such payloads that the removal of several jobs deletes at once. */
const DROPPED_BYTES = 1_048_576;

/**
 * Tables of the payloads, the column that tells the payloads of a job apart, and the one that, together with it,
 * tells its rows apart.
 */
const TABLES = {
  input: { table: 'job_input', place: 'at', row: 'at' },
  output: { table: 'job_output', place: 'at', row: 'at' },
  chunks: { table: 'job_chunk', place: 'attempt', row: 'first' },
} as const;

/** Condition for rows of the table, under its own name, that belong to a job. */
export function isUsed(kind: 'input' | 'output'): string {
  const { table } = TABLES[kind];
  return `not exists (select 1 from unused_payload as unused
    where unused.endpoint_id = ${table}.endpoint_id and unused.job_id = ${table}.job_id
      and unused.kind = '${kind}'
      and unused.origin in (${ALL}, ${table}.at - ${table}.at % ${SPAN}))`;
}

/** Stores the first part under an origin that no other payload of the job has. */
export function* beginPayload(
  kind: 'input' | 'output',
  { endpointId, id }: JobKey,
  part: Uint8Array,
): Step<StagedPayload> {
  const [row] = yield {
    sql: `select coalesce(max(at), 0) as last from ${TABLES[kind].table}
      where endpoint_id = ? and job_id = ?`,
    params: [endpointId, id],
  };
  const last = row ? number(row, 'last') : 0;
  const payload = { kind, endpointId, id, origin: last - (last % SPAN) + SPAN };
  yield* addUnused(payload);
  yield* addPart(payload, 0, part);
  return payload;
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

/**
 * For jobs that are removed: deletes their payloads if all together are small. Otherwise it deletes the
 * small ones, up to a limit, and makes only an entry for each of the others.
 */
export function* dropPayloads(
  kind: PayloadKind,
  endpointId: string,
  ids: readonly string[],
): Step<void> {
  const { table } = TABLES[kind];
  const those = `endpoint_id = ? and job_id in ${writeList(ids.length)}`;
  const params = [endpointId, ...ids];
  const limit = ids.length === 1 ? SMALL_ROWS : LISTED_ROWS;
  const rows = yield {
    sql: `select octet_length(bytes) as size from ${table} where ${those} limit ${limit}`,
    params,
  };
  if (rows.length === 0) return;
  if (rows.length < limit && sumSizes(rows) <= SMALL_BYTES) {
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
  const { table } = TABLES[kind];
  const params = [endpointId, id];
  const rows = yield {
    sql: `select octet_length(bytes) as size from ${table} where endpoint_id = ? and job_id = ?
      limit ${SMALL_ROWS}`,
    params,
  };
  if (rows.length === 0) return 0;
  const bytes = sumSizes(rows);
  if (rows.length < SMALL_ROWS && bytes <= Math.min(SMALL_BYTES, maxBytes)) {
    yield { sql: `delete from ${table} where endpoint_id = ? and job_id = ?`, params };
    return bytes;
  }
  yield* addUnused({ endpointId, id, kind, origin: yield* findOrigin(kind, params) });
  return 0;
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

/** Deletes some rows, of about `maxBytes` at most, and the entry with the last row. */
export function* deleteUnused(payload: UnusedPayload, maxBytes: number): Step<Deletion> {
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
  for (const row of rows) {
    if (bytes >= maxBytes) return { bytes, isLast: false };
    bytes += number(row, 'size');
    yield {
      sql: `delete from ${table} where endpoint_id = ? and job_id = ? and ${place} = ?
        and ${rowColumn} = ?`,
      params: [endpointId, id, number(row, 'place'), number(row, 'row')],
    };
  }
  if (rows.length === ROWS_READ) return { bytes, isLast: false };
  yield* removeUnused(payload);
  return { bytes, isLast: true };
}
