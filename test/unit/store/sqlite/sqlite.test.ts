import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { SchemaTooNewError } from '../../../../src/store/schema-migration.ts';
import {
  openSqlite,
  openSqliteStore,
  type SqliteOptions,
} from '../../../../src/store/sqlite/sqlite.ts';
import { type Step, type Store, StoreUnavailableError } from '../../../../src/store/store.ts';
import {
  addEndpoint,
  addJobs,
  deleteUnused,
  ENDPOINT,
  INPUT,
  makeJob,
  makeLease,
} from '../../../support/store/stored-jobs.ts';

const MB = 1_048_576;

let folder: string;
let path: string;
const opened: Store[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-sqlite-'));
  path = join(folder, 'm.db');
});
afterEach(async () => {
  for (const store of opened.splice(0)) await store.close();
  rmSync(folder, { recursive: true });
});

async function openStore(options: Partial<SqliteOptions> = {}): Promise<Store> {
  const store = openSqliteStore({ path, ...options });
  opened.push(store);
  await addEndpoint(store);
  return store;
}

function insert(store: Store, id: string, inputBytes = 10): Promise<void> {
  return store.write((tx) => tx.insertJob(makeJob({ id }), new Uint8Array(inputBytes)));
}

async function listIds(store: Store): Promise<string[]> {
  const jobs = await store.read((tx) => tx.queuedJobs(ENDPOINT, 100));
  return jobs.map((job) => job.id).sort();
}

async function readInQueue(store: Store): Promise<number | undefined> {
  return (await store.read((tx) => tx.endpoint(ENDPOINT)))?.inQueue;
}

describe('a file', () => {
  it('returns due jobs that were leased before it was opened again', async () => {
    const lease = makeLease({ until: 5_000 });
    const leased = makeJob({ id: 'leased', status: 'IN_PROGRESS', lease, dueAt: 5_000 });
    const queued = makeJob({ id: 'queued', dueAt: 7_000 });
    const store = await openStore();
    await addJobs(store, [queued, leased]);
    await store.close();
    const again = await openStore();
    expect(await again.read((tx) => tx.nextDueAt())).toBe(5_000);
    const due = await again.read((tx) => tx.dueJobs(9_000, 10));
    expect(due).toEqual([leased, queued]);
    expect(await again.read((tx) => tx.dueJobs(9_000, 1))).toEqual([leased]);
    const running = { endpointId: ENDPOINT, status: 'IN_PROGRESS', before: undefined } as const;
    expect(await again.read((tx) => tx.jobs({ ...running, limit: 9 }))).toEqual([leased]);
  });

  it('is complete when it is opened again', async () => {
    const store = await openStore();
    await insert(store, 'a');
    await store.close();
    expect(await listIds(await openStore())).toEqual(['a']);
  });

  it('is one file after close, with nothing left beside it', async () => {
    const store = await openStore();
    await insert(store, 'a');
    expect(existsSync(`${path}-wal`)).toBe(true);
    await store.close();
    expect([existsSync(`${path}-wal`), existsSync(`${path}-shm`)]).toEqual([false, false]);
  });

  it('may be closed twice', async () => {
    const store = await openStore();
    await Promise.all([store.close(), store.close()]);
    await expect(store.close()).resolves.toBeUndefined();
  });

  it('is refused if it is not a database', () => {
    writeFileSync(path, 'not a database, but long enough to be looked at as one'.repeat(100));
    expect(() => openSqliteStore({ path })).toThrow(
      expect.objectContaining({ code: 'ERR_SQLITE_ERROR', errcode: 26 }),
    );
  });

  it('is refused if a newer version wrote it', async () => {
    await (await openStore()).close();
    const database = new DatabaseSync(path);
    database.exec('pragma user_version = 1000');
    database.close();
    expect(() => openSqliteStore({ path })).toThrow(SchemaTooNewError);
  });

  it.each([
    ['journal_mode', 'wal'],
    // The store itself puts each commit on disk; SQLite does so before it overwrites anything.
    ['synchronous', 1],
    ['auto_vacuum', 2],
  ])('is used with %s = %s', async (pragma, expected) => {
    const { driver, store } = openSqlite({ path });
    opened.push(store);
    const value = await driver.read(function* () {
      const [row] = yield { sql: `pragma ${pragma}`, params: [] };
      return row?.[pragma];
    });
    expect(value).toBe(expected);
  });
});

