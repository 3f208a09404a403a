// Large payloads on a store that keeps them in files: when rows replace a file, and that no file outlives its job.
import { mkdirSync, mkdtempSync, readdirSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { completeLeases, type GivenLease } from '../../../../src/queue/leases/handover.ts';
import { LargePayloads } from '../../../../src/queue/payloads/large-payloads.ts';
import { completeSettings } from '../../../../src/queue/settings.ts';
import { locatePayloads, PayloadFolder } from '../../../../src/store/disk/payload-files.ts';
import { DiskReserve, SpaceGate } from '../../../../src/store/disk/space-gate.ts';
import type { StoreFailure } from '../../../../src/store/disk/store-failures.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import {
  ENDING,
  type JobKey,
  PayloadFileError,
  type StagedPayload,
  type Store,
  type StoredJob,
  type UploadedPayload,
} from '../../../../src/store/store.ts';
import {
  addEndpoint,
  ENDPOINT,
  makeDelivery,
  makeJob,
} from '../../../support/store/stored-jobs.ts';

/** More than one row names the file. */
const BYTES = 2_500_000;
const KEY: JobKey = { endpointId: ENDPOINT, id: 'a' };
const JOB = makeJob({ id: 'a', webhook: 'https://example.com/done' });

let parent: string;
let path: string;
let gate: SpaceGate;
let failures: StoreFailure[];
let store: Store;
let payloads: LargePayloads;

beforeEach(async () => {
  parent = mkdtempSync(join(tmpdir(), 'millrace-queue-files-'));
  path = join(parent, 'm.db');
  const reserve = new DiskReserve({ path: join(parent, 'reserve'), bytes: 40 * 1_048_576 });
  gate = new SpaceGate(reserve);
  failures = [];
  store = openSqliteStore({ path, gate, onFailure: (failure) => failures.push(failure) });
  payloads = openPayloads();
  await addEndpoint(store);
});
afterEach(async () => {
  await store.close();
  rmSync(parent, { recursive: true });
});

function openPayloads(changes: Partial<Store> = {}): LargePayloads {
  const { files } = store;
  const observed: Store = {
    read: (operation) => store.read(operation),
    write: (operation, options) => store.write(operation, options),
    reclaim: (pages) => store.reclaim(pages),
    close: () => store.close(),
    files,
    ...changes,
  };
  return new LargePayloads({ store: observed, settings: completeSettings() });
}

/** Differs in each part of a file, and for each value. */
function makeBytes(value: number): Buffer {
  return Buffer.alloc(BYTES, Buffer.from(`${value}, and text of an odd length;`));
}

async function upload(
  kind: StagedPayload['kind'],
  bytes: Uint8Array,
  key = KEY,
): Promise<UploadedPayload> {
  const payload = await payloads.upload({ kind, key, bytes, options: ENDING });
  payloads.release(payload);
  return payload;
}

async function addJob(job: StoredJob = JOB, value = 1): Promise<void> {
  const input = await upload('input', makeBytes(value), job);
  await store.write((tx) => tx.insertJob(job, input), ENDING);
}

async function putOutput(value: number): Promise<void> {
  const output = await upload('output', makeBytes(value));
  await store.write((tx) => tx.putOutput(KEY, output));
}

async function removeJob(job: StoredJob = JOB): Promise<void> {
  await store.write((tx) => tx.removeJob(job));
}

async function deleteAll(): Promise<void> {
  while (await payloads.deleteSome());
}

const listFiles = () => {
  const isThere = readdirSync(parent).includes('m.db.payloads');
  return isThere ? readdirSync(locatePayloads(path)) : [];
};

/** Rows that have bytes of payloads, and rows that name parts of files. */
function countRows(): { inRows: number; inFiles: number } {
  const database = new DatabaseSync(path, { readOnly: true });
  const rows = database
    .prepare('select file_bytes from job_input union all select file_bytes from job_output')
    .all();
  database.close();
  const inRows = rows.filter((row) => row['file_bytes'] === null).length;
  return { inRows, inFiles: rows.length - inRows };
}

