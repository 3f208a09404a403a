import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { LargePayloads } from '../../../../src/queue/payloads/large-payloads.ts';
import { completeSettings } from '../../../../src/queue/settings.ts';
import { locatePayloads, PayloadFolder } from '../../../../src/store/disk/payload-files.ts';
import {
  backUpStore,
  describeStore,
  holdPayloads,
  importPayloads,
} from '../../../../src/store/disk/store-files.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import type { JobKey, StagedPayload, Store, StoredJob } from '../../../../src/store/store.ts';
import {
  addEndpoint,
  addJobs,
  ENDPOINT,
  makeDelivery,
  makeJob,
} from '../../../support/store/stored-jobs.ts';

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

it('describes an open store with its rows by table and its jobs by status', () => {
  const { jobs, rows, ...files } = describeStore(path);
  expect(rows).toEqual({ endpoint: 1, job: 2, delivery: 1, worker: 0, api_key: 0, resource: 0 });
  expect(jobs).toEqual({ IN_QUEUE: 2 });
  expect(files).toMatchObject({
    databaseBytes: statSync(path).size,
    walBytes: statSync(`${path}-wal`).size,
    reserveBytes: 0,
  });
});

it('backs up the same rows into a file that only its owner may read', () => {
  const target = join(folder, 'copy.db');
  backUpStore(path, target);
  expect(describeStore(target).rows).toEqual(describeStore(path).rows);
  expect(statSync(target).mode & 0o777).toBe(0o600);
  expect(() => backUpStore(path, target)).toThrow('EEXIST');
});

