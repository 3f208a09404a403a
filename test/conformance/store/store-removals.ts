// Removals of many jobs in one commit.
import { expect, it } from 'vitest';
import type { StoredJob } from '../../../src/store/store.ts';
import {
  addJobs,
  deleteUnused,
  ENDPOINT,
  makeDelivery,
  makeJob,
} from '../../support/store/stored-jobs.ts';
import { uploadTo } from './store-payloads.ts';
import { bytesOf, idsOf, keyOf, readJob, store, textOf } from './store-under-test.ts';

const SMALL = bytesOf('"small"');
/** Larger than what the row of a job has, smaller than what becomes unused. */
const MEDIUM = new Uint8Array(100_000).fill(1);
const URL = 'https://example.com/';

const ANOTHER = 'ep_another';

/** All that belongs to a job: whether it exists, its payloads, chunks and log. */
function readAll(key: { endpointId: string; id: string }): Promise<unknown[]> {
  return store.read((tx) => {
    const job = tx.job(key);
    const payloads = [tx.input(key), tx.output(key)];
    const range = { ...key, attempt: 1, from: 0, maxBytes: 100 };
    const chunks = tx.chunks(range);
    const log = textOf(tx.log(range));
    return [job?.id, ...payloads.map((bytes) => bytes?.length), chunks.length, log];
  });
}

const NOTHING = [undefined, undefined, undefined, 0, ''];

/** 80 jobs, every other one with all kinds of data. */
async function addMany(endpointId: string): Promise<StoredJob[]> {
  const jobs = Array.from({ length: 80 }, (_, position) =>
    makeJob({ id: `job-${position}`, endpointId, position, logBytes: position % 2 ? 0 : 5 }),
  );
  await store.write((tx) => {
    for (const job of jobs) {
      const isPlain = job.position % 2 === 1;
      tx.insertJob(job, isPlain ? SMALL : MEDIUM);
      if (isPlain) continue;
      tx.putOutput(job, MEDIUM);
      const batch = { first: 0, sizes: [2], bytes: bytesOf('{}') };
      tx.appendChunks({ ...job, attempt: 1 }, batch);
      tx.appendLog(job, 0, bytesOf('line\n'));
    }
  });
  return jobs;
}

export function describeRemovals(): void {
  it.each([1, 2, 31, 32, 33, 79])('remove %i jobs with all of their data', async (count) => {
    const jobs = await addMany(ENDPOINT);
    const others = await addMany(ANOTHER);
    await store.write((tx) => {
      for (const job of jobs.slice(0, count)) tx.removeJob(job);
      for (const job of others.slice(0, 3)) tx.removeJob(job);
    });
    for (const job of [...jobs.slice(0, count), ...others.slice(0, 3)]) {
      expect(await readAll(job)).toEqual(NOTHING);
    }
    await deleteUnused(store);
    for (const job of [...jobs.slice(count), ...others.slice(3)]) {
      const hasAll = job.position % 2 === 0;
      const all = [job.id, MEDIUM.length, MEDIUM.length, 1, 'line\n'];
      const plain = [job.id, SMALL.length, undefined, 0, ''];
      expect(await readAll(job)).toEqual(hasAll ? all : plain);
    }
    const counted = await store.read((tx) => tx.endpoint(ENDPOINT));
    expect(counted?.inQueue).toBe(80 - count);
  });

  it('are undone with their operation', async () => {
    const jobs = await addMany(ENDPOINT);
    const refused = store.write((tx) => {
      for (const job of jobs.slice(0, 40)) tx.removeJob(job);
      throw new Error('refused');
    });
    const kept = store.write((tx) => {
      for (const job of jobs.slice(40, 75)) tx.removeJob(job);
    });
    await expect(refused).rejects.toThrow('refused');
    await kept;
    expect(await readAll(keyOf('job-0'))).toEqual(['job-0', 100_000, 100_000, 1, 'line\n']);
    expect(await readAll(keyOf('job-40'))).toEqual(NOTHING);
    const list = { endpointId: ENDPOINT, status: undefined, before: undefined, limit: 100 };
    expect(await store.read((tx) => tx.jobs(list))).toHaveLength(45);
  });

  it('leave nothing of a job that the same operation added', async () => {
    const parts = [1, 2].map((value) => new Uint8Array(300_000).fill(value));
    const input = await uploadTo(store, { kind: 'input', key: keyOf('a'), parts });
    const [uploaded, medium] = [makeJob({ id: 'a' }), makeJob({ id: 'b', position: 2 })];
    await store.write((tx) => {
      tx.insertJob(uploaded, input);
      tx.insertJob(medium, MEDIUM);
      tx.removeJob(uploaded);
      tx.removeJob(medium);
    });
    for (const id of ['a', 'b']) expect(await readAll(keyOf(id))).toEqual(NOTHING);
    await deleteUnused(store);
    // A job with the same ID would have the payload again.
    await store.write((tx) => tx.insertJob(medium, SMALL));
    expect(await readAll(medium)).toEqual(['b', SMALL.length, undefined, 0, '']);
  });

  it('free their idempotency keys within the operation', async () => {
    const job = makeJob({ id: 'a', idempotencyKey: 'k' });
    await addJobs(store, [job]);
    const again = makeJob({ id: 'b', idempotencyKey: 'k', position: 2 });
    await store.write((tx) => {
      tx.removeJob(job);
      tx.insertJob(again, SMALL);
    });
    expect(await readJob('a')).toBeUndefined();
    const found = await store.read((tx) => tx.jobByIdempotencyKey(ENDPOINT, 'k'));
    expect(found?.id).toBe('b');
  });

  it('keep the outputs that deliveries refer to, and only those', async () => {
    const jobs = Array.from({ length: 5 }, (_, position) =>
      makeJob({ id: `job-${position}`, position, status: 'COMPLETED', webhook: URL }),
    );
    await addJobs(store, jobs);
    await store.write((tx) => {
      for (const job of jobs) tx.putOutput(job, MEDIUM);
      for (const job of jobs.slice(0, 2)) {
        tx.insertDelivery(makeDelivery({ id: `of-${job.id}` }), [{ outputOf: job }]);
      }
    });
    await store.write((tx) => {
      for (const job of jobs) tx.removeJob(job);
    });
    await deleteUnused(store);
    const measure = (id: string) => store.read((tx) => tx.outputBytes(keyOf(id)));
    for (const id of ['job-2', 'job-3', 'job-4']) expect(await measure(id)).toBe(0);
    const part = await store.read((tx) => tx.deliveryPart(keyOf('of-job-1'), 0));
    expect(part?.length).toBe(MEDIUM.length);
    await store.write((tx) => tx.removeDelivery(keyOf('of-job-0')));
    expect(await measure('job-0')).toBe(0);
    expect(idsOf(await store.read((tx) => tx.deliveriesOf(ENDPOINT, 9)))).toEqual(['of-job-1']);
  });
}
