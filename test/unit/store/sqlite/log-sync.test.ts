// When a write counts as stored: once the disk has its commit, which it gets without blocking the event loop.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { StoreFailure } from '../../../../src/store/disk/store-failures.ts';
import { openSqlite, type SqliteDriver } from '../../../../src/store/sqlite/sqlite.ts';
import {
  type Store,
  StoreUnavailableError,
  type UploadedPayload,
} from '../../../../src/store/store.ts';
import { addEndpoint, ENDPOINT, INPUT, makeJob } from '../../../support/store/stored-jobs.ts';

let folder: string;
let store: Store;
let driver: SqliteDriver;
let failures: StoreFailure[];
/** The calls of `syncFile` that the disk has not answered; undefined: it answers at once. */
let held: PromiseWithResolvers<void>[] | undefined;
/** The payload bytes that each call was told. */
let told: number[];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-sync-'));
  held = undefined;
  failures = [];
  told = [];
  ({ driver, store } = openSqlite({
    path: join(folder, 'm.db'),
    onFailure: (failure) => failures.push(failure),
    syncFile: async (_descriptor, bytes) => {
      told.push(bytes);
      const call = Promise.withResolvers<void>();
      held?.push(call);
      if (held) await call.promise;
    },
  }));
  await addEndpoint(store);
});
afterEach(async () => {
  for (const call of held ?? []) call.resolve();
  await store.close();
  rmSync(folder, { recursive: true });
});

function insert(id: string): Promise<void> {
  return store.write((tx) => tx.insertJob(makeJob({ id }), INPUT));
}

function listIds(): Promise<string[]> {
  return store.read((tx) => {
    return tx.queuedJobs(ENDPOINT, 100).map((job) => job.id);
  });
}

