// The tables of an SQL database: all statements that read. sql-tables.ts has those that write.
import type { PartFiles } from '../disk/payload-files.ts';
import type {
  ChunkBatch,
  ChunkRange,
  DueDeliveries,
  FileKey,
  JobKey,
  JobPreview,
  LogRange,
  ReceiverKey,
  ResourceKey,
  ResourceListing,
  Row,
  SqlValue,
  StagedPayload,
  Step,
  StoredDelivery,
  StoredEndpoint,
  StoredKey,
  StoredResource,
  StoredWorker,
  UnusedPayload,
  VersionKey,
} from '../store.ts';
import { readRecordPart } from './delivery-record.ts';
import { countFileParts, readFilePart } from './file-parts.ts';
import { readDetails } from './job-row.ts';
import {
  countVersionParts,
  listVersionsWithParts,
  measureOutput,
  readInputsUpTo,
  readPart,
  readPayload,
  readUpTo,
  readVersionPart,
} from './payload-parts.ts';
import {
  bytes,
  deliveryColumns,
  endpointColumns,
  keyColumns,
  number,
  readChunkBatch,
  readDelivery,
  readEndpoint,
  readFirst,
  readKey,
  readResource,
  readWorker,
  resourceColumns,
  text,
  textOrNull,
  workerColumns,
} from './rows.ts';
import { SqlJobReader } from './sql-job-reader.ts';
import { findFile, listFiles, listUnused } from './unused-payloads.ts';

/** Batches whose sizes one query reads while it selects a range of chunks. */
const BATCHES_PER_LOOK = 256;

/** Characters of the details that a preview reads: the error comes first, its stack later. */
const DETAILS_CHARACTERS = 4_000;
/** A preview reads no longer details as a whole. */
const WHOLE_CHARACTERS = 32_000;
/** Code and message stand first. */
const ERROR_START =
  /^\{"v":\d+,"error":\{"code":("\w+"),"message":"((?:[^"\\]|\\(?:u[\da-f]{4}|[^u]))*)/;

export class SqlReader extends SqlJobReader {
  /** Undefined: the database keeps all payloads. */
  protected readonly files: PartFiles | undefined;

  constructor(files?: PartFiles) {
    super();
    this.files = files;
  }

  *endpoint(id: string): Step<StoredEndpoint | undefined> {
    const rows = yield {
      sql: `select ${endpointColumns} from endpoint where id = ?`,
      params: [id],
    };
    return readFirst(rows, readEndpoint);
  }

  *endpoints(): Step<StoredEndpoint[]> {
    const rows = yield { sql: `select ${endpointColumns} from endpoint order by id`, params: [] };
    return rows.map(readEndpoint);
  }

  *input(key: JobKey): Step<Uint8Array | undefined> {
    return yield* readPayload('job_input', key, this.files);
  }

  *output(key: JobKey): Step<Uint8Array | undefined> {
    return yield* readPayload('job_output', key, this.files);
  }

  *outputBytes(key: JobKey): Step<number> {
    return yield* measureOutput(key);
  }

  *payloadUpTo(
    kind: StagedPayload['kind'],
    key: JobKey,
    maxBytes: number,
  ): Step<Uint8Array | number | undefined> {
    const table = kind === 'input' ? 'job_input' : 'job_output';
    return yield* readUpTo(table, key, { maxBytes, files: this.files });
  }

  *inputsUpTo(
    endpointId: string,
    ids: readonly string[],
    maxBytes: number,
  ): Step<Map<string, Uint8Array | number>> {
    return yield* readInputsUpTo(endpointId, ids, { maxBytes, files: this.files });
  }

  *payloadPart(
    kind: StagedPayload['kind'],
    key: JobKey,
    index: number,
  ): Step<Uint8Array | undefined> {
    const table = kind === 'input' ? 'job_input' : 'job_output';
    return yield* readPart(table, key, { index, files: this.files });
  }

