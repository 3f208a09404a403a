import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { backUpStore, describeStore } from '../../../../src/store/disk/store-files.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../../src/store/store.ts';
import {
  addEndpoint,
  addJobs,
  makeDelivery,
  makeJob,
} from '../../../conformance/store/stored-jobs.ts';

let folder: string;
let path: string;
let store: Store;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-files-'));
  path = join(folder, 'm.db');
  store = openSqliteStore({ path });
  await addEndpoint(store);
  await addJobs(store, [makeJob({ id: 'a' }), makeJob({ id: 'b', position: 2 })]);
  await store.write((tx) => tx.insertDelivery(makeDelivery({ id: 'd' }), [Buffer.from('{}')]));
});
afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true });
});

it('the description of an open store has its rows by table and its jobs by status', () => {
  const { jobs, rows, ...files } = describeStore(path);
  expect(rows).toEqual({ endpoint: 1, job: 2, delivery: 1, worker: 0, api_key: 0, resource: 0 });
  expect(jobs).toEqual({ IN_QUEUE: 2 });
  expect(files).toMatchObject({
    databaseBytes: statSync(path).size,
    walBytes: statSync(`${path}-wal`).size,
    reserveBytes: 0,
  });
});

it('a backup has the same rows, and only its owner may read it', () => {
  const target = join(folder, 'copy.db');
  backUpStore(path, target);
  expect(describeStore(target).rows).toEqual(describeStore(path).rows);
  expect(statSync(target).mode & 0o777).toBe(0o600);
  expect(() => backUpStore(path, target)).toThrow('EEXIST');
});