async function runTurns(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** Notes what has settled, in order. */
function watch(order: string[], name: string, promise: Promise<unknown>): void {
  promise.then(
    () => order.push(name),
    () => order.push(`${name} failed`),
  );
}

it('makes writes, later writes and reads wait until the disk has the commit', async () => {
  held = [];
  const order: string[] = [];
  watch(order, 'first', insert('a'));
  await runTurns();
  watch(order, 'second', insert('b'));
  watch(order, 'read', listIds());
  watch(order, 'probe', driver.testWrite());
  await runTurns();
  expect(order).toEqual([]);
  expect(held).toHaveLength(1);
  held[0]?.resolve();
  await expect.poll(() => held?.length).toBe(2);
  expect(order).toEqual(['first', 'read']);
  for (let answered = 1; order.length < 4; answered++) {
    await expect.poll(() => (held?.length ?? 0) > answered || order.length === 4).toBe(true);
    held[answered]?.resolve();
    await runTurns();
  }
  expect(await listIds()).toEqual(['a', 'b']);
});

it('lets an operation that fails or only reads wait for no disk of its own', async () => {
  held = [];
  const failing = store.write(() => {
    throw new Error('no');
  });
  await expect(failing).rejects.toThrow('no');
  expect(await store.write((tx) => tx.endpoint(ENDPOINT))).toMatchObject({ id: ENDPOINT });
  expect(held).toEqual([]);
});

it('rejects a commit that the disk fails to store, and everything after it', async () => {
  held = [];
  const first = insert('a');
  await expect.poll(() => held?.length).toBe(1);
  const second = insert('b');
  const read = listIds();
  const results = Promise.allSettled([first, second, read]);
  held[0]?.reject(Object.assign(new Error('EIO: i/o error, fdatasync'), { code: 'EIO' }));
  const lost = { status: 'rejected', reason: expect.objectContaining({ code: 'EIO' }) };
  expect(await results).toEqual([lost, lost, lost]);
  await expect(insert('c')).rejects.toThrow(StoreUnavailableError);
  await expect(listIds()).rejects.toThrow(/only a new start can read/);
  await expect(driver.testWrite()).rejects.toThrow(StoreUnavailableError);
  expect(failures.map(({ code, operation }) => ({ code, operation }))).toEqual([
    { code: 'EIO', operation: 'sync' },
  ]);
});

it('waits at its close for the commit on its way and for those asked for', async () => {
  held = [];
  const order: string[] = [];
  watch(order, 'first', insert('a'));
  await expect.poll(() => held?.length).toBe(1);
  watch(order, 'second', insert('b'));
  const closed = store.close();
  watch(order, 'closed', closed);
  await runTurns();
  expect(order).toEqual([]);
  held[0]?.resolve();
  await expect.poll(() => held?.length).toBe(2);
  held[1]?.resolve();
  await closed;
  expect(order).toEqual(['first', 'second', 'closed']);
});

const KB = 1_024;

/** Begins a payload that no job has. */
function stage(id: string, bytes: number): Promise<UploadedPayload> {
  const key = { endpointId: ENDPOINT, id };
  return store.write((tx) => tx.beginPayload('input', key, new Uint8Array(bytes)), {
    onDisk: 'later',
  });
}

it('puts a commit that nobody sees yet on disk with the next one', async () => {
  held = [];
  told = [];
  const payload = await stage('a', 256 * KB);
  expect(held).toEqual([]);
  const order: string[] = [];
  watch(
    order,
    'insert',
    store.write((tx) => tx.insertJob(makeJob({ id: 'a' }), payload)),
  );
  await runTurns();
  expect(order).toEqual([]);
  expect(told.map((bytes) => Math.floor(bytes / KB))).toEqual([256]);
  held[0]?.resolve();
  await expect.poll(() => order).toEqual(['insert']);
  expect(await listIds()).toEqual(['a']);
});

it('puts each 512 KB of payloads that nobody sees yet on disk beside further commits', async () => {
  held = [];
  told = [];
  await stage('a', 512 * KB);
  const inserted = insert('b');
  await expect.poll(() => held?.length).toBe(2);
  // The system answers it only when the bytes of the first call are on disk as well.
  expect(told.map((bytes) => Math.floor(bytes / KB))).toEqual([512, 512]);
  held[1]?.resolve();
  await inserted;
  expect(await listIds()).toEqual(['b']);
});

it('leaves at most 1 MB of payloads that nobody sees yet off the disk', async () => {
  held = [];
  told = [];
  await stage('a', 512 * KB);
  await stage('b', 256 * KB);
  const order: string[] = [];
  watch(order, 'third', stage('c', 512 * KB));
  await runTurns();
  expect(order).toEqual([]);
  expect(held).toHaveLength(1);
  held[0]?.resolve();
  await expect.poll(() => order).toEqual(['third']);
  expect(told.map((bytes) => Math.floor(bytes / KB))).toEqual([512, 768]);
});

it('goes on with other commits and reads while a payload waits for the disk', async () => {
  held = [];
  await stage('a', 512 * KB);
  const order: string[] = [];
  watch(order, 'second', stage('b', 1_024 * KB));
  await runTurns();
  watch(order, 'insert', insert('c'));
  await expect.poll(() => held?.length).toBe(2);
  held[1]?.resolve();
  await expect.poll(() => order).toEqual(['insert']);
  expect(await listIds()).toEqual(['c']);
});

it('stops everything if a payload that nobody sees yet cannot be put on disk', async () => {
  held = [];
  await stage('a', 512 * KB);
  const waiting = stage('b', 1_024 * KB);
  await runTurns();
  held[0]?.reject(Object.assign(new Error('EIO: i/o error, fdatasync'), { code: 'EIO' }));
  await expect(waiting).rejects.toThrow(StoreUnavailableError);
  await expect(insert('c')).rejects.toThrow(/only a new start can read/);
  expect(failures.map(({ code, operation }) => ({ code, operation }))).toEqual([
    { code: 'EIO', operation: 'sync' },
  ]);
});

it('waits at its close for a call that puts a payload on disk', async () => {
  held = [];
  await stage('a', 512 * KB);
  const order: string[] = [];
  const closed = store.close();
  watch(order, 'closed', closed);
  await runTurns();
  expect(order).toEqual([]);
  held[0]?.resolve();
  await closed;
});

it('waits for the disk with a commit if one of its operations does', async () => {
  held = [];
  const order: string[] = [];
  watch(order, 'part', stage('a', 1_000));
  watch(order, 'insert', insert('b'));
  await runTurns();
  expect(order).toEqual([]);
  held[0]?.resolve();
  await expect.poll(() => order).toEqual(['part', 'insert']);
});