  *jobPreview(key: JobKey, maxBytes: number): Step<JobPreview | undefined> {
    const { endpointId, id } = key;
    const [row] = yield {
      sql: `select substr(details, 1, ${DETAILS_CHARACTERS}) as details, input,
        case when length(details) <= ${WHOLE_CHARACTERS} then details end as whole
        from job where endpoint_id = ? and id = ?`,
      params: [endpointId, id],
    };
    if (!row) return undefined;
    const inline = row['input'] === null ? undefined : bytes(row, 'input');
    const input = inline ?? (yield* this.payloadUpTo('input', key, maxBytes));
    const { notes } = readDetails(textOrNull(row, 'whole'));
    return { error: readErrorStart(textOrNull(row, 'details')), notes, input: input ?? 0 };
  }

  payloadFile(kind: StagedPayload['kind'], key: JobKey): Step<StagedPayload | undefined> {
    return findFile(kind, key);
  }

  *unusedPayloads(limit: number): Step<UnusedPayload[]> {
    return yield* listUnused(limit);
  }

  filesOf(payload: UnusedPayload): Step<StagedPayload[]> {
    return listFiles(payload);
  }

  *deliveriesOf(endpointId: string, limit: number): Step<StoredDelivery[]> {
    const sql = `select ${deliveryColumns} from delivery where endpoint_id = ? order by id limit ?`;
    const rows = yield { sql, params: [endpointId, limit] };
    return rows.map(readDelivery);
  }

  *chunks(range: ChunkRange): Step<ChunkBatch[]> {
    const attempt = [range.endpointId, range.id, range.attempt];
    const [holder] = yield {
      sql: `select first from job_chunk where endpoint_id = ? and job_id = ? and attempt = ?
        and first <= ? and first + count > ? order by first desc limit 1`,
      params: [...attempt, range.from, range.from],
    };
    if (!holder) return [];
    const first = number(holder, 'first');
    const last = yield* findLastBatch({ attempt, first, maxBytes: range.maxBytes });
    const rows = yield {
      sql: `select first, sizes, bytes from job_chunk where endpoint_id = ? and job_id = ?
        and attempt = ? and first >= ? and first <= ? order by first`,
      params: [...attempt, first, last],
    };
    return rows.map(readChunkBatch);
  }

  *log({ endpointId, id, from, maxBytes }: LogRange): Step<Uint8Array> {
    const job = [endpointId, id];
    const rows = yield {
      sql: `select at, bytes from job_log where endpoint_id = ? and job_id = ? and at < ?
        and at >= coalesce((select max(at) from job_log
          where endpoint_id = ? and job_id = ? and at <= ?), 0)
        order by at`,
      params: [...job, from + maxBytes, ...job, from],
    };
    const [first] = rows;
    if (!first) return new Uint8Array();
    const start = from - number(first, 'at');
    return Buffer.concat(rows.map(readBytes)).subarray(start, start + maxBytes);
  }

  *receivers(): Step<(ReceiverKey & { nextAt: number })[]> {
    const rows = yield {
      sql: `select user_id, receiver, min(next_at) as next_at from delivery
        group by user_id, receiver order by user_id, receiver`,
      params: [],
    };
    return rows.map((row) => ({
      userId: text(row, 'user_id'),
      receiver: text(row, 'receiver'),
      nextAt: number(row, 'next_at'),
    }));
  }

  *dueDeliveries({ userId, receiver, now, limit }: DueDeliveries): Step<StoredDelivery[]> {
    const rows = yield {
      sql: `select ${deliveryColumns} from delivery where user_id = ? and receiver = ? and next_at <= ?
        order by next_at limit ?`,
      params: [userId, receiver, now, limit],
    };
    return rows.map(readDelivery);
  }

  *nextDeliveryAt({ receiver, userId }: ReceiverKey, after: number): Step<number | undefined> {
    const rows = yield {
      sql: `select next_at from delivery where user_id = ? and receiver = ? and next_at > ?
        order by next_at limit 1`,
      params: [userId, receiver, after],
    };
    return readFirst(rows, (row) => number(row, 'next_at'));
  }

  *deliveryPart(key: JobKey, at: number): Step<Uint8Array | undefined> {
    return yield* readRecordPart(key, at, this.files);
  }

  *countDeliveries(): Step<{ endpointId: string; count: number }[]> {
    const rows = yield {
      sql: `select endpoint_id, count(*) as count from delivery
        group by endpoint_id order by endpoint_id`,
      params: [],
    };
    return rows.map((row) => ({
      endpointId: text(row, 'endpoint_id'),
      count: number(row, 'count'),
    }));
  }

