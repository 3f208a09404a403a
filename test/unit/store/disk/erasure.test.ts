// Deleted data disappears from the bytes of the real files.
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { Erasure } from '../../../../src/store/disk/store-guard.ts';
import { openSqlite, type SqliteDriver } from '../../../../src/store/sqlite/sqlite.ts';
import type { Store, StoredJob } from '../../../../src/store/store.ts';
import { addEndpoint, makeJob } from '../../../support/store/stored-jobs.ts';

const signal = new AbortController().signal;

let folder: string;
let path: string;
let store: Store;
let driver: SqliteDriver;
let clock: ManualClock;
let erasure: Erasure;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-erasure-'));
  path = join(folder, 'm.db');
  ({ driver, store } = openSqlite({ path }));
  clock = new ManualClock();
  erasure = new Erasure({ driver, clock, afterMs: 30_000 });
  await addEndpoint(store);
});
afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true });
});

/** From a few bytes within a page to many pages, so that trees split and merge. */
const SIZES = [20, 300, 900, 3_000, 5_000, 20_000, 60_000];

function makePayload(id: string): Buffer {
  const size = SIZES[Number(id) % SIZES.length] ?? 0;
  // In every page that it lies in.
  return Buffer.alloc(Math.max(size, 20), `<payload-of-${id}>`.padEnd(Math.min(size, 1_000)));
}

/** One commit each, some of them out of order. */
async function insertJobs(count: number): Promise<StoredJob[]> {
  const jobs = Array.from({ length: count }, (_, i) => makeJob({ id: String(i), position: i }));
  const order = jobs.map((_, i) => (i * 37) % count);
  await store.write((tx) => {
    for (const i of order) {
      const job = jobs[i];
      if (!job) continue;
      tx.insertJob(job, makePayload(job.id));
      tx.putOutput(job, makePayload(job.id));
      tx.appendLog(job, 0, makePayload(job.id));
    }
  });
  return jobs;
}

const remove = (jobs: readonly StoredJob[]) =>
  store.write((tx) => {
    for (const job of jobs) tx.removeJob(job);
  });

function listFound(jobs: readonly StoredJob[]): string[] {
  const bytes = [path, `${path}-wal`].map((file) => readFileSync(file).toString('latin1')).join('');
  const found = new Set(Array.from(bytes.matchAll(/<payload-of-(\d+)>/g), ([, id]) => id));
  return jobs.map(({ id }) => id).filter((id) => found.has(id));
}

async function erase(): Promise<void> {
  await erasure.tick(signal);
  await clock.advance(30_000);
  await erasure.tick(signal);
}

it('leaves no bytes of removed jobs in the file or its log, and leaves other jobs intact', async () => {
  const jobs = await insertJobs(105);
  const kept = jobs.filter((_, i) => i % 3 === 0);
  const removed = jobs.filter((_, i) => i % 3 !== 0);
  await remove(removed);
  expect(listFound(removed)).not.toEqual([]);
  await erase();
  expect(listFound(removed)).toEqual([]);
  expect(statSync(`${path}-wal`).size).toBe(0);
  for (const job of kept) {
    expect(await store.read((tx) => tx.output(job))).toEqual(new Uint8Array(makePayload(job.id)));
  }
});

it('runs once after a commit, and not too early', async () => {
  const jobs = await insertJobs(7);
  await remove(jobs);
  await erasure.tick(signal);
  await clock.advance(29_999);
  await erasure.tick(signal);
  expect(listFound(jobs)).not.toEqual([]);
  await clock.advance(1);
  await erasure.tick(signal);
  expect(listFound(jobs)).toEqual([]);
  await driver.testWrite();
  const size = statSync(`${path}-wal`).size;
  await erase();
  expect(statSync(`${path}-wal`).size).toBe(size);
});

it('waits for another connection that reads, without blocking others', async () => {
  const jobs = await insertJobs(7);
  const reader = new DatabaseSync(path, { readOnly: true });
  reader.exec('begin');
  reader.prepare('select count(*) from job').get();
  await remove(jobs);
  await erase();
  expect(listFound(jobs)).not.toEqual([]);
  reader.exec('commit');
  reader.close();
  await erase();
  expect(listFound(jobs)).toEqual([]);
});

it('keeps free pages for the next jobs while there are many commits, and empties the log', async () => {
  const jobs = await insertJobs(70);
  for (let i = 0; i < 200; i++) await store.write((tx) => tx.removeWorker('none', 'none'));
  await remove(jobs);
  const size = () => statSync(path).size;
  const before = size();
  await erase();
  expect(statSync(`${path}-wal`).size).toBe(0);
  expect(size()).toBeGreaterThanOrEqual(before);
  const full = size();
  await clock.advance(30_000);
  await erasure.tick(signal);
  expect(size()).toBeLessThan(full / 2);
  expect(listFound(jobs)).toEqual([]);
});
