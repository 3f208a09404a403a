// Writes on a full disk. Here a page limit stands for the disk; test/e2e/storage uses a real one.
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DiskReserve, SpaceGate } from '../../../../src/store/disk/space-gate.ts';
import type { StoreFailure } from '../../../../src/store/disk/store-failures.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { ENDING, type Store, StoreUnavailableError } from '../../../../src/store/store.ts';
import {
  addEndpoint,
  addJobs,
  ENDPOINT,
  INPUT,
  makeDelivery,
  makeJob,
} from '../../../support/store/stored-jobs.ts';

const MB = 1_048_576;

let folder: string;
let reserve: DiskReserve;
let gate: SpaceGate;
let store: Store;
let failures: StoreFailure[];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-gate-'));
  reserve = new DiskReserve({ path: join(folder, 'reserve'), bytes: MB });
  await reserve.make();
  gate = new SpaceGate(reserve);
  failures = [];
  const onFailure = (failure: StoreFailure) => failures.push(failure);
  store = openSqliteStore({ path: join(folder, 'm.db'), maxPages: 300, gate, onFailure });
  await addEndpoint(store);
  await addJobs(store, [makeJob({ id: 'a' }), makeJob({ id: 'b', position: 2 })]);
});
afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true });
});

const insertLarge = (bytes = 2 * MB) =>
  store.write((tx) => tx.insertJob(makeJob({ id: 'large', position: 3 }), new Uint8Array(bytes)));
const remove = (id: string) => store.write((tx) => tx.removeJob(makeJob({ id })), ENDING);
const putOutput = (id: string, bytes: number) =>
  store.write((tx) => tx.putOutput({ endpointId: ENDPOINT, id }, new Uint8Array(bytes)), {
    ...ENDING,
    payloadBytes: bytes,
  });

async function listIds(): Promise<string[]> {
  return (await store.read((tx) => tx.queuedJobs(ENDPOINT, 100))).map(({ id }) => id);
}

it('releases the reserve after a write that fails on a full disk, and runs writes that end jobs again', async () => {
  const [large, small, removal] = await Promise.allSettled([
    insertLarge(),
    store.write((tx) => tx.insertJob(makeJob({ id: 'small', position: 4 }), INPUT)),
    remove('a'),
  ]);
  expect([large?.status, small?.status, removal?.status]).toEqual([
    'rejected',
    'rejected',
    'fulfilled',
  ]);
  expect(await listIds()).toEqual(['b']);
  expect([gate.isFull, reserve.isHeld]).toEqual([true, false]);
  expect(existsSync(join(folder, 'reserve'))).toBe(false);
  expect(failures).toMatchObject([{ operation: 'write', code: 'SQLITE_FULL' }]);
});

it('refuses new data at once on a full disk, and commits writes that end jobs by themselves', async () => {
  await insertLarge().catch(() => {});
  failures.splice(0);
  const refused = store.write((tx) => tx.insertJob(makeJob({ id: 'c' }), INPUT));
  await expect(refused).rejects.toMatchObject({ code: 'SQLITE_FULL' });
  await expect(refused).rejects.toBeInstanceOf(StoreUnavailableError);
  expect(failures).toEqual([]);
  const [tooLarge, removal] = await Promise.allSettled([
    store.write((tx) => tx.putOutput({ endpointId: ENDPOINT, id: 'b' }, new Uint8Array(2 * MB)), {
      ...ENDING,
    }),
    remove('a'),
  ]);
  expect([tooLarge?.status, removal?.status]).toEqual(['rejected', 'fulfilled']);
});

it('lets payloads use a quarter of the reserve, all together', async () => {
  await insertLarge().catch(() => {});
  await expect(putOutput('a', MB / 2)).rejects.toBeInstanceOf(StoreUnavailableError);
  await putOutput('a', MB / 8);
  await putOutput('b', MB / 8);
  await expect(putOutput('b', MB / 8)).rejects.toBeInstanceOf(StoreUnavailableError);
  await remove('a');
});

it('writes of every kind work again once the gate is open', async () => {
  await insertLarge().catch(() => {});
  expect(await reserve.make()).toBe(true);
  gate.open();
  await insertLarge(1_000);
  expect(await listIds()).toEqual(['a', 'b', 'large']);
});

it('stops the creation of the reserve at a release, so that it holds nothing', async () => {
  reserve.release();
  const making = reserve.make();
  reserve.release();
  expect(await making).toBe(false);
  expect(reserve.isHeld).toBe(false);
});

it('passes the failure to the writers if the reserve cannot be released, and continues', async () => {
  reserve.release();
  mkdirSync(join(folder, 'reserve'));
  const results = await Promise.allSettled([insertLarge(), remove('a')]);
  expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(failures.map(({ code }) => code)).toEqual(['SQLITE_FULL', 'UNKNOWN']);
  expect(gate.isFull).toBe(false);
  await remove('a');
  expect(await listIds()).toEqual(['b']);
});

it('removes a job without copying the output that its webhook still needs', async () => {
  const job = makeJob({ id: 'a', webhook: 'https://example.com/' });
  await store.write((tx) => {
    tx.putOutput(job, new Uint8Array(0.75 * MB));
    tx.insertDelivery(makeDelivery({ id: 'd' }), [{ outputOf: job }]);
  });
  await insertLarge().catch(() => {});
  await store.write((tx) => tx.removeJob(job), ENDING);
  const part = await store.read((tx) => tx.deliveryPart({ endpointId: ENDPOINT, id: 'd' }, 0));
  expect(part).toHaveLength(0.75 * MB);
});

describe('the disk reserve', () => {
  let folder: string;
  let path: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'millrace-reserve-'));
    path = join(folder, 'reserve');
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  it.each([1, 1_048_576, 1_500_000])('holds %i bytes until it is released', async (bytes) => {
    const reserve = new DiskReserve({ path, bytes });
    expect(reserve.isHeld).toBe(false);
    expect(await reserve.make()).toBe(true);
    expect(statSync(path).size).toBe(bytes);
    expect(reserve.isHeld).toBe(true);
    reserve.release();
    expect(reserve.isHeld).toBe(false);
    expect(existsSync(path)).toBe(false);
  });

  it('is not made if the disk has too little space', async () => {
    const reserve = new DiskReserve({ path, bytes: 2 ** 50 });
    expect(await reserve.make()).toBe(false);
    expect(existsSync(path)).toBe(false);
  });
});
