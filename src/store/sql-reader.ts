// The tables of an SQL database: all statements that read. sql-tables.ts has those that
// write.
import type { JobStatus } from '../wire/job.ts';
import { readRecordPart } from './delivery-record.ts';
import { allJobColumns, readJob, slimJobColumns } from './job-row.ts';
import { measureOutput, readPart, readPayload, readUpTo } from './payload-parts.ts';
import {
  bytes,
  number,
  numberOrNull,
  readChunkBatch,
  readDelivery,
  readEndpoint,
  readKey,
  readResource,
  readWorker,
  text,
} from './rows.ts';
import type {
  ChunkBatch,
  ChunkRange,
  DueDeliveries,
  JobKey,
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
  StoredJob,
  StoredKey,
  StoredResource,
  StoredWorker,
  UnusedPayload,
} from './store.ts';
import type { TableListing } from './tables.ts';
import { listUnused } from './unused-payloads.ts';

/** Batches whose sizes one query reads while it selects a range of chunks. */
const BATCHES_PER_LOOK = 256;

export class SqlReader {
  *endpoint(id: string): Step<StoredEndpoint | undefined> {
    const rows = yield { sql: 'select * from endpoint where id = ?', params: [id] };
    return readFirst(rows, readEndpoint);
  }

  *endpoints(): Step<StoredEndpoint[]> {
    const rows = yield { sql: 'select * from endpoint order by id', params: [] };
    return rows.map(readEndpoint);
  }

  *job({ endpointId, id }: JobKey): Step<StoredJob | undefined> {
    const rows = yield {
      sql: `select ${allJobColumns} from job where endpoint_id = ? and id = ?`,
      params: [endpointId, id],
    };
    return readFirst(rows, readJob);
  }

  *jobByIdempotencyKey(endpointId: string, idempotencyKey: string): Step<StoredJob | undefined> {
    const rows = yield {
      sql: `select ${allJobColumns} from job where endpoint_id = ? and idempotency_key = ?`,
      params: [endpointId, idempotencyKey],
    };
    return readFirst(rows, readJob);
  }

  *jobs({ endpointId, status, before, limit }: TableListing): Step<StoredJob[]> {
    const wanted = status === undefined ? '' : `and ${statusConditions[status]}`;
    const rows = yield {
      sql: `select ${slimJobColumns} from job where endpoint_id = ? and position < ? ${wanted}
        order by position desc limit ?`,
      params: [endpointId, before ?? Number.MAX_SAFE_INTEGER, limit],
    };
    return rows.map(readJob);
  }

  *readyJobs(endpointId: string, limit: number): Step<StoredJob[]> {
    const rows = yield {
      sql: `select ${allJobColumns} from job where endpoint_id = ? and status = 'IN_QUEUE' and delayed = 0
        order by priority desc, position limit ?`,
      params: [endpointId, limit],
    };
    return rows.map(readJob);
  }

  *queuedJobs(
    endpointId: string,
    limit: number,
    upTo = Number.MAX_SAFE_INTEGER,
  ): Step<StoredJob[]> {
    const jobs: StoredJob[] = [];
    for (const delayed of [1, 0]) {
      let below = Number.MAX_SAFE_INTEGER;
      while (jobs.length < limit) {
        const priority = yield* this.#priorityBelow(below, [endpointId, delayed]);
        if (priority === null) break;
        // One priority at a time, so that the query skips the positions behind `upTo`.
        const rows = yield {
          sql: `select ${allJobColumns} from job where endpoint_id = ? and status = 'IN_QUEUE'
            and delayed = ? and priority = ? and position <= ? order by position limit ?`,
          params: [endpointId, delayed, priority, upTo, limit - jobs.length],
        };
        jobs.push(...rows.map(readJob));
        below = priority;
      }
    }
    return jobs;
  }