describe('a backup with payloads in files', () => {
  /** More than one row names the file. */
  const BYTES = 1_500_000;
  const KEY: JobKey = { endpointId: ENDPOINT, id: 'large' };
  const LARGE = makeJob({ ...KEY, position: 3 });
  let payloads: LargePayloads;
  let target: string;

  beforeEach(() => {
    const settings = completeSettings();
    payloads = new LargePayloads({ store, settings });
    target = join(folder, 'copy.db');
  });

  async function addInput(job: StoredJob): Promise<StagedPayload> {
    const bytes = Buffer.alloc(BYTES, 'i');
    const input = await payloads.upload({ kind: 'input', key: job, bytes });
    await store.write((tx) => tx.insertJob(job, input));
    payloads.release(input);
    return input;
  }

  async function putOutput(text: string): Promise<void> {
    const bytes = Buffer.alloc(BYTES, text);
    const output = await payloads.upload({ kind: 'output', key: KEY, bytes });
    await store.write((tx) => tx.putOutput(KEY, output));
    payloads.release(output);
  }

  /** Reads the copy as a platform that has no other file. */
  async function readCopy<T>(read: (copy: Store) => Promise<T>): Promise<T> {
    const copy = openSqliteStore({ path: target });
    try {
      return await read(copy);
    } finally {
      await copy.close();
    }
  }

  const isFilled = (bytes: Uint8Array | undefined, value: string | number) =>
    Buffer.compare(bytes ?? Buffer.from(''), Buffer.alloc(BYTES, value)) === 0;

  const readPayloads = (copy: Store, key: JobKey) =>
    copy.read((tx) => {
      return { input: tx.input(key), output: tx.output(key) };
    });

  it('has their bytes in the copy, and leaves no links behind', async () => {
    await addInput(LARGE);
    await putOutput('o');
    const files = readdirSync(locatePayloads(path));
    expect(describeStore(path).payloadBytes).toBe(2 * BYTES);
    expect(backUpStore(path, target)).toEqual([]);
    expect(readdirSync(locatePayloads(path))).toEqual(files);
    expect(describeStore(target).payloadBytes).toBe(0);
    const { input, output } = await readCopy((copy) => readPayloads(copy, KEY));
    expect([isFilled(input, 'i'), isFilled(output, 'o')]).toEqual([true, true]);
    expect(existsSync(locatePayloads(target))).toBe(false);
  });

  it('has the output of a removed job whose delivery is pending', async () => {
    await addInput({ ...LARGE, webhook: 'https://example.com/done' });
    await putOutput('o');
    const delivery = makeDelivery({ id: 'of-large', jobId: 'large' });
    await store.write((tx) => tx.insertDelivery(delivery, [{ outputOf: KEY }]));
    await store.write((tx) => tx.removeJob({ ...LARGE, webhook: 'https://example.com/done' }));
    while (await payloads.deleteSome());
    backUpStore(path, target);
    const sizes = await readCopy((copy) =>
      copy.read((tx) => {
        const parts = [tx.deliveryPart(delivery, 0), tx.deliveryPart(delivery, 1)];
        return parts.map((part) => part?.length);
      }),
    );
    expect(sizes).toEqual([1_048_576, BYTES - 1_048_576]);
  });

  it('works if an upload has no file yet, and a platform on the copy deletes its rows', async () => {
    await addInput(LARGE);
    await store.write((tx) => tx.beginFile('output', KEY, BYTES));
    backUpStore(path, target);
    const unused = await readCopy(async (copy) => {
      const settings = completeSettings();
      const ofCopy = new LargePayloads({ store: copy, settings });
      while (await ofCopy.deleteSome());
      return copy.read((tx) => tx.unusedPayloads(1));
    });
    expect(unused).toEqual([]);
  });

  it('lacks a payload whose file is lost, and says so', async () => {
    const input = await addInput(LARGE);
    await putOutput('o');
    const file = new PayloadFolder({ folder: locatePayloads(path) }).locate(input);
    rmSync(file);
    expect(backUpStore(path, target)).toEqual([
      `the file ${file} with the input of job large of endpoint ${ENDPOINT} is missing or too short`,
    ]);
    expect(readdirSync(locatePayloads(path))).toHaveLength(1);
    const output = await readCopy((copy) => copy.read((tx) => tx.output(KEY)));
    expect(isFilled(output, 'o')).toBe(true);
    const lost = readCopy((copy) => copy.read((tx) => tx.input(KEY)));
    await expect(lost).rejects.toThrow('it is missing or too short');
  });

  it('keeps files that are removed while the database is copied', async () => {
    await addInput(LARGE);
    const held = holdPayloads(path);
    const copy = copyDatabase();
    await store.write((tx) => tx.removeJob(LARGE));
    while (await payloads.deleteSome());
    importPayloads(copy, held);
    copy.close();
    held.release();
    const { input } = await readCopy((each) => readPayloads(each, KEY));
    expect(isFilled(input, 'i')).toBe(true);
    expect(readdirSync(locatePayloads(path))).toEqual([]);
  });

  it('has files that are added while the database is copied', async () => {
    await addInput(makeJob({ id: 'before', position: 4 }));
    const held = holdPayloads(path);
    await addInput(LARGE);
    const copy = copyDatabase();
    importPayloads(copy, held);
    copy.close();
    held.release();
    const { input } = await readCopy((each) => readPayloads(each, KEY));
    expect(isFilled(input, 'i')).toBe(true);
  });

  it('has the output that the copied rows name, not the one before it', async () => {
    await addInput(LARGE);
    await putOutput('o');
    const held = holdPayloads(path);
    await store.write((tx) => tx.dropOutput(KEY));
    while (await payloads.deleteSome());
    await putOutput('new');
    const copy = copyDatabase();
    expect(importPayloads(copy, held)).toEqual([]);
    copy.close();
    held.release();
    const { output } = await readCopy((each) => readPayloads(each, KEY));
    expect(isFilled(output, 'new')).toBe(true);
  });

  it('has whole payloads of each job while another process adds and removes jobs', async () => {
    const writer = fileURLToPath(
      new URL('../../../support/store/churning-writer.ts', import.meta.url),
    );
    await store.close();
    const child = spawn(process.execPath, [writer, path], { stdio: ['ignore', 'pipe', 'inherit'] });
    const exited = once(child, 'exit');
    try {
      for (let backup = 0; backup < 3; backup++) {
        await once(child.stdout, 'data');
        await backUpRepeatedly();
        const { large, whole } = await readCopy(countJobs);
        expect(large).toBeGreaterThan(0);
        expect(whole).toBe(large);
        rmSync(target);
      }
    } finally {
      child.kill('SIGKILL');
      await exited;
      store = openSqliteStore({ path });
    }
    const names = readdirSync(locatePayloads(path));
    expect(names.filter((name) => name.startsWith('backup-'))).toEqual([]);
  });

  /** As `backUpStore` does it, after it has linked the files. */
  function copyDatabase(): DatabaseSync {
    const database = new DatabaseSync(path, { readOnly: true });
    database.prepare('vacuum into ?').run(target);
    database.close();
    return new DatabaseSync(target);
  }

  async function backUpRepeatedly(): Promise<void> {
    for (;;) {
      try {
        expect(backUpStore(path, target)).toEqual([]);
        return;
      } catch (error) {
        if (!String(error).includes('run the backup again')) throw error;
      }
    }
  }

  /** Jobs of the other process, and those of them whose payloads are whole. */
  async function countJobs(copy: Store): Promise<{ large: number; whole: number }> {
    const queued = await copy.read((tx) => tx.queuedJobs(ENDPOINT, 1_000));
    const large = queued.filter(({ id }) => /^\d+$/.test(id));
    let whole = 0;
    for (const job of large) {
      const { input, output } = await readPayloads(copy, job);
      const value = job.position % 251;
      if (isFilled(input, value) && isFilled(output, value)) whole++;
    }
    return { large: large.length, whole };
  }
});
