import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { copyStore } from '../../../src/platform/copy-store.ts';
import { readPostgresUrl } from '../../../src/store/postgres/connection-url.ts';
import { openPostgresStore } from '../../../src/store/postgres/postgres.ts';
import { Session } from '../../../src/store/postgres/session.ts';
import type { Store } from '../../../src/store/store.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { createRandom } from '../../support/random.ts';
import { play } from '../../unit/store/live/random-operations.ts';
import { describeStore } from './store.ts';
import { addEndpoint, addJobs, makeJob } from './stored-jobs.ts';

const isLeftOut = leaveOutWithoutPostgres('test/conformance/store/postgres-store.test.ts');

describe.skipIf(isLeftOut)('on a Postgres server', () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await PostgresServer.start();
  });
  afterAll(() => server?.stop());

  const open = async (live = {}): Promise<Store> => {
    await server.empty('public');
    return openPostgresStore({ target: readPostgresUrl(server.url()), live });
  };
  describeStore('Postgres', () => open());

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
        const isStruck = faults.isOn && !statement.isRead && faults.random() < 0.004;
        if (!isStruck) return run.call(this, statement, params);
        faults.statements++;
        return execute.call(this, 'select 1 / 0');
      };
    });
    afterAll(() => {
      Object.assign(Session.prototype, { execute, run });
    });

    it.each([1, 2, 3])('memory equals the database, seed %i', async (seed) => {
      faults.random = createRandom(seed + 7777);
      await play({
        store: await open({ windowJobs: 3, readyJobs: 5, endedJobs: 2 }),
        ...{ seed, turns: 25 },
        isExpected: (error) => /unique|StoreUnavailable|division by zero/.test(String(error)),
        setFaults: (isOn) => {
          faults.isOn = isOn;
        },
      });
    });

    it('some commits and some statements failed', () => {
      expect(faults.commits).toBeGreaterThan(0);
      expect(faults.statements).toBeGreaterThan(0);
    });
  });
});