describe('a full disk', () => {
  // 200 pages of 4 KB hold the schema and half a megabyte.
  const options = { maxPages: 200 };

  it('rejects the write, keeps nothing of it, and keeps all earlier data', async () => {
    const store = await openStore(options);
    await insert(store, 'before');
    await expect(insert(store, 'large', 2 * MB)).rejects.toBeInstanceOf(StoreUnavailableError);
    expect(await listIds(store)).toEqual(['before']);
    expect(await readInQueue(store)).toBe(1);
  });

  it('rejects every write of the same commit', async () => {
    const store = await openStore(options);
    const results = await Promise.allSettled([
      insert(store, 'a'),
      insert(store, 'large', 2 * MB),
      insert(store, 'c'),
    ]);
    const reasons = results.map((result) => result.status === 'rejected' && result.reason);
    expect(reasons.every((reason) => reason instanceof StoreUnavailableError)).toBe(true);
    expect(await listIds(store)).toEqual([]);
    expect(await readInQueue(store)).toBe(0);
  });

  it('is detected while other writes are rolled back', async () => {
    const store = await openStore(options);
    const undone = store.write((tx) => {
      tx.insertJob(makeJob({ id: 'undone' }), INPUT);
      throw new Error('no');
    });
    const results = await Promise.allSettled([
      insert(store, 'a'),
      undone,
      insert(store, 'large', 2 * MB),
    ]);
    expect(results.map((result) => result.status)).toEqual(['rejected', 'rejected', 'rejected']);
    await insert(store, 'after');
    expect(await listIds(store)).toEqual(['after']);
  });

  it('is over once space is free', async () => {
    const store = await openStore(options);
    const job = makeJob({ id: 'fat' });
    await store.write((tx) => tx.insertJob(job, new Uint8Array(MB / 2)));
    await expect(insert(store, 'next', MB / 2)).rejects.toBeInstanceOf(StoreUnavailableError);
    await store.write((tx) => tx.removeJob(job));
    await deleteUnused(store);
    await insert(store, 'next', MB / 2);
    expect(await listIds(store)).toEqual(['next']);
  });

  it('rejects all of a commit if it appears only then, and the store continues', async () => {
    const script = fileURLToPath(
      new URL('../../../support/store/cramped-writer.ts', import.meta.url),
    );
    // Units of 512 bytes: no file beyond 2 MB, which the write-ahead log would be.
    const command = 'ulimit -f 4096 && exec "$0" "$1" "$2"';
    const { stdout } = await promisify(execFile)('/bin/sh', [
      ...['-c', command],
      ...[process.execPath, script, path],
    ]);
    expect(JSON.parse(stdout)).toEqual({
      errors: ['StoreUnavailableError', 'StoreUnavailableError'],
      ids: ['after', 'before'],
    });
    expect(await listIds(await openStore())).toEqual(['after', 'before']);
  });
});

describe('a file that another process has locked', () => {
  it('rejects writes as unavailable, answers reads, and recovers when the lock is released', async () => {
    const store = await openStore({ busyTimeoutMs: 1 });
    await insert(store, 'before');
    const other = new DatabaseSync(path);
    other.exec('begin immediate');
    const results = await Promise.allSettled([insert(store, 'a'), insert(store, 'b')]);
    const reasons = results.map((result) => result.status === 'rejected' && result.reason);
    expect(reasons.every((reason) => reason instanceof StoreUnavailableError)).toBe(true);
    expect(await listIds(store)).toEqual(['before']);
    other.exec('rollback');
    other.close();
    await insert(store, 'c');
    expect(await listIds(store)).toEqual(['before', 'c']);
  });
});

