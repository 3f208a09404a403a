// The statements that find jobs and count those that wait. Each reads a bounded part of an index.
import type { JobStatus } from '../../wire/job/job.ts';
import type { Rank } from '../live/ready-window.ts';
import {
  type FoundJobs,
  hasTags,
  type JobFilter,
  type JobKey,
  type OutgrownLoad,
  type SqlValue,
  type Step,
  type StoredJob,
  type TurnKey,
} from '../store.ts';
import { NO_GROUP } from '../stored-records.ts';
import type { OutgrownRange, TableListing, TableSearch } from '../tables.ts';
import { allJobColumns, READY_LANE, readJob, slimJobColumns } from './job-row.ts';
import { number, numberOrNull, readFirst, textOrNull } from './rows.ts';

/** Literals, because SQLite uses a partial index only for a statement with the same condition. */
const statusConditions: Record<Exclude<JobStatus, 'IN_PROGRESS'>, string> = {
  IN_QUEUE: "status = 'IN_QUEUE'",
  COMPLETED: "status = 'COMPLETED'",
  FAILED: "status = 'FAILED'",
  CANCELLED: "status = 'CANCELLED'",
  TIMED_OUT: "status = 'TIMED_OUT'",
};

/** Newest queued jobs among which one without a group is looked for. */
const NEWEST = 256;
/** Oldest queued jobs among which one that is not delayed is looked for. */
const OLDEST = 16;
/** Jobs that have outgrown a GPU type are counted up to this number: no endpoint has more workers. */
const MAX_COUNTED = 1_000;

/** A part of a lane: see job-row.ts. */
interface QueueRange {
  endpointId: string;
  lane: number;
  from: Rank | undefined;
  limit: number;
}

export class SqlJobReader {
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

  *jobs({ endpointId, status, before, from = 0, limit }: TableListing): Step<StoredJob[]> {
    const wanted = status === undefined ? '' : `and ${statusConditions[status]}`;
    const rows = yield {
      sql: `select ${slimJobColumns} from job where endpoint_id = ? and position < ? and position >= ? ${wanted}
        order by position desc limit ?`,
      params: [endpointId, before ?? Number.MAX_SAFE_INTEGER, from, limit],
    };
    return rows.map(readJob);
  }

  *oldestDeadLetters(endpointId: string, limit: number): Step<StoredJob[]> {
    const rows = yield {
      sql: `select ${slimJobColumns} from job where endpoint_id = ? and position < 0 order by position limit ?`,
      params: [endpointId, limit],
    };
    return rows.map(readJob);
  }

  *findJobs(search: TableSearch): Step<FoundJobs> {
    const { before = Number.MAX_SAFE_INTEGER, endpointId, from = 0, limit, scan, status } = search;
    // COMPLETED has no index, so all jobs are looked at.
    const indexed = status === undefined || status === 'COMPLETED' ? '' : statusConditions[status];
    const window = yield {
      sql: `select position from job where endpoint_id = ? and position < ? and position >= ?
        ${indexed && `and ${indexed}`} order by position desc limit 1 offset ?`,
      params: [endpointId, before, from, scan - 1],
    };
    const last = readFirst(window, (row) => number(row, 'position'));
    const { conditions, params } = describeFilter(search);
    const wanted = status === undefined ? conditions : [statusConditions[status], ...conditions];
    const rows = yield {
      sql: `select ${slimJobColumns} from job where endpoint_id = ? and position < ? and position >= ?
        ${wanted.map((condition) => `and ${condition}`).join(' ')}
        order by position desc limit ?`,
      params: [endpointId, before, last ?? from, ...params, limit + 1],
    };
    const found = rows.slice(0, limit).map(readJob);
    const next = rows.length > limit ? found.at(-1)?.position : last;
    return { jobs: found.filter((job) => hasTags(job, search.tags)), next };
  }

  readyJobs(endpointId: string, limit: number): Step<StoredJob[]> {
    return this.#queueFrom({ endpointId, lane: READY_LANE, from: undefined, limit });
  }

  readyJobsFrom(endpointId: string, from: Rank, limit: number): Step<StoredJob[]> {
    return this.#queueFrom({ endpointId, lane: READY_LANE, from, limit });
  }