async function expectPayload(kind: StagedPayload['kind'], value: number, key = KEY): Promise<void> {
  const read = (await payloads.read(kind, key, BYTES)) ?? Buffer.from('');
  expect(Buffer.compare(read, makeBytes(value))).toBe(0);
}

function fileOf(payload: StagedPayload): string {
  return new PayloadFolder({ folder: locatePayloads(path) }).locate(payload);
}

describe('an upload', () => {
  it('is in a file, which rows name', async () => {
    await addJob();
    expect(listFiles()).toHaveLength(1);
    expect(countRows()).toEqual({ inRows: 0, inFiles: 3 });
    await expectPayload('input', 1);
  });

  it('puts a small input of a batch into a row', async () => {
    const { partBytes } = payloads;
    const bytes = makeBytes(1).subarray(0, partBytes);
    await upload('input', bytes);
    expect(listFiles()).toEqual([]);
    expect(countRows()).toEqual({ inRows: 1, inFiles: 0 });
    await upload('input', makeBytes(1).subarray(0, partBytes + 1));
    expect(listFiles()).toHaveLength(1);
  });

  it('is in rows if its file cannot be written', async () => {
    writeFileSync(locatePayloads(path), 'a file instead of the folder');
    await addJob();
    await expectPayload('input', 1);
    expect(failures).toMatchObject([{ operation: 'payload', code: 'ENOTDIR' }]);
    rmSync(locatePayloads(path));
    await deleteAll();
    expect(countRows()).toMatchObject({ inFiles: 0 });
    await expectPayload('input', 1);
  });

  it('is in rows while the disk is full, and in a file again when it has space', async () => {
    gate.close();
    await addJob();
    expect(listFiles()).toEqual([]);
    await expectPayload('input', 1);
    gate.open();
    await addJob(makeJob({ id: 'b', position: 2 }), 2);
    expect(listFiles()).toHaveLength(1);
    const other = { ...KEY, id: 'b' };
    await expectPayload('input', 2, other);
  });
});

describe('no file and no row stays', () => {
  afterEach(async () => {
    await deleteAll();
    expect(listFiles()).toEqual([]);
    expect(countRows()).toEqual({ inRows: 0, inFiles: 0 });
    expect(await store.read((tx) => tx.unusedPayloads(1))).toEqual([]);
    expect(failures).toEqual([]);
  });

  it('of a job that is removed', async () => {
    await addJob();
    await putOutput(2);
    await removeJob();
    expect(listFiles()).toHaveLength(2);
  });

  it('of many jobs that are removed together', async () => {
    const jobs = Array.from({ length: 5 }, (_, n) => makeJob({ id: `${n}`, position: n }));
    for (const job of jobs) await addJob(job);
    await store.write((tx) => {
      for (const job of jobs) tx.removeJob(job);
    });
  });

  it('of an output that another one replaced', async () => {
    await addJob();
    await putOutput(1);
    await putOutput(2);
    await deleteAll();
    expect(listFiles()).toHaveLength(2);
    await expectPayload('output', 2);
    await removeJob();
  });

  it('of an output that was dropped', async () => {
    await addJob();
    await putOutput(1);
    await store.write((tx) => tx.dropOutput(KEY));
    expect(await store.read((tx) => tx.output(KEY))).toBeUndefined();
    await deleteAll();
    expect(listFiles()).toHaveLength(1);
    await expectPayload('input', 1);
    await removeJob();
  });

  it('of an endpoint that is removed before the deliveries of its jobs', async () => {
    await addJob();
    await putOutput(1);
    const delivery = makeDelivery({ id: 'd', jobId: 'a' });
    await store.write((tx) => tx.insertDelivery(delivery, [{ outputOf: KEY }]));
    await removeJob();
    await deleteAll();
    expect(listFiles()).toHaveLength(1);
    await store.write((tx) => tx.removeEndpoint(ENDPOINT));
  });

  it('of an upload that no operation used', async () => {
    await upload('output', makeBytes(1));
  });

  it('of an upload to a job that was removed, while its other payloads are deleted', async () => {
    await addJob();
    await removeJob();
    const { files } = store;
    if (!files) throw new Error('the store has no files');
    let input: UploadedPayload | undefined;
    // Between the removal of the files and the deletion of the rows, another upload begins.
    const racing = openPayloads({
      files: {
        isUsable: true,
        write: (payload, piece) => files.write(payload, piece),
        read: (payload, at, part) => files.read(payload, at, part),
        reportLost: (payload) => files.reportLost(payload),
        remove: async (removed) => {
          const kept = await files.remove(removed);
          input = await racing.upload({ kind: 'input', key: KEY, bytes: makeBytes(2) });
          return kept;
        },
      },
    });
    await racing.deleteSome();
    expect(input).toBeDefined();
  });
});