  /** The highest priority of queued jobs that is lower than `below`; null without one. */
  *#priorityBelow(below: number, lane: SqlValue[]): Step<number | null> {
    const rows = yield {
      sql: `select max(priority) as priority from job where endpoint_id = ?
        and status = 'IN_QUEUE' and delayed = ? and priority < ?`,
      params: [...lane, below],
    };
    return readFirst(rows, (row) => numberOrNull(row, 'priority')) ?? null;
  }

  *jobsOfWorker(endpointId: string, workerId: string): Step<StoredJob[]> {
    const rows = yield {
      sql: `select ${allJobColumns} from job where endpoint_id = ? and lease_worker = ?
        order by position`,
      params: [endpointId, workerId],
    };
    return rows.map(readJob);
  }

  *leasedJobs(): Step<StoredJob[]> {
    const rows = yield {
      sql: `select ${allJobColumns} from job where lease_worker is not null
        order by endpoint_id, lease_worker`,
      params: [],
    };
    return rows.map(readJob);
  }

  *dueJobs(now: number, limit: number): Step<StoredJob[]> {
    const rows = yield {
      sql: `select ${allJobColumns} from job where due_at <= ? and lease_token is null
        order by due_at limit ?`,
      params: [now, limit],
    };
    return rows.map(readJob);
  }

  *nextDueAt(): Step<number | undefined> {
    const sql = 'select due_at from job where lease_token is null order by due_at limit 1';
    const rows = yield { sql, params: [] };
    return readFirst(rows, (row) => number(row, 'due_at'));
  }

  *input(key: JobKey): Step<Uint8Array | undefined> {
    return yield* readPayload('job_input', key);
  }

  *output(key: JobKey): Step<Uint8Array | undefined> {
    return yield* readPayload('job_output', key);
  }

  *outputBytes(key: JobKey): Step<number> {
    return yield* measureOutput(key);
  }

  *payloadUpTo(
    kind: StagedPayload['kind'],
    key: JobKey,
    maxBytes: number,
  ): Step<Uint8Array | number | undefined> {
    return yield* readUpTo(kind === 'input' ? 'job_input' : 'job_output', key, maxBytes);
  }

  *payloadPart(
    kind: StagedPayload['kind'],
    key: JobKey,
    index: number,
  ): Step<Uint8Array | undefined> {
    return yield* readPart(kind === 'input' ? 'job_input' : 'job_output', key, index);
  }

  *unusedPayloads(limit: number): Step<UnusedPayload[]> {
    return yield* listUnused(limit);
  }

  *deliveriesOf(endpointId: string, limit: number): Step<StoredDelivery[]> {
    const sql = 'select * from delivery where endpoint_id = ? order by id limit ?';
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
      sql: `select * from delivery where user_id = ? and receiver = ? and next_at <= ?
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
    return yield* readRecordPart(key, at);
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

  *worker(endpointId: string, id: string): Step<StoredWorker | undefined> {
    const rows = yield {
      sql: 'select * from worker where endpoint_id = ? and id = ?',
      params: [endpointId, id],
    };
    return readFirst(rows, readWorker);
  }

  *workers(): Step<StoredWorker[]> {
    const rows = yield { sql: 'select * from worker order by endpoint_id, id', params: [] };
    return rows.map(readWorker);
  }

  *resource({ id, kind }: ResourceKey): Step<StoredResource | undefined> {
    const rows = yield {
      sql: 'select * from resource where kind = ? and id = ?',
      params: [kind, id],
    };
    return readFirst(rows, readResource);
  }

  *resources({ before, kind, limit, parent, userId }: ResourceListing): Step<StoredResource[]> {
    const byUser = userId === undefined ? '' : 'and user_id = ?';
    const byParent = parent === undefined ? '' : 'and parent = ?';
    const wanted = [userId, parent].filter((value) => value !== undefined);
    const rows = yield {
      sql: `select * from resource where kind = ? ${byUser} ${byParent} and position < ?
        order by position desc limit ?`,
      params: [kind, ...wanted, before ?? Number.MAX_SAFE_INTEGER, limit],
    };
    return rows.map(readResource);
  }

  *oldestQueuedAt(endpointId: string): Step<number | undefined> {
    // Reads the first job of each priority by stepping through the index: few rows, however many
    // wait.
    const rows = yield {
      sql: `with recursive each (priority) as (
          select max(priority) from job
            where endpoint_id = ? and status = 'IN_QUEUE' and delayed = 0
          union all
          select (select max(priority) from job where endpoint_id = ? and status = 'IN_QUEUE'
              and delayed = 0 and priority < each.priority)
            from each where each.priority is not null
        )
        select min((select queued_at from job where endpoint_id = ? and status = 'IN_QUEUE'
            and delayed = 0 and priority = each.priority order by position limit 1)) as queued_at
        from each where priority is not null`,
      params: [endpointId, endpointId, endpointId],
    };
    return readFirst(rows, (row) => numberOrNull(row, 'queued_at')) ?? undefined;
  }

  *countReady(endpointId: string, limit: number): Step<number> {
    // Each side reads a bounded number of index entries.
    const rows = yield {
      sql: `select case
          when exists (select 1 from job
            where endpoint_id = ? and status = 'IN_QUEUE' and delayed = 1)
          then (select count(*) from (select 1 from job
            where endpoint_id = ? and status = 'IN_QUEUE' and delayed = 0 limit ?))
          else coalesce((select in_queue from endpoint where id = ?), 0)
        end as count`,
      params: [endpointId, endpointId, limit, endpointId],
    };
    return readFirst(rows, (row) => number(row, 'count')) ?? 0;
  }

  *keyByHash(hash: string): Step<StoredKey | undefined> {
    const rows = yield { sql: 'select * from api_key where hash = ?', params: [hash] };
    return readFirst(rows, readKey);
  }

  *keys(): Step<StoredKey[]> {
    const rows = yield { sql: 'select * from api_key order by created_at, id', params: [] };
    return rows.map(readKey);
  }

  *keysOfUser(userId: string): Step<StoredKey[]> {
    const sql = 'select * from api_key where user_id = ? order by created_at, id';
    const rows = yield { sql, params: [userId] };
    return rows.map(readKey);
  }
}

/** Literals, because SQLite uses a partial index only for a statement with the same condition. */
const statusConditions: Record<Exclude<JobStatus, 'IN_PROGRESS'>, string> = {
  IN_QUEUE: "status = 'IN_QUEUE'",
  COMPLETED: "status = 'COMPLETED'",
  FAILED: "status = 'FAILED'",
  CANCELLED: "status = 'CANCELLED'",
  TIMED_OUT: "status = 'TIMED_OUT'",
};

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

function readFirst<T>(rows: readonly Row[], read: (row: Row) => T): T | undefined {
  const [row] = rows;
  return row && read(row);
}

function readBytes(row: Row): Uint8Array {
  return bytes(row, 'bytes');
}
