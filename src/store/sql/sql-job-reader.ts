// The statements that find jobs and count those that wait. Each reads a bounded part of an index.
import type { JobStatus } from '../../wire/job.ts';
import type { AlikeRange, JobKey, SqlValue, Step, StoredJob } from '../store.ts';
import type { TableListing } from '../tables.ts';
import { allJobColumns, readJob, slimJobColumns } from './job-row.ts';
import { number, numberOrNull, readFirst } from './rows.ts';

/** Literals, because SQLite uses a partial index only for a statement with the same condition. */
const statusConditions: Record<Exclude<JobStatus, 'IN_PROGRESS'>, string> = {
  IN_QUEUE: "status = 'IN_QUEUE'",
  COMPLETED: "status = 'COMPLETED'",
  FAILED: "status = 'FAILED'",
  CANCELLED: "status = 'CANCELLED'",
  TIMED_OUT: "status = 'TIMED_OUT'",
};

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

  /** Position of the last one of `limit` queued jobs that begin with this one; `upTo` if it comes first. */
  *positionBehind(job: StoredJob, { limit, upTo }: AlikeRange): Step<number> {
    const { delayed, endpointId, position, priority } = job;
    const rows = yield {
      sql: `select position from job where endpoint_id = ? and status = 'IN_QUEUE' and delayed = ?
        and priority = ? and position >= ? and position <= ? order by position limit 1 offset ?`,
      params: [endpointId, Number(delayed), priority, position, upTo, limit - 1],
    };
    return readFirst(rows, (row) => number(row, 'position')) ?? upTo;
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
            where endpoint_id = ? and status = 'IN_QUEUE' and delayed = 0 limit ?) as ready)
          else coalesce((select in_queue from endpoint where id = ?), 0)
        end as count`,
      params: [endpointId, endpointId, limit, endpointId],
    };
    return readFirst(rows, (row) => number(row, 'count')) ?? 0;
  }
}
