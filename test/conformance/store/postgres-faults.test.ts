// A store on a Postgres server whose connection or server fails.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { silentLog } from '../../../src/base/log.ts';
import { openPostgresData } from '../../../src/platform/postgres-store.ts';
import { readPostgresUrl } from '../../../src/store/postgres/connection-url.ts';
import { openPostgresStore, type PostgresOptions } from '../../../src/store/postgres/postgres.ts';
import { type Store, StoreUnavailableError } from '../../../src/store/store.ts';
import { PostgresProxy } from '../../support/network/postgres-proxy.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { addEndpoint, addJobs, ENDPOINT, INPUT, makeJob } from './stored-jobs.ts';

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

  it('keeps what it has acknowledged when the server crashes', async () => {
    const acknowledged = new Set<string>();
    const tried = new Set<string>();
    let isOver = false;
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
    await server.crash();
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
  });

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
      expect(onLost).toHaveBeenCalledOnce();
      await expect(store.read((tx) => tx.endpoints())).rejects.toThrow(StoreUnavailableError);
      expect(await server.query('select count(*) from job')).toBe('0');
    },
  );

  describe('is refused with a clear error', () => {
    const refuse = (url: string, password?: string) =>
      openPostgresData({ url, password, log: silentLog, onLost: undefined }).then(
        () => 'opened',
        (error: unknown) => String(error),
      );

    it('if no server listens', async () => {
      expect(await refuse('postgres://127.0.0.1:1/jobs')).toBe(
        'PlatformOptionError: store: postgres://postgres@127.0.0.1:1/jobs cannot be used: ' +
          'no server listens there; start it, or check host and port (ECONNREFUSED)',
      );
    });

    it('if the database does not exist', async () => {
      expect(await refuse(server.url('none'))).toContain('the database does not exist; create it');
    });

    it('if the password is missing or wrong', async () => {
      await server.addUser('ada', 'right-one');
      const url = server.url().replace('postgres@', 'ada@');
      expect(await refuse(url)).toContain('the server asks for a password; give one');
      const wrong = await refuse(url, 'wrong-one');
      expect(wrong).toContain('the server refuses the password; check it (28P01)');
      expect(wrong).not.toContain('wrong-one');
      const own = `${url}&search_path=own`;
      expect(await refuse(own, 'right-one')).toContain('the user may not create the schema');
    });

    it('if the server has no connection left', async () => {
      await server.query('create role bob login connection limit 0');
      const url = server.url().replace('postgres@', 'bob@');
      expect(await refuse(url)).toContain('the server has no connection left');
    });

    it('if the database is read-only', async () => {
      const url = await server.createDatabase();
      const name = new URL(url).pathname.slice(1);
      await server.query(`alter database ${name} set default_transaction_read_only = on`);
      expect(await refuse(url)).toContain('the database is read-only; use the primary server');
    });

    it('if a newer version has written the database', async () => {
      const url = `${server.url()}&search_path=newer`;
      const { store: first } = await openPostgresData({
        ...{ url, password: undefined, log: silentLog, onLost: undefined },
      });
      await first.close();
      await server.query('update newer.schema_version set version = 999');
      expect(await refuse(url)).toContain('The database has schema version 999');
    });

    it('if TLS is required and the server has none', async () => {
      const url = server.url().replace('sslmode=disable', 'sslmode=require');
      expect(await refuse(url)).toContain('The server does not support SSL connections');
    });
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
});
