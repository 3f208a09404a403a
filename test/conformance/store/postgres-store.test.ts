import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { copyStore } from '../../../src/platform/copy-store.ts';
import { readTables } from '../../../src/store/copy/copied-database.ts';
import { LiveJobs } from '../../../src/store/live/live-jobs.ts';
import { readPostgresUrl } from '../../../src/store/postgres/connection-url.ts';
import { openPostgres, openPostgresStore } from '../../../src/store/postgres/postgres.ts';
import { Session } from '../../../src/store/postgres/session.ts';
import { readOperation } from '../../../src/store/sql/sql-store.ts';
import { SqlTables } from '../../../src/store/sql/sql-tables.ts';
import type { Store, StoredJob } from '../../../src/store/store.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { createRandom } from '../../support/random.ts';
import { play } from '../../support/store/random-operations.ts';
import {
  addEndpoint,
  addJobs,
  ENDPOINT,
  INPUT,
  makeJob,
  makeLease,
} from '../../support/store/stored-jobs.ts';
import { describeStore } from './store.ts';

const LIMITS = ['idle_session_timeout', 'lock_timeout', 'statement_timeout'];
const HOSTILE = {
  ...Object.fromEntries(LIMITS.map((name) => [name, "'1s'"])),
  idle_in_transaction_session_timeout: "'1s'",
  bytea_output: 'escape',
  search_path: 'nowhere, pg_catalog',
  DateStyle: "'German, DMY'",
  IntervalStyle: 'iso_8601',
  TimeZone: "'Asia/Kathmandu'",
  client_encoding: 'LATIN1',
  extra_float_digits: '-15',
  standard_conforming_strings: 'off',
  backslash_quote: 'off',
  array_nulls: 'off',
  transform_null_equals: 'on',
  quote_all_identifiers: 'on',
  default_transaction_isolation: 'serializable',
  default_transaction_deferrable: 'on',
  synchronous_commit: 'off',
  session_replication_role: 'replica',
  row_security: 'off',
  exit_on_error: 'on',
  plan_cache_mode: 'force_generic_plan',
  enable_indexscan: 'off',
  enable_nestloop: 'off',
  work_mem: "'64kB'",
};

const isLeftOut = leaveOutWithoutPostgres('test/conformance/store/postgres-store.test.ts');