it('deletes other files beside one that cannot be removed, and tries that again', async () => {
  const [stuck] = [await upload('input', makeBytes(1)), await upload('output', makeBytes(2))];
  rmSync(fileOf(stuck));
  mkdirSync(fileOf(stuck));
  await deleteAll();
  expect(listFiles()).toEqual([basename(fileOf(stuck))]);
  expect(await store.read((tx) => tx.unusedPayloads(10))).toMatchObject([{ origin: stuck.origin }]);
  expect(failures).toMatchObject([{ operation: 'payload' }]);
  rmdirSync(fileOf(stuck));
  await deleteAll();
  expect(await store.read((tx) => tx.unusedPayloads(10))).toEqual([]);
  expect(countRows()).toEqual({ inRows: 0, inFiles: 0 });
});

describe('a lost file', () => {
  let input: UploadedPayload;

  beforeEach(async () => {
    input = await upload('input', makeBytes(1));
    await store.write((tx) => tx.insertJob(JOB, input));
    rmSync(fileOf(input));
  });

  it('is reported to the reader', async () => {
    const lost = payloads.read('input', KEY, BYTES);
    await expect(lost).rejects.toThrow(PayloadFileError);
    await expect(lost).rejects.toThrow(fileOf(input));
    expect(failures).toMatchObject([{ operation: 'payload', code: 'ENOENT' }]);
  });

  it('is no failure if the job was removed meanwhile', async () => {
    const read = openPayloads({
      read: async (operation) => {
        const found = await store.read(operation);
        await removeJob().catch(() => {});
        return found;
      },
    });
    expect(await read.read('input', KEY, BYTES)).toBeUndefined();
    expect(failures).toEqual([]);
  });

  it('keeps its job from the worker, and no other job', async () => {
    await addJob(makeJob({ id: 'b', position: 2 }), 2);
    const leases = await completeLeases(ENDPOINT, ['a', 'b'].map(leaseOf), { payloads, store });
    expect(leases.map(({ jobId }) => jobId)).toEqual(['b']);
    expect(Buffer.compare(leases[0]?.input ?? Buffer.from(''), makeBytes(2))).toBe(0);
  });
});

describe('the record of a delivery', () => {
  const delivery = makeDelivery({ id: 'd', jobId: 'a' });

  async function readRecord(): Promise<string> {
    const parts: Uint8Array[] = [];
    for (;;) {
      const part = await store.read((tx) => tx.deliveryPart(delivery, parts.length));
      if (!part) return Buffer.concat(parts).toString();
      parts.push(part);
    }
  }

  it('has the output of the file, also when the job has been removed', async () => {
    await addJob();
    await putOutput(3);
    const pieces = [Buffer.from('{"output":'), { outputOf: KEY }, Buffer.from('}')];
    await store.write((tx) => tx.insertDelivery(delivery, pieces));
    const record = `{"output":${makeBytes(3)}}`;
    expect((await readRecord()) === record).toBe(true);
    await removeJob();
    await deleteAll();
    expect((await readRecord()) === record).toBe(true);
    expect(listFiles()).toHaveLength(1);
    await store.write((tx) => tx.removeDelivery(delivery));
    await deleteAll();
    expect(await readRecord()).toBe('');
    expect(listFiles()).toEqual([]);
  });
});

function leaseOf(jobId: string): GivenLease {
  return {
    ...{ jobId, token: `token of ${jobId}`, attempt: 1, executionTimeoutMs: 1_000 },
    ...{ solo: false, submittedAt: 1, input: BYTES },
  };
}