  outgrownJobs({ gpuType, ...range }: OutgrownRange): Step<StoredJob[]> {
    return this.#queueFrom({ ...range, lane: gpuType });
  }

  *#queueFrom({ endpointId, from, lane, limit }: QueueRange): Step<StoredJob[]> {
    if (!from) {
      const rows = yield {
        sql: `select ${allJobColumns} from job where endpoint_id = ? and status = 'IN_QUEUE' and lane = ?
          order by priority desc, turn, position limit ?`,
        params: [endpointId, lane, limit],
      };
      return rows.map(readJob);
    }
    const { position, priority, turn } = from;
    // Two queries: an index of ascending and descending columns has no range for one.
    const same = yield {
      sql: `select ${allJobColumns} from job where endpoint_id = ? and status = 'IN_QUEUE' and lane = ?
        and priority = ? and (turn, position) >= (?, ?) order by turn, position limit ?`,
      params: [endpointId, lane, priority, turn, position, limit],
    };
    const jobs = same.map(readJob);
    if (jobs.length === limit) return jobs;
    const rest = yield {
      sql: `select ${allJobColumns} from job where endpoint_id = ? and status = 'IN_QUEUE' and lane = ?
        and priority < ? order by priority desc, turn, position limit ?`,
      params: [endpointId, lane, priority, limit - jobs.length],
    };
    return [...jobs, ...rest.map(readJob)];
  }

  *readyJobsOfGroup(endpointId: string, group: string, limit: number): Step<StoredJob[]> {
    const [condition, names] =
      group === NO_GROUP ? ['group_key is null', []] : ['group_key = ?', [group]];
    const rows = yield {
      sql: `select ${allJobColumns} from job where endpoint_id = ? and ${condition}
        and status = 'IN_QUEUE' and lane = 0 order by priority desc, turn, position limit ?`,
      params: [endpointId, ...names, limit],
    };
    return rows.map(readJob);
  }

  *turns(endpointId: string): Step<string | null> {
    const rows = yield { sql: 'select turns from endpoint where id = ?', params: [endpointId] };
    return readFirst(rows, (row) => textOrNull(row, 'turns')) ?? null;
  }

  *lastTurn({ endpointId, group, priority }: TurnKey): Step<number | null | undefined> {
    if (group !== null) {
      const rows = yield {
        sql: `select max(turn) as turn from job where endpoint_id = ? and group_key = ?
          and status = 'IN_QUEUE' and lane = 0 and priority = ?`,
        params: [endpointId, group, priority],
      };
      return readFirst(rows, (row) => numberOrNull(row, 'turn')) ?? null;
    }
    // Their turns grow with their positions, so no index of them is needed.
    const rows = yield {
      sql: `select count(*) as looked,
          max(case when group_key is null and priority = ? then turn end) as turn
        from (select group_key, priority, turn from job where endpoint_id = ? and status = 'IN_QUEUE'
          order by position desc limit ?) as newest`,
      params: [priority, endpointId, NEWEST],
    };
    return readFirst(rows, (row) => {
      const turn = numberOrNull(row, 'turn');
      return turn === null && number(row, 'looked') === NEWEST ? undefined : turn;
    });
  }

  *queuedJobs(
    endpointId: string,
    limit: number,
    upTo = Number.MAX_SAFE_INTEGER,
  ): Step<StoredJob[]> {
    const rows = yield {
      sql: `select ${allJobColumns} from job where endpoint_id = ? and status = 'IN_QUEUE'
        and position <= ? order by position limit ?`,
      params: [endpointId, upTo, limit],
    };
    return rows.map(readJob);
  }

  *jobsOfWorker(endpointId: string, workerId: string): Step<StoredJob[]> {
    const rows = yield {
      sql: `select ${allJobColumns} from job where endpoint_id = ? and worker = ? and leased = 1
        order by position`,
      params: [endpointId, workerId],
    };
    return rows.map(readJob);
  }

  *leasedJobs(): Step<StoredJob[]> {
    const rows = yield {
      sql: `select ${allJobColumns} from job where leased = 1
        order by endpoint_id, worker, position`,
      params: [],
    };
    return rows.map(readJob);
  }

  *dueJobs(now: number, limit: number): Step<StoredJob[]> {
    const rows = yield {
      sql: `select ${allJobColumns} from job where due_at <= ? and leased = 0
        order by due_at limit ?`,
      params: [now, limit],
    };
    return rows.map(readJob);
  }

  *nextDueAt(): Step<number | undefined> {
    const sql = 'select due_at from job where leased = 0 order by due_at limit 1';
    const rows = yield { sql, params: [] };
    return readFirst(rows, (row) => number(row, 'due_at'));
  }

  *oldestQueuedAt(endpointId: string): Step<number | undefined> {
    // The next job of each priority, by stepping through the index, and some of the oldest jobs: few rows,
    // however many wait.
    const rows = yield {
      sql: `with recursive each (priority) as (
          select max(priority) from job
            where endpoint_id = ? and status = 'IN_QUEUE' and lane = 0
          union all
          select (select max(priority) from job where endpoint_id = ? and status = 'IN_QUEUE'
              and lane = 0 and priority < each.priority)
            from each where each.priority is not null
        )
        select min(queued_at) as queued_at from (
          select (select queued_at from job where endpoint_id = ? and status = 'IN_QUEUE'
              and lane = 0 and priority = each.priority order by turn, position limit 1) as queued_at
            from each where priority is not null
          union all
          select queued_at from (select queued_at, lane from job
              where endpoint_id = ? and status = 'IN_QUEUE' order by position limit ?) as oldest
            where lane = 0
        ) as waiting`,
      params: [endpointId, endpointId, endpointId, endpointId, OLDEST],
    };
    return readFirst(rows, (row) => numberOrNull(row, 'queued_at')) ?? undefined;
  }

  *countReady(endpointId: string, limit: number): Step<number> {
    // Each side reads a bounded number of index entries.
    const rows = yield {
      sql: `select case
          when exists (select 1 from job
            where endpoint_id = ? and status = 'IN_QUEUE' and lane > 0)
          then (select count(*) from (select 1 from job
            where endpoint_id = ? and status = 'IN_QUEUE' and lane = 0 limit ?) as ready)
          else coalesce((select in_queue from endpoint where id = ?), 0)
        end as count`,
      params: [endpointId, endpointId, limit, endpointId],
    };
    return readFirst(rows, (row) => number(row, 'count')) ?? 0;
  }

  *outgrownLoads(endpointId: string): Step<OutgrownLoad[]> {
    // Steps through the index from type to type, and reads a bounded number of entries of each.
    const rows = yield {
      sql: `with recursive each (gpu_type) as (
          select min(lane) from job
            where endpoint_id = ? and status = 'IN_QUEUE' and lane > 1
          union all
          select (select min(lane) from job
              where endpoint_id = ? and status = 'IN_QUEUE' and lane > each.gpu_type)
            from each where each.gpu_type is not null
        )
        select gpu_type,
          (select count(*) from (select 1 from job where endpoint_id = ? and status = 'IN_QUEUE'
              and lane = each.gpu_type limit ?) as counted) as waiting,
          (select min(queued_at) from (select queued_at from job where endpoint_id = ?
              and status = 'IN_QUEUE' and lane = each.gpu_type
              order by priority desc, turn, position limit ?) as first) as queued_at
        from each where gpu_type is not null`,
      params: [endpointId, endpointId, endpointId, MAX_COUNTED, endpointId, OLDEST],
    };
    return rows.map((row) => ({
      gpuType: number(row, 'gpu_type'),
      waiting: number(row, 'waiting'),
      oldestQueuedAt: number(row, 'queued_at'),
    }));
  }
}

function describeFilter({ errorCode, idPart, tags = [], workerId }: JobFilter): {
  conditions: string[];
  params: SqlValue[];
} {
  const conditions: string[] = [];
  const params: SqlValue[] = [];
  if (workerId !== undefined) {
    conditions.push('worker = ?');
    params.push(workerId);
  }
  if (idPart !== undefined) {
    conditions.push('id like ?');
    params.push(`%${idPart}%`);
  }
  if (errorCode !== undefined) {
    // JSON: a quotation mark inside of a message would have a backslash before it.
    conditions.push('details like ?');
    params.push(`%"code":"${errorCode}"%`);
  }
  for (const tag of tags) {
    // They end the text. It finds a few jobs more: `_` stands for any character, and SQLite ignores upper and lower case.
    conditions.push('body like ?');
    params.push(`%"tags":[%"${tag}"%`);
  }
  return { conditions, params };
}
