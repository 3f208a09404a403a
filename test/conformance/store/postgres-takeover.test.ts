// A store on Postgres that another process takes over, as nodes do with shards.
import { Client } from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { readPostgresUrl } from '../../../src/store/postgres/connection-url.ts';
import { ShardLostError } from '../../../src/store/postgres/database.ts';
import {
  openPostgres,
  type PostgresDriver,
  type PostgresOptions,
} from '../../../src/store/postgres/postgres.ts';
import { type Store, StoreUnavailableError } from '../../../src/store/store.ts';
import { PostgresProxy } from '../../support/network/postgres-proxy.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { addEndpoint, ENDPOINT, INPUT, makeJob } from '../../support/store/stored-jobs.ts';

/** Only a guard against hanging: the default of 1 s is too short on a loaded machine. */
const waitFor = <T>(check: () => T | Promise<T>) => vi.waitFor(check, { timeout: 20_000 });

const isLeftOut = leaveOutWithoutPostgres('test/conformance/store/postgres-takeover.test.ts');

describe.skipIf(isLeftOut)('a store on Postgres that another process takes over', () => {
  let server: PostgresServer;
  let proxy: PostgresProxy;
  let first: Store;
  let driver: PostgresDriver;
  let isOwner: boolean;
  const onLost = vi.fn();
  const mayReturn = vi.fn(async () => isOwner);
  const opened: Store[] = [];

  beforeAll(async () => {
    server = await PostgresServer.start();
    proxy = await PostgresProxy.start(server.port);
  });
  afterAll(async () => {
    await proxy?.close();
    await server?.stop();
  });

  async function open(url: string, options: Partial<PostgresOptions>) {
    const parts = await openPostgres({ target: readPostgresUrl(url), takeOver: true, ...options });
    opened.push(parts.store);
    return parts;
  }

  const takeOver = async () => (await open(server.url(), { lockWaitMs: 5_000 })).store;
  const add = (store: Store, id: string) =>
    store.write((tx) => tx.insertJob(makeJob({ id }), INPUT));
  const listIds = async (store: Store) =>
    (await store.read((tx) => tx.queuedJobs(ENDPOINT, 99))).map(({ id }) => id).toSorted();

  beforeEach(async () => {
    isOwner = true;
    onLost.mockReset();
    mayReturn.mockReset().mockImplementation(async () => isOwner);
    await server.empty('public');
    const limits = { lockWaitMs: 200, waitMs: 20_000, statementTimeoutMs: 20_000 };
    const url = proxy.redirect(server.url());
    ({ store: first, driver } = await open(url, { ...limits, onLost, mayReturn }));
    await addEndpoint(first);
    await add(first, 'a');
  });
  afterEach(async () => {
    proxy.fault = undefined;
    proxy.cut();
    await Promise.all(opened.splice(0).map((each) => each.close()));
  });

  function expectLost(): void {
    expect(onLost).toHaveBeenCalledOnce();
    expect(onLost.mock.calls[0]?.[0]).toBeInstanceOf(ShardLostError);
  }

  it('never commits a transaction that was frozen before its commit', async () => {
    proxy.fault = 'frozen';
    const frozen = add(first, 'frozen').catch((error: unknown) => error);
    await waitFor(() => expect(proxy.fault).toBeUndefined());
    isOwner = false;
    const second = await takeOver();
    await add(second, 'b');
    proxy.thaw();
    expect(await frozen).toBeInstanceOf(StoreUnavailableError);
    await expect(add(first, 'c')).rejects.toThrow(
      'another node owns the shard in the schema public',
    );
    await expect(listIds(first)).rejects.toThrow(StoreUnavailableError);
    expectLost();
    await add(second, 'd');
    expect(await listIds(second)).toEqual(['a', 'b', 'd']);
    expect(await server.query('select id from job order by id')).toBe('a\nb\nd');
  });

  it('ends a transaction of a session that has lost its lock', async () => {
    const frozen = new Client({ connectionString: server.url() });
    const onError = vi.fn();
    frozen.on('error', onError);
    await frozen.connect();
    await frozen.query('begin; update last_commit set number = number + 1');
    isOwner = false;
    const { store: second } = await open(server.url(), { statementTimeoutMs: 2_000 });
    await add(second, 'b');
    await waitFor(() => expect(onError).toHaveBeenCalled());
    expect(await listIds(second)).toEqual(['a', 'b']);
    await frozen.end();
  });

  it('closes while its connection is frozen', async () => {
    proxy.freeze();
    await first.close();
    expect(await listIds(await takeOver())).toEqual(['a']);
  });

  it('closes at once if it is abandoned while its connection is frozen', async () => {
    proxy.fault = 'frozen';
    const frozen = add(first, 'frozen').catch((error: unknown) => error);
    await waitFor(() => expect(proxy.fault).toBeUndefined());
    driver.abandon(new ShardLostError('public'));
    await first.close();
    expect(await frozen).toBeInstanceOf(StoreUnavailableError);
    expect(await listIds(await takeOver())).toEqual(['a']);
  });

  it('is lost while nothing is under way', async () => {
    isOwner = false;
    const second = await takeOver();
    await waitFor(expectLost);
    await expect(add(first, 'b')).rejects.toThrow(StoreUnavailableError);
    expect(await listIds(second)).toEqual(['a']);
  });

  it('does not answer a commit of unknown outcome, which the next owner finds', async () => {
    isOwner = false;
    proxy.fault = 'after';
    await expect(add(first, 'b')).rejects.toThrow('another node owns the shard');
    expectLost();
    expect(await listIds(await takeOver())).toEqual(['a', 'b']);
  });

  it('answers a commit of unknown outcome if it is still the owner', async () => {
    proxy.fault = 'after';
    await add(first, 'b');
    proxy.fault = 'before';
    await expect(add(first, 'c')).rejects.toThrow(StoreUnavailableError);
    await add(first, 'd');
    expect(await listIds(first)).toEqual(['a', 'b', 'd']);
    expect(onLost).not.toHaveBeenCalled();
  });

  it('asks again until it learns whether it is still the owner', async () => {
    let isKnown = false;
    mayReturn.mockImplementation(async () => {
      if (isKnown) return true;
      isKnown = true;
      throw new Error('no answer');
    });
    proxy.cut();
    await waitFor(() => add(first, 'b'));
    expect(isKnown).toBe(true);
    expect(await listIds(first)).toEqual(['a', 'b']);
  });

  it('is lost if another process becomes the owner before the lock is taken', async () => {
    // True before the lock, and false after it.
    mayReturn.mockReset().mockResolvedValueOnce(true).mockResolvedValue(false);
    proxy.cut();
    await waitFor(expectLost);
    expect(mayReturn).toHaveBeenCalledTimes(2);
    expect(await listIds(await takeOver())).toEqual(['a']);
  });

  it('does not open if it is not the owner, and ends no session', async () => {
    mayReturn.mockClear();
    const late = open(server.url(), { mayReturn: async () => false });
    await expect(late).rejects.toThrow(ShardLostError);
    await add(first, 'b');
    expect(mayReturn).not.toHaveBeenCalled();
  });

  it('waits for the end of the other process without takeOver', async () => {
    const waiting = open(server.url(), { takeOver: false, lockWaitMs: 200 });
    await expect(waiting).rejects.toThrow('another platform uses');
    await add(first, 'b');
    expect(onLost).not.toHaveBeenCalled();
  });

  it('ends at once when it is abandoned, although its connection is frozen', async () => {
    proxy.fault = 'frozen';
    const frozen = add(first, 'frozen');
    await waitFor(() => expect(proxy.fault).toBeUndefined());
    driver.abandon(new Error('given up'));
    await expect(frozen).rejects.toThrow(StoreUnavailableError);
    await first.close();
    expect(await listIds(await takeOver())).toEqual(['a']);
  });

  it('keeps no lock when it is abandoned while it reconnects', async () => {
    let answer: ((isOwner: boolean) => void) | undefined;
    mayReturn.mockReset().mockResolvedValueOnce(true);
    mayReturn.mockImplementation(
      () =>
        new Promise((resolve) => {
          answer = resolve;
        }),
    );
    proxy.cut();
    // It has the lock now.
    await waitFor(() => expect(answer).toBeDefined());
    driver.abandon(new Error('given up'));
    answer?.(true);
    const other = await open(server.url(), { takeOver: false, lockWaitMs: 5_000 });
    expect(await listIds(other.store)).toEqual(['a']);
  });
});
