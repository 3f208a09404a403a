// The statements that find jobs and count those that wait. Each reads a bounded part of an index.
import type { JobStatus } from '../../wire/job/job.ts';
import type { WantedJobs } from '../live/ready-groups.ts';
import {
  type FoundJobs,
  hasTags,
  type JobFilter,
  type JobKey,
  type OutgrownLoad,
  type SqlValue,
  type Step,
  type StoredJob,
} from '../store.ts';
import type { GroupRange, OutgrownRange, TableListing, TableSearch } from '../tables.ts';
import { allJobColumns, READY_LANE, readJob, slimJobColumns } from './job-row.ts';
import { number, numberOrNull, readFirst, text } from './rows.ts';

/** Literals, because SQLite uses a partial index only for a statement with the same condition. */
const statusConditions: Record<Exclude<JobStatus, 'IN_PROGRESS'>, string> = {
  IN_QUEUE: "status = 'IN_QUEUE'",
  COMPLETED: "status = 'COMPLETED'",
  FAILED: "status = 'FAILED'",
  CANCELLED: "status = 'CANCELLED'",
  TIMED_OUT: "status = 'TIMED_OUT'",
};

/** Oldest queued jobs among which one that is not delayed is looked for. */
const OLDEST = 16;
/** Jobs that have outgrown a GPU type are counted up to this number: no endpoint has more workers. */
const MAX_COUNTED = 1_000;

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

  *readyJobs(endpointId: string, limit: number): Step<StoredJob[]> {
    const rows = yield {
      sql: `select ${allJobColumns} from job where endpoint_id = ? and status = 'IN_QUEUE' and lane = ${READY_LANE}
        order by priority desc, group_key, place limit ?`,
      params: [endpointId, limit],
    };
    return rows.map(readJob);
  }

  *outgrownJobs({ endpointId, from, gpuType, limit }: OutgrownRange): Step<StoredJob[]> {
    if (!from) {
      const rows = yield {
        sql: `select ${allJobColumns} from job where endpoint_id = ? and status = 'IN_QUEUE' and lane = ?
          and lane > 1 order by priority desc, place limit ?`,
        params: [endpointId, gpuType, limit],
      };
      return rows.map(readJob);
    }
    const { place, priority } = from;
    // Two queries: an index of ascending and descending columns has no range for one.
    const same = yield {
      sql: `select ${allJobColumns} from job where endpoint_id = ? and status = 'IN_QUEUE' and lane = ?
        and lane > 1 and priority = ? and place >= ? order by place limit ?`,
      params: [endpointId, gpuType, priority, place, limit],
    };
    const jobs = same.map(readJob);
    if (jobs.length === limit) return jobs;
    const rest = yield {
      sql: `select ${allJobColumns} from job where endpoint_id = ? and status = 'IN_QUEUE' and lane = ?
        and lane > 1 and priority < ? order by priority desc, place limit ?`,
      params: [endpointId, gpuType, priority, limit - jobs.length],
    };
    return [...jobs, ...rest.map(readJob)];
  }

  *readyPriorities(endpointId: string): Step<number[]> {
    // Steps through the index from priority to priority.
    const rows = yield {
      sql: `with recursive each (priority) as (
          select max(priority) from job
            where endpoint_id = ? and status = 'IN_QUEUE' and lane = 0
          union all
          select (select max(priority) from job where endpoint_id = ? and status = 'IN_QUEUE'
              and lane = 0 and priority < each.priority)
            from each where each.priority is not null
        )
        select priority from each where priority is not null`,
      params: [endpointId, endpointId],
    };
    return rows.map((row) => number(row, 'priority'));
  }

  *readyGroups({ after, endpointId, limit, priority }: GroupRange): Step<string[]> {
    // The same from group to group. Only the first one may be that of the jobs without a group, whose name is empty.
    const first = after === '' ? '>=' : '>';
    const rows = yield {
      sql: `with recursive each (name) as (
          select min(group_key) from job
            where endpoint_id = ? and status = 'IN_QUEUE' and lane = 0 and priority = ? and group_key ${first} ?
          union all
          select (select min(group_key) from job where endpoint_id = ? and status = 'IN_QUEUE'
              and lane = 0 and priority = ? and group_key > each.name)
            from each where each.name is not null
        )
        select name from each where name is not null limit ?`,
      params: [endpointId, priority, after, endpointId, priority, limit],
    };
    return rows.map((row) => text(row, 'name'));
  }

  *readyJobsOfGroups(
    endpointId: string,
    wanted: readonly WantedJobs[],
    limit: number,
  ): Step<StoredJob[]> {
    // A fifth of the time of a union of one statement for each group. Whatever their number, one statement is prepared.
    const rows = yield {
      sql: `select ${allJobColumns} from (select value as wanted from json_each(?)) cross join job on job.rowid in (
          select rowid from job where endpoint_id = ? and status = 'IN_QUEUE' and lane = 0
            and priority = wanted ->> 0 and group_key = wanted ->> 1 and place >= wanted ->> 2
          order by place limit ?)`,
      params: [
        JSON.stringify(wanted.map(({ from = 0, group, priority }) => [priority, group, from])),
        endpointId,
        limit,
      ],
    };
    return rows.map(readJob).sort((a, b) => a.place - b.place);
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
    // A job of each priority, by stepping through the index, the oldest one of a group, and some of the oldest jobs: few
    // rows, however many wait.
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
              and lane = 0 and priority = each.priority order by group_key, place limit 1) as queued_at
            from each where priority is not null
          union all
          select queued_at from (select queued_at from job
              where endpoint_id = ? and status = 'IN_QUEUE' and lane = 0 and group_key > ''
              order by position limit 1) as grouped
          union all
          select queued_at from (select queued_at, lane from job
              where endpoint_id = ? and status = 'IN_QUEUE' order by position limit ?) as oldest
            where lane = 0
        ) as waiting`,
      params: [endpointId, endpointId, endpointId, endpointId, endpointId, OLDEST],
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
              and status = 'IN_QUEUE' and lane > 1 and lane = each.gpu_type
              order by priority desc, place limit ?) as first) as queued_at
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
