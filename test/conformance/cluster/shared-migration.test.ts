// Nodes of several versions on one Postgres database. The later ones have a migration more than this program.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { Membership } from '../../../src/cluster/membership.ts';
import { readPostgresUrl } from '../../../src/store/postgres/connection-url.ts';
import { openPostgres, openPostgresStore } from '../../../src/store/postgres/postgres.ts';
import { findOldest, MIGRATIONS, type Migration } from '../../../src/store/postgres/schema.ts';
import { SchemaTooNewError } from '../../../src/store/schema-migration.ts';
import type { Reader, Store } from '../../../src/store/store.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { addEndpoint, INPUT, makeJob } from '../../support/store/stored-jobs.ts';

const isLeftOut = leaveOutWithoutPostgres('test/conformance/cluster/shared-migration.test.ts');

const THIS = MIGRATIONS.length;
const NEXT = THIS + 1;

/** All tables that statements read. */
const TABLES = [
  ...[
    'api_key',
    'delivery',
    'delivery_record',
    'endpoint',
    'job',
    'job_chunk',
    'job_input',
    'job_log',
  ],
  ...[
    'job_output',
    'last_commit',
    'node',
    'resource',
    'schema_version',
    'shard',
    'unused_payload',
    'worker',
  ],
];
const ADD_COLUMNS = TABLES.map((name) => `alter table ${name} add column later bigint`).join(';');

const withStep = (oldest: number, sql = ADD_COLUMNS): readonly Migration[] => [
  ...MIGRATIONS,
  { sql, oldest },
];
const rolling = withStep(THIS);
const breaking = withStep(NEXT);