describe('space', () => {
  async function fillAndEmpty(store: Store): Promise<void> {
    const jobs = Array.from({ length: 50 }, (_, i) => makeJob({ id: `${i}`, position: i }));
    await addJobs(store, jobs);
    const output = new Uint8Array(MB);
    await Promise.all(jobs.map((job) => store.write((tx) => tx.putOutput(job, output))));
    await Promise.all(jobs.map((job) => store.write((tx) => tx.removeJob(job))));
    await deleteUnused(store);
  }

  it('goes back to the file system from removed jobs, in steps of the requested size', async () => {
    const store = await openStore();
    await fillAndEmpty(store);
    await store.reclaim(1);
    const full = statSync(path).size;
    expect(full).toBeGreaterThan(40 * MB);
    await store.reclaim(0);
    expect(statSync(path).size).toBe(full);
    await store.reclaim(1_000);
    const pages = (full - statSync(path).size) / 4_096;
    // A page of the file's own bookkeeping may go with every thousand.
    expect([1_000, 1_001]).toContain(pages);
    while (await store.reclaim(100_000));
    expect(statSync(path).size).toBeLessThan(MB);
    expect(await readInQueue(store)).toBe(0);
  }, 30_000);

  it('is given back from the write-ahead log once the log exceeds its limit', async () => {
    const store = await openStore({ walLimitBytes: 2 * MB });
    // While another process reads, the log cannot begin again from its start.
    const reader = new DatabaseSync(path, { readOnly: true });
    reader.exec('begin');
    reader.prepare('select count(*) from job').get();
    await fillAndEmpty(store);
    expect(statSync(`${path}-wal`).size).toBeGreaterThan(4 * MB);
    reader.close();
    await store.reclaim(1);
    expect(statSync(`${path}-wal`).size).toBeLessThanOrEqual(2 * MB);
  }, 30_000);

  it('may be requested inside and outside an operation', async () => {
    const store = await openStore();
    let reclaimed: Promise<boolean> | undefined;
    await store.write((tx) => {
      tx.insertJob(makeJob({ id: 'a' }), INPUT);
      reclaimed = store.reclaim(10);
    });
    await reclaimed;
    expect(await listIds(store)).toEqual(['a']);
    const inMemory = openSqliteStore({ path: ':memory:' });
    await inMemory.reclaim(10);
    await inMemory.close();
  });
});

describe('large reads', () => {
  const MB = 1_048_576;

  function* readZeros(bytes: number): Step<number> {
    const rows = yield { sql: 'select zeroblob(?) as bytes', params: [bytes] };
    return rows.length;
  }

  function openDriver() {
    const { driver } = openSqlite({ path: ':memory:' });
    onTestFinished(() => driver.close());
    return driver;
  }

  it('lets other work in between large reads', async () => {
    const driver = openDriver();
    let done = 0;
    const reads = Array.from({ length: 20 }, () =>
      driver.read(() => readZeros(5 * MB)).then(() => done++),
    );
    for (let turn = 1; turn <= 5; turn++) {
      await nextTurn();
      expect(done).toBeLessThanOrEqual(turn + 1);
    }
    await Promise.all(reads);
  });

  it('keeps large reads in their order', async () => {
    const driver = openDriver();
    const order: number[] = [];
    const reads = Array.from({ length: 10 }, (_, n) =>
      driver.read(() => readZeros(5 * MB)).then(() => order.push(n)),
    );
    await Promise.all(reads);
    expect(order).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  it('does not delay small reads', async () => {
    const driver = openDriver();
    let done = 0;
    for (let n = 0; n < 1_000; n++) {
      driver
        .read(() => readZeros(100))
        .then(
          () => done++,
          () => {},
        );
    }
    await nextTurn();
    expect(done).toBe(1_000);
  });
});
