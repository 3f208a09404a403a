// The write-ahead log is copied into the file by a thread, so that commits never do it on the event loop.
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Checkpoint } from '../../../../src/store/disk/checkpoint-thread.ts';
import { Checkpointer, LogCopies } from '../../../../src/store/disk/log-copies.ts';
import type { StoreFailure } from '../../../../src/store/disk/store-failures.ts';
import { openSqlite, type SqliteDriver } from '../../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../../src/store/store.ts';
import { addEndpoint, ENDPOINT, makeJob } from '../../../support/store/stored-jobs.ts';

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
    await store.write((tx) => {
      for (let i = 0; i < count; i++) {
        tx.insertJob(makeJob({ id: `${name}-${i}`, position: i }), PAGE);
      }
    });
  }

  it('has a long log copied and begins it again, while commits go on', async () => {
    // 100 jobs are about half a MB of the log. How soon the thread gets to run depends on the machine.
    let batches = 0;
    const mostBytes = () => 0.4 * MB * batches;
    while (batches < 120 || (batches < 600 && driver.measure().wal >= mostBytes())) {
      await insertJobs(100, `${batches++}`);
    }
    expect(driver.measure().database).toBeGreaterThan(40 * MB);
    expect(driver.measure().wal).toBeLessThan(mostBytes());
  });

  it('copies the log at once when the disk is full', async () => {
    await insertJobs(300, 'a');
    const before = driver.measure().database;
    driver.saveSpace();
    expect(driver.measure().database).toBeGreaterThan(before + MB);
  });

  it('waits with the end of a copy until no operation is on its way', async () => {
    const all = Array.from({ length: 60 }, (_, n) => insertJobs(100, `${n}`));
    const counts = all.map(async (inserted) => {
      await inserted;
      return (await store.read((tx) => tx.endpoint(ENDPOINT)))?.inQueue;
    });
    await Promise.all([...all, ...counts, store.reclaim(100), driver.truncateLog()]);
    expect(await driver.truncateLog()).toBe(true);
    expect(driver.measure().wal).toBe(0);
  });

  it('commits between copies, however many are requested', async () => {
    let isOver = false;
    const copying = (async () => {
      while (!isOver) await driver.truncateLog();
    })();
    for (let n = 0; n < 20; n++) await insertJobs(1, `${n}`);
    isOver = true;
    await copying;
    expect((await store.read((tx) => tx.endpoint(ENDPOINT)))?.inQueue).toBe(20);
  });

  it('closes once, after the copies', async () => {
    const copied = driver.truncateLog();
    const closed = store.close();
    expect(store.close()).toBe(closed);
    await Promise.all([copied, closed]);
    expect(statSync(`${path}-wal`, { throwIfNoEntry: false })).toBeUndefined();
  });
});

describe('copies of the log without a thread', () => {
  const errors: string[] = [];

  function makeCopies(copyLog: () => Checkpoint): LogCopies {
    return new LogCopies({
      checkpointer: {
        run: () => Promise.reject(new Error('The checkpoint thread ended')),
        close: async () => {},
      },
      connection: { copyLog },
      syncFile: async () => {},
      runAlone: (act) => act(),
      onFailure: (error) => errors.push(`failed: ${error}`),
      onLost: (error) => errors.push(`lost: ${error}`),
    });
  }

  const fail = (errcode: number) => () => {
    throw Object.assign(new Error(`error ${errcode}`), { errcode });
  };

  afterEach(() => {
    errors.length = 0;
  });

  it('are made by the connection', async () => {
    const copies = makeCopies(() => ({ isBusy: false, pages: 3, copied: 3 }));
    expect(await copies.copy('truncate')).toBe(true);
    await copies.close();
    expect(await copies.copy('truncate')).toBe(false);
    expect(errors).toEqual([]);
  });

  it.each([
    ['a full disk is a failure after which the next may succeed', 13, 'failed'],
    ['a write for which there is no space is such a failure', 778, 'failed'],
    [
      'a failed fsync loses the store, because the file may lack what SQLite believes it has',
      1034,
      'lost',
    ],
    ['a failed read loses the store', 266, 'lost'],
  ])('%s', async (_name, errcode, outcome) => {
    const copies = makeCopies(fail(errcode));
    expect(await copies.copy('passive')).toBe(false);
    await copies.close();
    expect(errors).toEqual([`${outcome}: Error: error ${errcode}`]);
  });
});

describe('copies of the log beside commits', () => {
  const DONE: Checkpoint = { isBusy: false, pages: 9, copied: 9 };
  /** More than commits may leave to the copy for which they wait. */
  const MANY_PAGES = 1_000;
  let events: string[];
  let copies: LogCopies;

  /** @param commit called while the thread copies */
  function makeCopies({ commit = () => {}, syncFile = async () => {} }): LogCopies {
    return new LogCopies({
      checkpointer: {
        run: async (mode) => {
          events.push(mode);
          commit();
          return DONE;
        },
        close: async () => {},
      },
      connection: { copyLog: () => DONE },
      syncFile: () => {
        events.push('sync');
        return syncFile();
      },
      runAlone: (act) => {
        events.push('alone');
        return act();
      },
      onFailure: (error) => events.push(`failed: ${error}`),
      onLost: (error) => events.push(`lost: ${error}`),
    });
  }

  beforeEach(() => {
    events = [];
  });
  afterEach(() => copies.close());

  it('put the file on disk before commits have to wait for the rest', async () => {
    copies = makeCopies({});
    expect(await copies.copy('truncate')).toBe(true);
    expect(events).toEqual(['passive', 'sync', 'alone', 'truncate']);
  });

  it('go on until commits add little meanwhile', async () => {
    let added = 2 * MANY_PAGES;
    const commit = () => {
      added -= MANY_PAGES;
      copies.noteCommit(Math.max(0, added), 0);
    };
    copies = makeCopies({ commit });
    await copies.copy('passive');
    expect(events).toEqual(['passive', 'sync', 'passive', 'sync', 'alone', 'passive']);
  });

  it('end although commits add as much as is copied', async () => {
    copies = makeCopies({ commit: () => copies.noteCommit(MANY_PAGES, 0) });
    await copies.copy('passive');
    expect(events.filter((event) => event === 'sync')).toHaveLength(3);
    expect(events.slice(-2)).toEqual(['alone', 'passive']);
  });

  it('lose the store if the file cannot be put on disk', async () => {
    copies = makeCopies({ syncFile: () => Promise.reject(new Error('EIO')) });
    expect(await copies.copy('passive')).toBe(false);
    expect(events).toEqual(['passive', 'sync', 'lost: Error: EIO']);
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
    await expect(checkpointer.run('passive')).rejects.toThrow('The checkpoint thread is closed');
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