describe.skipIf(isLeftOut)('a version with one migration more', () => {
  let server: PostgresServer;
  let url: string;
  const joined: Membership[] = [];
  const stores: Store[] = [];

  beforeAll(async () => {
    server = await PostgresServer.start();
  });
  afterAll(() => server?.stop());
  beforeEach(async () => {
    url = await server.createDatabase();
  });
  afterEach(async () => {
    await Promise.all(stores.splice(0).map((store) => store.close()));
    await Promise.all(joined.splice(0).map((each) => each.leave()));
    onMigrated.mockClear();
  });

  const onEnd = vi.fn();
  const onMigrated = vi.fn();

  async function join(id: string, migrations = MIGRATIONS, joinWaitMs = 300) {
    const member = await Membership.open({
      ...{
        id,
        url: `http://${id}`,
        shards: 4,
        migrations,
        onFailure: () => {},
        onEnd,
        onMigrated,
      },
      target: readPostgresUrl(url),
      timings: { leaseMs: 60_000, renewMs: 20, pollMs: 20, freeLockMs: 700, joinWaitMs },
    });
    joined.push(member);
    return member;
  }

  /** As the leader does. */
  async function lead(): Promise<Store> {
    const { store } = await openPostgres({ target: readPostgresUrl(url), takeOver: true });
    stores.push(store);
    return store;
  }

  const version = async () => {
    const database = new URL(url).pathname.slice(1);
    return server.query('select version, oldest from schema_version', database);
  };

  describe('that the version before may run beside', () => {
    it('migrates while a leader of the version before reads and writes', async () => {
      const a = await join('a');
      // The database was new.
      expect(onMigrated).not.toHaveBeenCalled();
      const leader = await lead();
      await addEndpoint(leader);
      await leader.write((tx) => tx.insertJob(makeJob({ id: 'before' }), INPUT));
      await readAll(leader);
      const b = await join('b', rolling);
      expect(await version()).toBe(`${NEXT}|${THIS}`);
      await leader.write((tx) => tx.insertJob(makeJob({ id: 'after' }), INPUT));
      // Prepared statements go on although their tables have a column more.
      expect(await readAll(leader)).toBe(2);
      expect((await a.refresh()).nodes.map((node) => [node.version, node.isLive])).toEqual([
        [THIS, true],
        [NEXT, true],
      ]);
      expect([a.isServing, b.isServing]).toEqual([true, true]);
    });

    it('lets the version before join and open the schemas of shards', async () => {
      await join('b', rolling);
      await join('a');
      const store = await lead();
      await addEndpoint(store);
      expect(await readAll(store)).toBe(0);
    });

    it('migrates once, although many nodes start at the same time', async () => {
      await join('a');
      await Promise.all(['b', 'c', 'd'].map((id) => join(id, rolling, 20_000)));
      expect(await version()).toBe(`${NEXT}|${THIS}`);
      const migration = { from: THIS, to: NEXT, durationMs: expect.any(Number) };
      expect(onMigrated.mock.calls).toEqual([[migration]]);
    });

    it('tries again if the table of a step is in use for long', async () => {
      await join('a');
      const leader = await lead();
      await addEndpoint(leader);
      const database = new URL(url).pathname.slice(1);
      const reading = server.query('begin; select from job; select pg_sleep(4)', database);
      await join('b', rolling, 30_000);
      await reading;
      expect(await version()).toBe(`${NEXT}|${THIS}`);
    });
  });

  describe('that no earlier version may run beside', () => {
    it('is refused while a node of an earlier version lives, and changes nothing', async () => {
      const a = await join('a');
      await expect(join('b', breaking)).rejects.toThrow(
        `this version changes the schema to version ${NEXT}, which versions before ${NEXT} cannot use, and running nodes ` +
          `have version ${THIS}; stop these nodes, then start this version`,
      );
      expect(await version()).toBe(`${THIS}|${findOldest()}`);
      expect((await a.refresh()).nodes).toHaveLength(1);
    });

    it('starts once these nodes have left', async () => {
      const a = await join('a');
      const joining = join('b', breaking, 20_000);
      await a.leave();
      expect((await joining).isServing).toBe(true);
      expect(await version()).toBe(`${NEXT}|${NEXT}`);
    });

    it('keeps out earlier versions afterwards', async () => {
      const b = await join('b', breaking);
      await expect(join('a')).rejects.toThrow(SchemaTooNewError);
      await expect(lead()).rejects.toThrow(`The database has schema version ${NEXT}`);
      await b.leave();
    });

    it('keeps out a node of an earlier version that was counted dead meanwhile', async () => {
      const a = await join('a');
      const database = new URL(url).pathname.slice(1);
      // As if it had been paused for longer than its lease, while another version migrated.
      await server.query(
        `begin; update node set until = 0; update schema_version set version = ${NEXT}, oldest = ${NEXT}; commit`,
        database,
      );
      await expect.poll(() => onEnd.mock.calls, { timeout: 20_000 }).toHaveLength(1);
      expect(onEnd).toHaveBeenCalledWith(expect.any(SchemaTooNewError));
      expect(a.isServing).toBe(false);
      await expect(a.refresh()).rejects.toThrow(SchemaTooNewError);
      expect(await server.query('select count(*) from node where until > 0', database)).toBe('0');
    });
  });

  it('may take longer to migrate a shard than any statement afterwards', async () => {
    await join('a');
    const database = new URL(url).pathname.slice(1);
    // The schema of a shard that nobody has opened cannot be created meanwhile.
    const lock = 'lock table pg_catalog.pg_namespace in share mode';
    const locked = server.query(`begin; ${lock}; select pg_sleep(2); commit`, database);
    const locks = `select count(*) from pg_locks where mode = 'ShareLock' and relation = 'pg_namespace'::regclass`;
    await expect.poll(() => server.query(locks, database), { timeout: 20_000 }).toBe('1');
    const target = { ...readPostgresUrl(url), schema: 'public_1' };
    const { store } = await openPostgres({ target, takeOver: true, statementTimeoutMs: 300 });
    stores.push(store);
    await locked;
    await addEndpoint(store);
    expect(await readAll(store)).toBe(0);
  });

  it('waits for a platform that is no node', async () => {
    const store = await openPostgresStore({ target: readPostgresUrl(url) });
    stores.push(store);
    await expect(join('b', rolling)).rejects.toThrow('another platform uses');
    await store.close();
    await join('b', rolling);
    expect(await version()).toBe(`${NEXT}|${THIS}`);
  });
});

/** @returns the number of queued jobs */
async function readAll(store: Store): Promise<number> {
  const read = <T>(operation: (tx: Reader) => T) => store.read(operation);
  const page = { userId: undefined, parent: undefined, before: undefined, limit: 9 };
  await read((tx) => tx.endpoint('e'));
  await read((tx) => tx.workers());
  await read((tx) => tx.worker('e', 'w'));
  await read((tx) => tx.keys());
  await read((tx) => tx.keysOfUser('owner'));
  await read((tx) => tx.keyByHash('hash'));
  await read((tx) => tx.resource({ kind: 'pod', id: 'p' }));
  await read((tx) => tx.resources({ kind: 'pod', ...page }));
  await read((tx) => tx.unusedPayloads(9));
  await read((tx) => tx.deliveriesOf('e', 9));
  await read((tx) => tx.dueDeliveries({ userId: 'owner', receiver: 'r', now: 0, limit: 9 }));
  const endpoints = await read((tx) => tx.endpoints());
  const counts = endpoints.map(({ inQueue }) => inQueue);
  return counts.reduce((sum, count) => sum + count, 0);
}
