// The write-ahead log is copied into the file by a thread, so that commits never do it on the event loop.
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Checkpointer } from '../../../../src/store/disk/checkpointer.ts';
import type { StoreFailure } from '../../../../src/store/disk/store-health.ts';
import { openSqlite, type SqliteDriver } from '../../../../src/store/sqlite.ts';
import type { Store } from '../../../../src/store/store.ts';
import { addEndpoint, makeJob } from '../../../conformance/store/stored-jobs.ts';

const MB = 1_048_576;
const PAGE = new Uint8Array(4_096);

let folder: string;
let path: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-checkpoints-'));
  path = join(folder, 'm.db');
});
afterEach(() => rmSync(folder, { recursive: true }));

describe('a store', () => {
  const failures: StoreFailure[] = [];
  let store: Store;
  let driver: SqliteDriver;

  beforeEach(async () => {
    ({ driver, store } = openSqlite({ path, onFailure: (failure) => failures.push(failure) }));
    await addEndpoint(store);
  });
  afterEach(async () => {
    await store.close();
    expect(failures.splice(0)).toEqual([]);
  });

  /** Each job adds about three pages to the log. */
  async function insertJobs(count: number, name: string): Promise<void> {
    await store.write(function* (tx) {
      for (let i = 0; i < count; i++) {
        yield* tx.insertJob(makeJob({ id: `${name}-${i}`, position: i }), PAGE);
      }
    });
  }

  it('has a long log copied and begins it again, while commits go on', async () => {
    // Without the thread the log would reach 16,000 pages, which is 64 MB.
    for (let n = 0; n < 120; n++) await insertJobs(100, `${n}`);
    expect(driver.measure().database).toBeGreaterThan(40 * MB);
    expect(driver.measure().wal).toBeLessThan(48 * MB);
  });

  it('waits with the end of a copy until no operation is on its way', async () => {
    const all = Array.from({ length: 60 }, (_, n) => insertJobs(100, `${n}`));
    const counts = all.map(async (inserted) => {
      await inserted;
      return (await store.read((tx) => tx.endpoint('e')))?.inQueue;
    });
    await Promise.all([...all, ...counts, store.reclaim(100), driver.truncateLog()]);
    expect(await driver.truncateLog()).toBe(true);
    expect(driver.measure().wal).toBe(0);
  });
});

describe('a checkpointer', () => {
  it('returns how much of the log the file has, and whether a reader prevents the rest', async () => {
    const writer = new DatabaseSync(path);
    writer.exec('pragma journal_mode = wal; pragma wal_autocheckpoint = 0; create table t (x)');
    const reader = new DatabaseSync(path);
    reader.exec('begin; select * from t');
    const reading = reader.prepare('select count(*) from sqlite_schema').get();
    expect(reading).toBeDefined();
    writer.exec('insert into t values (1)');
    const checkpointer = new Checkpointer(path);
    const passive = await checkpointer.run('passive');
    expect(passive.pages).toBeGreaterThan(passive.copied);
    expect(await checkpointer.run('truncate')).toMatchObject({ isBusy: true });
    reader.exec('commit');
    expect(await checkpointer.run('truncate')).toEqual({ isBusy: false, pages: 0, copied: 0 });
    expect(statSync(`${path}-wal`).size).toBe(0);
    await checkpointer.close();
    await expect(checkpointer.run('passive')).rejects.toThrow('The store is closed');
    reader.close();
    writer.close();
  });

  it('rejects with the error of SQLite, or of a file that cannot be opened', async () => {
    const missing = new Checkpointer(join(folder, 'missing', 'm.db'));
    await expect(missing.run('passive')).rejects.toThrow(/unable to open/);
    await missing.close();
    const damaged = new Checkpointer(path);
    const database = new DatabaseSync(path);
    database.exec('pragma journal_mode = wal; create table t (x)');
    expect(await damaged.run('passive')).toMatchObject({ isBusy: false });
    await damaged.close();
    database.close();
  });
});
