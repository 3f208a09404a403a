// The tables of a Postgres database, for its store and for readers: rows of many jobs are one parameter of one statement.
import type { Counts } from '../live/live-endpoint.ts';
import { LiveJobs } from '../live/live-jobs.ts';
import type { WantedJobs } from '../live/ready-groups.ts';
import {
  allJobColumns,
  compareRows,
  imageColumns,
  listImageValues,
  readJob,
} from '../sql/job-row.ts';
import { readOperation } from '../sql/sql-store.ts';
import { SqlTables } from '../sql/sql-tables.ts';
import {
  type Reader,
  type SqlValue,
  type Step,
  type Store,
  type StoredJob,
  StoreUnavailableError,
} from '../store.ts';
import type { AddedRow, ChangedRow } from '../tables.ts';
import { describeUnavailable } from './postgres-errors.ts';
import { runSteps, Session, type SessionOptions } from './session.ts';
import { type CompositeType, encodeArray, encodeRows, INT8, TEXT } from './statements.ts';

const ROWS_AT_ONCE = 256;

export class PostgresTables extends SqlTables {
  override readonly rowsAtOnce = ROWS_AT_ONCE;
  #image: CompositeType = { type: 0, columns: [] };

  /** The database of the session numbers its types in its own way. */
  async useTypes(session: Session): Promise<void> {
    const rows = await session.query({
      sql: `select (c.relname::regtype)::oid::int8 as type, a.attname::text as name, a.atttypid::int8 as column
        from pg_class c join pg_attribute a on a.attrelid = c.oid
        where c.oid = 'job_image'::regclass and a.attnum > 0 order by a.attnum`,
      params: [],
    });
    const names = rows.map((row) => String(row['name']));
    if (names.join() !== imageColumns.join()) {
      throw new Error(`the type job_image has other columns than this version: ${names.join()}`);
    }
    this.#image = {
      type: Number(rows[0]?.['type']),
      columns: rows.map((row) => Number(row['column'])),
    };
  }

  override *addJobRows(added: readonly AddedRow[]): Step<void> {
    const rows = added.map(({ job, payloads }) => listImageValues(job, payloads));
    yield { sql: INSERT, params: [encodeRows(this.#image, ALL_COLUMNS, rows)] };
  }

  override *changeJobRows(changes: readonly ChangedRow[]): Step<void> {
    // Jobs that changed in the same columns are one statement.
    const groups = new Map<number, { update: Update; rows: SqlValue[][] }>();
    for (const { after, before, output } of changes) {
      const { bits, columns, values } = compareRows(before, after, output);
      if (columns.length === 0) continue;
      const group = groups.get(bits);
      const row = [after.endpointId, after.id, ...values];
      if (group) group.rows.push(row);
      else groups.set(bits, { update: findUpdate(bits, columns), rows: [row] });
    }
    for (const { rows, update } of groups.values()) {
      yield { sql: update.sql, params: [encodeRows(this.#image, update.given, rows)] };
    }
  }

  override *addCounts(counts: ReadonlyMap<string, Counts>): Step<void> {
    if (counts.size === 1) {
      yield* super.addCounts(counts);
      return;
    }
    const all = [...counts.values()];
    const numbers = COUNTERS.map(([, key]) => all.map((each) => each[key]));
    yield {
      sql: ADD_COUNTS,
      params: [
        encodeArray(TEXT, [...counts.keys()]),
        ...numbers.map((values) => encodeArray(INT8, values)),
      ],
    };
  }

  override *readyJobsOfGroups(
    endpointId: string,
    wanted: readonly WantedJobs[],
    limit: number,
  ): Step<StoredJob[]> {
    const rows = yield {
      sql: READY_JOBS,
      params: [
        encodeArray(
          INT8,
          wanted.map(({ priority }) => priority),
        ),
        encodeArray(
          TEXT,
          wanted.map(({ group }) => group),
        ),
        encodeArray(
          INT8,
          wanted.map(({ from = 0 }) => from),
        ),
        endpointId,
        limit,
      ],
    };
    return rows.map(readJob).sort((a, b) => a.place - b.place);
  }
}

const READY_JOBS = `select ${allJobColumns}
  from unnest(?::int8[], ?::text[], ?::int8[]) as wanted (of_priority, of_group, from_place)
  cross join lateral (
    select ${allJobColumns} from job where endpoint_id = ? and status = 'IN_QUEUE' and lane = 0
      and priority = of_priority and group_key = of_group and place >= from_place
    order by place limit ?
  ) as ready`;

const ALL_COLUMNS = imageColumns.map((_, index) => index);

const INSERT = `insert into job (${imageColumns.join(', ')})
  select ${imageColumns.join(', ')} from unnest(?::job_image[])`;

interface Update {
  sql: string;
  /** Columns of an image that the statement reads. */
  given: number[];
}

/** By the set of columns that they write. */
const updates = new Map<number, Update>();

function findUpdate(bits: number, columns: readonly number[]): Update {
  const known = updates.get(bits);
  if (known) return known;
  const assignments = columns.map(
    (index) => `${imageColumns[index]} = image.${imageColumns[index]}`,
  );
  const update = {
    sql: `update job set ${assignments.join(', ')} from unnest(?::job_image[]) as image
      where job.endpoint_id = image.endpoint_id and job.id = image.id`,
    // The key comes first.
    given: [0, 1, ...columns],
  };
  updates.set(bits, update);
  return update;
}

const COUNTERS = [
  ['in_queue', 'inQueue'],
  ['in_progress', 'inProgress'],
  ['completed', 'completed'],
  ['failed', 'failed'],
  ['cancelled', 'cancelled'],
  ['timed_out', 'timedOut'],
  ['retried', 'retried'],
] as const;

const ADD_COUNTS = `update endpoint
  set ${COUNTERS.map(([name]) => `${name} = endpoint.${name} + added.${name}`).join(', ')}
  from unnest(?::text[], ${COUNTERS.map(() => '?::bigint[]').join(', ')})
    as added (id, ${COUNTERS.map(([name]) => name).join(', ')})
  where endpoint.id = added.id`;

/** A store that refuses to write, as unavailable. It connects with the first read, and again after the connection was lost. */
export class PostgresReader implements Store {
  readonly #options: SessionOptions;
  #session: Promise<Session> | undefined;
  #isClosed = false;

  constructor(options: SessionOptions) {
    this.#options = options;
  }

  async read<T>(operation: (tx: Reader) => T): Promise<T> {
    if (this.#isClosed) throw new StoreUnavailableError('The store is closed');
    const tables = new SqlTables();
    // Nothing is kept in memory: the owner changes the rows.
    const steps = readOperation(tables, new LiveJobs(tables), operation);
    this.#session ??= this.#connect();
    return runSteps(steps, await this.#session);
  }

  write<T>(): Promise<T> {
    return Promise.reject(new StoreUnavailableError('another node writes this database'));
  }

  async reclaim(): Promise<boolean> {
    return false;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const session = await this.#session?.catch(() => undefined);
    await session?.end();
  }

  async #connect(): Promise<Session> {
    const forget = () => {
      this.#session = undefined;
    };
    try {
      const session = await Session.connect(this.#options);
      void session.ended.then(forget);
      return session;
    } catch (error) {
      forget();
      throw describeUnavailable(error);
    }
  }
}