describe.skipIf(isLeftOut)('on a Postgres server', () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await PostgresServer.start();
    const settings = Object.entries(HOSTILE).map(([name, value]) => `set ${name} = ${value}`);
    await server.query(`create role hostile superuser login;
      ${settings.map((each) => `alter role hostile ${each};`).join(' ')}`);
  });
  afterAll(() => server?.stop());

  /** A role may have any settings; so may a server and a database. */
  const openHostile = async (): Promise<Store> => {
    await server.empty('public');
    return openPostgresStore({ target: readPostgresUrl(server.url(undefined, 'hostile')) });
  };
  describeStore('Postgres with hostile settings', openHostile);

  it('works whatever the role has set, including timeouts', async () => {
    const target = readPostgresUrl(`${server.url(undefined, 'hostile')}&search_path=public`);
    const session = await Session.connect({
      ...{ target, connectTimeoutMs: 10_000, statementTimeoutMs: 7_000 },
    });
    const rows = await session.query({
      sql: 'select name, setting from pg_settings where name in (?, ?, ?, ?, ?)',
      params: [...LIMITS, 'search_path', 'bytea_output'],
    });
    await session.end();
    expect(Object.fromEntries(rows.map(({ name, setting }) => [name, setting]))).toEqual({
      ...{ bytea_output: 'hex', search_path: 'public', idle_session_timeout: '0' },
      ...{ lock_timeout: '7000', statement_timeout: '7000' },
    });
  });

  it('finds jobs by their keys although the first plans were made for empty tables', async () => {
    const store = await openPostgresStore({
      target: readPostgresUrl(`${server.url()}&search_path=plans`),
    });
    await addEndpoint(store);
    const update = (id: string, attempt: number) =>
      store.write((tx) => {
        const before = makeJob({ id, attempt });
        return tx.saveJob(before, { ...before, attempt: attempt + 1 }, 0);
      });
    const jobs = Array.from({ length: 3_000 }, (_, i) => makeJob({ id: `j${i}`, position: i }));
    await addJobs(store, jobs.slice(0, 1));
    // After five times the server keeps the plan.
    for (let i = 0; i < 10; i++) await update('j0', i);
    await addJobs(store, jobs.slice(1));
    await Promise.all(jobs.slice(1).map(({ id }) => update(id, 0)));
    await store.close();
    const read = await server.query(
      `select coalesce(sum(idx_tup_read), 0) from pg_stat_user_indexes
        where schemaname = 'plans' and relname = 'job'`,
    );
    expect(Number(read)).toBeGreaterThan(3_000);
    expect(Number(read)).toBeLessThan(30_000);
  });

  it('is not copied if it has several shards, or onto a database of nodes', async () => {
    const url = (schema: string) => `${server.url()}&search_path=${schema}`;
    for (const schema of ['sharded', 'joined']) {
      await (await openPostgresStore({ target: readPostgresUrl(url(schema)) })).close();
    }
    const copy = (from: string, to: string) =>
      copyStore({
        ...{ from: url(from), to: url(to), batchRows: 9 },
        onProgress: () => {},
        signal: new AbortController().signal,
      });
    await server.query(`insert into joined.shard (id) values (0);
      insert into joined.node (id, url, version, renewed_at, until) values ('n', 'u', 1, 1, 1);
      insert into sharded.endpoint (id, settings, created_at, shard) values ('e', '{}', 1, 7)`);
    await expect(copy('sharded', 'joined')).rejects.toThrow('to: is not empty: node, shard have');
    await expect(copy('joined', 'fresh')).resolves.toBeDefined();
    await expect(copy('sharded', 'copied')).resolves.toBeDefined();
    expect(await server.query('select shard from copied.endpoint')).toBe('7');
    await server.query('insert into sharded.shard (id) values (0), (1)');
    await expect(copy('sharded', 'fresh')).rejects.toThrow(/^from: has 2 shards, .*pg_dump/);
  });

  it('has the tables of SQLite with the same columns and keys, because a copy reads only those', async () => {
    const target = readPostgresUrl(`${server.url()}&search_path=shapes`);
    await (await openPostgresStore({ target })).close();
    for (const { columns, key, name } of await readTables()) {
      const found = await server.query(`select
        (select string_agg(column_name, ',' order by column_name::text collate "C")
          from information_schema.columns where table_schema = 'shapes' and table_name = '${name}')
        || '; ' || (select string_agg(a.attname, ',' order by array_position(i.indkey::int2[], a.attnum))
          from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any(i.indkey)
          where i.indrelid = 'shapes.${name}'::regclass and i.indisprimary)`);
      expect(`${name}: ${found}`).toBe(`${name}: ${columns}; ${key}`);
    }
  });

  it('writes the rows of many jobs in few statements', async () => {
    await server.empty('public');
    const target = readPostgresUrl(server.url());
    const { driver, store } = await openPostgres({ target });
    onTestFinished(() => store.close());
    await addEndpoint(store);
    await addEndpoint(store, 'other');
    const text = 'NUL \0, escape \x10, "quotes", back\\slash, {brace}, 💡';
    const jobs = Array.from({ length: 100 }, (_, i) =>
      makeJob({
        ...{ id: `j${i}`, position: 2 ** 42 + i, endpointId: i % 4 === 0 ? 'other' : ENDPOINT },
        webhook: i % 3 === 0 ? text : null,
        executionMs: i % 5 === 0 ? i + 0.25 : null,
        idempotencyKey: i % 7 === 0 ? `${text}${i}` : null,
      }),
    );
    const before = driver.commits;
    await Promise.all(jobs.map((job) => store.write((tx) => tx.insertJob(job, INPUT))));
    const changed = jobs.map((job, i) => ({
      ...job,
      ...(i % 2 === 0 ? { progress: text, dueAt: -1 - i } : { lease: makeLease({ takeId: text }) }),
    }));
    await Promise.all(
      changed.map((job, i) => store.write((tx) => tx.saveJob(jobs[i] ?? job, job, 0))),
    );
    const { statements, transactions } = driver.commits;
    // A statement for the added jobs, two for the changed ones, one for the counters.
    expect(statements - before.statements).toBe(4);
    expect(transactions - before.transactions).toBe(2);
    await store.close();
    const again = await openPostgresStore({ target });
    const read = await Promise.all(changed.map((job) => again.read((tx) => tx.job(job))));
    expect(read).toEqual(changed);
    const inputs = await Promise.all(jobs.map((job) => again.read((tx) => tx.input(job))));
    expect(inputs).toEqual(jobs.map(() => INPUT));
    const endpoints = await again.read((tx) => tx.endpoints());
    expect(endpoints.map(({ inQueue }) => inQueue)).toEqual([75, 25]);
    await again.close();
  });

  it('writes payloads, chunks and logs of many jobs in few statements', async () => {
    await server.empty('public');
    const { driver, store } = await openPostgres({ target: readPostgresUrl(server.url()) });
    onTestFinished(() => store.close());
    await addEndpoint(store);
    // Jobs with a lease are in memory: a read would come after the rows that are held back.
    const jobs = Array.from({ length: 40 }, (_, i) =>
      makeJob({ id: `j${i + 10}`, position: i, lease: makeLease() }),
    );
    const bytes = (job: StoredJob, size: number) => new TextEncoder().encode(job.id.repeat(size));
    const before = driver.commits;
    await Promise.all(jobs.map((job) => store.write((tx) => tx.insertJob(job, bytes(job, 1_000)))));
    const report = (job: StoredJob, first: number) =>
      store.write((tx) => {
        const now = tx.job(job) ?? job;
        tx.saveJob(now, { ...now, outputKind: 'value' }, 0);
        tx.appendLog(job, first, bytes(job, 2));
        const batch = { first, sizes: [9], bytes: bytes(job, 9) };
        tx.appendChunks({ ...job, attempt: 1 }, batch);
        tx.putOutput(job, bytes(job, 2_000));
      });
    const results = await Promise.allSettled(jobs.map((job) => report(job, 0)));
    expect(results.filter(({ status }) => status === 'rejected')).toEqual([]);
    // 40 rows of a table are two statements; besides, each commit has one for the jobs, and one for the counters.
    expect(driver.commits.statements - before.statements).toBe(2 + 2 + 3 * 2 + 1);
    // The rows of the operation at fault exist already.
    const again = await Promise.allSettled(
      jobs.slice(7, 10).map((job, i) => report(job, i === 1 ? 0 : 100)),
    );
    expect(again.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    const read = await Promise.all(
      jobs.map((job) =>
        store.read((tx) => {
          const range = { ...job, attempt: 1, from: 0, maxBytes: 1_000 };
          const [chunks] = tx.chunks(range);
          const log = new Uint8Array(tx.log({ ...range, maxBytes: 6 }));
          return [tx.input(job), tx.output(job), chunks?.bytes, log];
        }),
      ),
    );
    expect(read).toEqual(jobs.map((job) => [1_000, 2_000, 9, 2].map((size) => bytes(job, size))));
  });

  describe('random operations while commits and statements fail', () => {
    const faults = { commits: 0, statements: 0, random: () => 1, isOn: false };
    const { execute, run } = Session.prototype;

    beforeAll(() => {
      Session.prototype.execute = function (sql) {
        const isStruck = faults.isOn && sql === 'commit' && faults.random() < 0.08;
        if (!isStruck) return execute.call(this, sql);
        faults.commits++;
        return execute.call(this, 'rollback');
      };
      Session.prototype.run = function (statement, params) {
        // The failure of the fence would end the store.
        const mayFail = !statement.isRead && !statement.text.startsWith('update last_commit');
        const isStruck = faults.isOn && mayFail && faults.random() < 0.01;
        if (!isStruck) return run.call(this, statement, params);
        faults.statements++;
        return execute.call(this, 'select 1 / 0');
      };
    });
    afterAll(() => {
      Object.assign(Session.prototype, { execute, run });
    });

    it.each([1, 2, 3])('keeps memory equal to the database, seed %i', async (seed) => {
      faults.random = createRandom(seed + 7777);
      await server.empty('public');
      const live = { windowJobs: 3, readyJobs: 5, endedJobs: 2 };
      const { driver, store } = await openPostgres({ target: readPostgresUrl(server.url()), live });
      await play({
        ...{ store, seed, turns: 25 },
        readFresh: (operation) => {
          const tables = new SqlTables();
          return driver.read(() => readOperation(tables, new LiveJobs(tables), operation));
        },
        isExpected: (error) => /unique|StoreUnavailable|division by zero/.test(String(error)),
        setFaults: (isOn) => {
          faults.isOn = isOn;
        },
      });
    });

    it('covers commits and statements that fail', () => {
      expect(faults.commits).toBeGreaterThan(0);
      expect(faults.statements).toBeGreaterThan(0);
    });
  });
});
