// A store on a Postgres server whose connection or server fails.
import { randomBytes } from 'node:crypto';
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  it,
  onTestFinished,
  vi,
} from 'vitest';
import { readPostgresUrl } from '../../../src/store/postgres/connection-url.ts';
import { DatabaseSize } from '../../../src/store/postgres/database.ts';
import {
  openPostgres,
  openPostgresStore,
  type PostgresOptions,
} from '../../../src/store/postgres/postgres.ts';
import { PostgresReader } from '../../../src/store/postgres/postgres-tables.ts';
import { type Store, StoreUnavailableError } from '../../../src/store/store.ts';
import { PostgresProxy } from '../../support/network/postgres-proxy.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { addEndpoint, addJobs, ENDPOINT, INPUT, makeJob } from '../../support/store/stored-jobs.ts';

const isLeftOut = leaveOutWithoutPostgres('test/conformance/store/postgres-faults.test.ts');

describe.skipIf(isLeftOut)('a store on Postgres', () => {
  let server: PostgresServer;
  let proxy: PostgresProxy;
  let store: Store;
  const onLost = vi.fn();
  const onReconnect = vi.fn();
  const opened: Store[] = [];

  beforeAll(async () => {
    server = await PostgresServer.start();
    proxy = await PostgresProxy.start(server.port);
  });
  afterAll(async () => {
    await proxy?.close();
    await server?.stop();
  });

  async function open(options: Partial<PostgresOptions> = {}): Promise<Store> {
    const target = readPostgresUrl(proxy.redirect(server.url()));
    const limits = { lockWaitMs: 200, waitMs: 20_000, statementTimeoutMs: 20_000 };
    const another = await openPostgresStore({ target, onLost, onReconnect, ...limits, ...options });
    opened.push(another);
    return another;
  }

  beforeEach(async () => {
    onLost.mockReset();
    onReconnect.mockReset();
    await server.empty('public');
    store = await open();
    await addEndpoint(store);
  });
  afterEach(async () => {
    proxy.fault = undefined;
    proxy.isClosed = false;
    proxy.delayMs = 0;
    await Promise.all(opened.splice(0).map((each) => each.close()));
  });

  const add = (id: string) => store.write((tx) => tx.insertJob(makeJob({ id }), INPUT));
  const listIds = async () => {
    const stored = await server.query('select id from job order by id');
    const live = await store.read((tx) => tx.queuedJobs(ENDPOINT, 1_000));
    const endpoint = await store.read((tx) => tx.endpoint(ENDPOINT));
    const ids = live.map(({ id }) => id).toSorted();
    expect(stored).toBe(ids.join('\n'));
    expect(endpoint?.inQueue).toBe(ids.length);
    return ids;
  };

  it('answers a commit whose answer was lost', async () => {
    proxy.fault = 'after';
    const added = Promise.all([add('a'), add('b')]);
    const later = add('c');
    await added;
    await later;
    expect([proxy.struck > 0, onReconnect.mock.calls.length]).toEqual([true, 1]);
    expect(await listIds()).toEqual(['a', 'b', 'c']);
  });

  it('undoes a commit that the server never got', async () => {
    await add('a');
    proxy.fault = 'before';
    await expect(add('b')).rejects.toThrow(StoreUnavailableError);
    await add('c');
    expect(await listIds()).toEqual(['a', 'c']);
    expect(onLost).not.toHaveBeenCalled();
  });

  it('ends the transaction of a connection that froze before its commit', async () => {
    await store.close();
    store = await open({ statementTimeoutMs: 500 });
    proxy.fault = 'frozen';
    await expect(add('a')).rejects.toThrow(StoreUnavailableError);
    await add('b');
    expect(await listIds()).toEqual(['b']);
  });

  it('answers a commit on a connection that froze before the answer', async () => {
    await store.close();
    store = await open({ statementTimeoutMs: 300 });
    proxy.fault = 'unanswered';
    await Promise.all([add('a'), add('b')]);
    await add('c');
    expect(await listIds()).toEqual(['a', 'b', 'c']);
    expect(onReconnect).toHaveBeenCalledOnce();
  });

  it('replaces a connection that froze between transactions', async () => {
    await store.close();
    store = await open({ statementTimeoutMs: 300 });
    await add('a');
    proxy.freeze();
    const read = store.read((tx) => tx.input({ endpointId: ENDPOINT, id: 'a' }));
    await expect(read).rejects.toThrow('cannot be used now: the server does not answer any more');
    await vi.waitFor(() => add('b'));
    expect(await listIds()).toEqual(['a', 'b']);
  });

  it('loses nothing on a slow connection', async () => {
    await store.close();
    proxy.delayMs = 40;
    store = await open();
    const ids = Array.from({ length: 40 }, (_, n) => `j${n + 10}`);
    await Promise.all(ids.map((id) => add(id)));
    proxy.fault = 'after';
    await add('j50');
    expect(await listIds()).toEqual([...ids, 'j50']);
  });

  it('goes on after a cut between transactions', async () => {
    await add('a');
    proxy.cut();
    await vi.waitFor(() => add('b'));
    expect(await listIds()).toEqual(['a', 'b']);
  });

  it('rejects operations after a bounded wait while the server is away, and holds an unknown commit', async () => {
    await store.close();
    store = await open({ waitMs: 50 });
    proxy.isClosed = true;
    proxy.fault = 'after';
    const held = add('a');
    await vi.waitFor(() => expect(proxy.fault).toBeUndefined());
    await expect(add('b')).rejects.toThrow(StoreUnavailableError);
    await expect(store.read((tx) => tx.endpoints())).rejects.toThrow('cannot be used now');
    proxy.isClosed = false;
    await held;
    await vi.waitFor(() => add('c'));
    expect(await listIds()).toEqual(['a', 'c']);
  });

  it('closes while the server is away', async () => {
    proxy.isClosed = true;
    proxy.fault = 'after';
    const added = add('a').catch((error: unknown) => error);
    await vi.waitFor(() => expect(proxy.fault).toBeUndefined());
    await store.close();
    expect(await added).toBeInstanceOf(StoreUnavailableError);
  });

  it.each(['crash', 'kill'] as const)(
    'keeps what it has acknowledged after a %s of the server',
    async (end) => {
      const acknowledged = new Set<string>();
      const tried = new Set<string>();
      let isOver = false;
      onTestFinished(() => {
        isOver = true;
      });
      const submit = async (name: string) => {
        for (let i = 0; !isOver; i++) {
          const id = `${name}-${i}`;
          tried.add(id);
          await add(id).then(
            () => acknowledged.add(id),
            () => undefined,
          );
        }
      };
      const submitting = ['a', 'b', 'c'].map(submit);
      await vi.waitFor(() => expect(acknowledged.size).toBeGreaterThan(30));
      await server[end]();
      await server.resume();
      const before = acknowledged.size;
      await vi.waitFor(() => expect(acknowledged.size).toBeGreaterThan(before + 30), {
        timeout: 30_000,
      });
      isOver = true;
      await Promise.all(submitting);
      const ids = new Set(await listIds());
      expect([...acknowledged].filter((id) => !ids.has(id))).toEqual([]);
      expect([...ids].filter((id) => !acknowledged.has(id))).toEqual([]);
      expect(ids.size).toBeLessThanOrEqual(tried.size);
    },
  );

  it('excludes a second platform, and lets it in after its end', async () => {
    await expect(open()).rejects.toThrow(
      /another platform uses postgres:\/\/postgres@127\.0\.0\.1:\d+\/postgres \(schema public\)/,
    );
    await add('a');
    await store.close();
    store = await open();
    expect(await listIds()).toEqual(['a']);
  });

  it.each(['in a transaction', 'between transactions'])(
    'is lost if another program writes commits %s',
    async (when) => {
      await server.query('update last_commit set number = number + 7');
      if (when === 'between transactions') proxy.cut();
      await expect(add('a')).rejects.toThrow(StoreUnavailableError);
      // The connection was lost during a query: the number is read when there is another connection.
      await vi.waitFor(() => expect(onLost).toHaveBeenCalledOnce(), { timeout: 30_000 });
      await expect(store.read((tx) => tx.endpoints())).rejects.toThrow(StoreUnavailableError);
      expect(await server.query('select count(*) from job')).toBe('0');
    },
  );

  it('measures its tables once a minute, and not while the server is away', async () => {
    await store.close();
    const target = readPostgresUrl(proxy.redirect(server.url()));
    const measured = await openPostgres({ target });
    opened.push(measured.store);
    let now = 0;
    const size = new DatabaseSize(measured.driver, () => now);
    const first = await size.read();
    expect(first).toBeGreaterThan(100_000);
    const input = randomBytes(200_000);
    await measured.store.write((tx) => tx.insertJob(makeJob({ id: 'large' }), input));
    expect(await size.read()).toBe(first);
    now += 60_000;
    const second = await size.read();
    expect(second).toBeGreaterThan(Number(first) + 200_000);
    proxy.isClosed = true;
    proxy.cut();
    await vi.waitFor(() => expect(measured.driver.fault).toBeDefined());
    now += 60_000;
    expect(await size.read()).toBe(second);
  });

  it('finds the operation at fault among many', async () => {
    await addJobs(store, [makeJob({ id: 'j7', idempotencyKey: 'k' })]);
    const results = await Promise.allSettled(
      Array.from({ length: 100 }, (_, i) =>
        store.write((tx) => tx.insertJob(makeJob({ id: `j${i}` }), INPUT)),
      ),
    );
    const refused = results.flatMap(({ status }, i) => (status === 'rejected' ? [i] : []));
    expect(refused).toEqual([7]);
    expect(await listIds()).toHaveLength(100);
  });

  it('can be read, and not written, by a process that does not own it', async () => {
    const target = readPostgresUrl(proxy.redirect(server.url()));
    const limits = { connectTimeoutMs: 10_000, statementTimeoutMs: 10_000 };
    const reader = new PostgresReader({ target, ...limits });
    opened.push(reader);
    const list = async () => (await reader.read((tx) => tx.endpoints())).map(({ id }) => id);
    expect(await list()).toEqual([ENDPOINT]);
    await addEndpoint(store, 'other');
    expect(await list()).toEqual([ENDPOINT, 'other']);
    proxy.cut();
    await expect.poll(() => list().catch(() => [])).toHaveLength(2);
    await expect(reader.write()).rejects.toThrow(StoreUnavailableError);
    await reader.close();
    await expect(list()).rejects.toThrow('The store is closed');
  });
});