  *countResources(kind: string): Step<{ parent: string; count: number }[]> {
    const rows = yield {
      sql: `select parent, count(*) as count from resource where kind = ?
        group by parent order by parent`,
      params: [kind],
    };
    return rows.map((row) => ({ parent: text(row, 'parent'), count: number(row, 'count') }));
  }

  *worker(endpointId: string, id: string): Step<StoredWorker | undefined> {
    const rows = yield {
      sql: `select ${workerColumns} from worker where endpoint_id = ? and id = ?`,
      params: [endpointId, id],
    };
    return readFirst(rows, readWorker);
  }

  *workers(): Step<StoredWorker[]> {
    const rows = yield {
      sql: `select ${workerColumns} from worker order by endpoint_id, id`,
      params: [],
    };
    return rows.map(readWorker);
  }

  *resource({ id, kind }: ResourceKey): Step<StoredResource | undefined> {
    const rows = yield {
      sql: `select ${resourceColumns} from resource where kind = ? and id = ?`,
      params: [kind, id],
    };
    return readFirst(rows, readResource);
  }

  *resources({ before, kind, limit, parent, userId }: ResourceListing): Step<StoredResource[]> {
    const byUser = userId === undefined ? '' : 'and user_id = ?';
    const byParent = parent === undefined ? '' : 'and parent = ?';
    const wanted = [userId, parent].filter((value) => value !== undefined);
    const rows = yield {
      sql: `select ${resourceColumns} from resource where kind = ? ${byUser} ${byParent} and position < ?
        order by position desc limit ?`,
      params: [kind, ...wanted, before ?? Number.MAX_SAFE_INTEGER, limit],
    };
    return rows.map(readResource);
  }

  versionPart(key: VersionKey, index: number): Step<Uint8Array | undefined> {
    return readVersionPart(key, index);
  }

  versionParts(key: VersionKey): Step<number> {
    return countVersionParts(key);
  }

  versionsWithParts(): Step<VersionKey[]> {
    return listVersionsWithParts();
  }

  filePart(key: FileKey, index: number): Step<Uint8Array | undefined> {
    return readFilePart(key, index);
  }

  fileParts(key: FileKey): Step<number> {
    return countFileParts(key);
  }

  *keyByHash(hash: string): Step<StoredKey | undefined> {
    const rows = yield { sql: `select ${keyColumns} from api_key where hash = ?`, params: [hash] };
    return readFirst(rows, readKey);
  }

  *keys(): Step<StoredKey[]> {
    const rows = yield {
      sql: `select ${keyColumns} from api_key order by created_at, id`,
      params: [],
    };
    return rows.map(readKey);
  }

  *keysOfUser(userId: string): Step<StoredKey[]> {
    const sql = `select ${keyColumns} from api_key where user_id = ? order by created_at, id`;
    const rows = yield { sql, params: [userId] };
    return rows.map(readKey);
  }
}

interface BatchSearch {
  /** Key of the attempt's batches. */
  attempt: SqlValue[];
  first: number;
  maxBytes: number;
}

/** Finds the batch that reaches `maxBytes`, or the last one, without reading any payload. */
function* findLastBatch({ attempt, first, maxBytes }: BatchSearch): Step<number> {
  let last = first;
  for (let from = first, total = 0; ; from = last + 1) {
    const rows = yield {
      sql: `select first, octet_length(bytes) as size from job_chunk where endpoint_id = ?
        and job_id = ? and attempt = ? and first >= ? order by first limit ?`,
      params: [...attempt, from, BATCHES_PER_LOOK],
    };
    for (const row of rows) {
      last = number(row, 'first');
      total += number(row, 'size');
      if (total >= maxBytes) return last;
    }
    if (rows.length < BATCHES_PER_LOOK) return last;
  }
}

function readBytes(row: Row): Uint8Array {
  return bytes(row, 'bytes');
}

/** Reads code and message from the start of an error's JSON, which may be cut anywhere. */
function readErrorStart(json: string | null): JobPreview['error'] {
  const [start, code, message] = ERROR_START.exec(json ?? '') ?? [];
  return start === undefined ? null : JSON.parse(`{"code":${code},"message":"${message}"}`);
}
