// Webhook deliveries: stored by receiver and time, independent of their jobs; and removals of jobs with all that they have.
import { expect, it } from 'vitest';
import type { StoredDelivery, StoredJob } from '../../../src/store/store.ts';
import {
  addJobs,
  deleteUnused,
  ENDPOINT,
  makeDelivery,
  makeJob,
} from '../../support/store/stored-jobs.ts';
import { uploadTo } from './store-payloads.ts';
import { bytesOf, idsOf, keyOf, readJob, store, textOf } from './store-under-test.ts';

const RECORD = '{"id":"job-1","output":"ä"}';

async function add(...deliveries: StoredDelivery[]): Promise<void> {
  await store.write((tx) => {
    for (const delivery of deliveries) tx.insertDelivery(delivery, [bytesOf(RECORD)]);
  });
}

async function listDue(receiver: string, now: number, limit = 10): Promise<StoredDelivery[]> {
  return store.read((tx) => tx.dueDeliveries({ userId: 'owner', receiver, now, limit }));
}

async function readRecord(id: string): Promise<string> {
  const parts: Uint8Array[] = [];
  for (let at = 0; ; at++) {
    const part = await store.read((tx) => tx.deliveryPart(keyOf(id), at));
    if (!part) return Buffer.concat(parts).toString();
    parts.push(part);
  }
}

export function describeDeliveries(): void {
  it('are returned unchanged when they are due', async () => {
    const delivery = makeDelivery({
      id: 'd1',
      url: 'http://[::1]:8080/a?b=%C3%A4',
      receiver: '[::1]:8080',
      createdAt: 1_767_225_600_001,
      platformRanMs: 31_536_000_000,
      bytes: 20_971_520,
      attempts: 3,
      nextAt: 1_767_225_600_002,
    });
    await add(delivery);
    expect(await listDue('[::1]:8080', 1_767_225_600_001)).toEqual([]);
    expect(await listDue('[::1]:8080', 1_767_225_600_002)).toEqual([delivery]);
    const record = await store.read((tx) => tx.deliveryPart(keyOf('d1'), 0));
    expect(textOf(record)).toBe(RECORD);
    expect(await store.read((tx) => tx.deliveryPart(keyOf('d2'), 0))).toBeUndefined();
  });

  it('are listed by user and receiver, earliest first, up to a limit', async () => {
    await add(
      makeDelivery({ id: 'late', nextAt: 30 }),
      makeDelivery({ id: 'early', nextAt: 10 }),
      makeDelivery({ id: 'middle', nextAt: 20, endpointId: 'ep_other' }),
      makeDelivery({ id: 'foreign', nextAt: 5, receiver: 'other.example' }),
      makeDelivery({ id: 'of another user', nextAt: 5, userId: 'grace' }),
    );
    expect(idsOf(await listDue('example.com', 30))).toEqual(['early', 'middle', 'late']);
    expect(idsOf(await listDue('example.com', 30, 2))).toEqual(['early', 'middle']);
    expect(idsOf(await listDue('example.com', 20))).toEqual(['early', 'middle']);
    expect(idsOf(await listDue('unknown.example', 30))).toEqual([]);
  });

  it('list each receiver of a user once, with its earliest delivery', async () => {
    expect(await store.read((tx) => tx.receivers())).toEqual([]);
    await add(
      makeDelivery({ id: 'a', receiver: 'b.example', nextAt: 30 }),
      makeDelivery({ id: 'b', receiver: 'a.example', nextAt: 20 }),
      makeDelivery({ id: 'c', receiver: 'b.example', nextAt: 10 }),
      makeDelivery({ id: 'd', receiver: 'b.example', nextAt: 5, userId: 'grace' }),
    );
    expect(await store.read((tx) => tx.receivers())).toEqual([
      { userId: 'grace', receiver: 'b.example', nextAt: 5 },
      { userId: 'owner', receiver: 'a.example', nextAt: 20 },
      { userId: 'owner', receiver: 'b.example', nextAt: 10 },
    ]);
  });

  it('return the time of the next delivery to a receiver', async () => {
    await add(
      makeDelivery({ id: 'a', nextAt: 10 }),
      makeDelivery({ id: 'b', nextAt: 30 }),
      makeDelivery({ id: 'c', nextAt: 20, receiver: 'other.example' }),
    );
    const next = (after: number) =>
      store.read((tx) => tx.nextDeliveryAt({ userId: 'owner', receiver: 'example.com' }, after));
    expect(await next(0)).toBe(10);
    expect(await next(10)).toBe(30);
    expect(await next(30)).toBeUndefined();
  });

  it('change only their time and attempts when they are postponed', async () => {
    const delivery = makeDelivery({ id: 'a' });
    const other = makeDelivery({ id: 'b' });
    await add(delivery, other);
    const postponed = { ...delivery, attempts: 1, nextAt: 500 };
    await store.write((tx) => tx.postponeDelivery({ ...postponed, url: 'ignored' }));
    expect(await listDue('example.com', 2_000)).toEqual([postponed, other]);
  });

  it('are removed with their record, and others are kept', async () => {
    await add(makeDelivery({ id: 'a' }), makeDelivery({ id: 'b' }));
    await store.write((tx) => tx.removeDelivery(keyOf('a')));
    expect(idsOf(await listDue('example.com', 2_000))).toEqual(['b']);
    const read = (id: string) => store.read((tx) => tx.deliveryPart(keyOf(id), 0));
    expect([await read('a'), textOf(await read('b'))]).toEqual([undefined, RECORD]);
  });

  it('outlive their job', async () => {
    const job = makeJob({ id: 'job-1', status: 'COMPLETED' });
    await addJobs(store, [job]);
    await add(makeDelivery({ id: 'a', jobId: job.id }));
    await store.write((tx) => tx.removeJob(job));
    expect(idsOf(await listDue('example.com', 2_000))).toEqual(['a']);
    const record = await store.read((tx) => tx.deliveryPart(keyOf('a'), 0));
    expect(textOf(record)).toBe(RECORD);
  });

  it('keep the output of a job in their record after the job is removed', async () => {
    const output = Buffer.alloc(2_500_000, 'x');
    const job = makeJob({ id: 'job-1', status: 'COMPLETED', webhook: 'https://example.com/' });
    await addJobs(store, [job]);
    const bytes = await store.write((tx) => {
      tx.putOutput(job, output);
      const record = [bytesOf('{"output":'), { outputOf: job }, bytesOf('}')];
      tx.insertDelivery(makeDelivery({ id: 'a' }), record);
      return tx.outputBytes(job);
    });
    expect(bytes).toBe(output.length);
    expect(await readRecord('a')).toBe(`{"output":${output}}`);
    await store.write((tx) => tx.removeJob(job));
    expect(await readRecord('a')).toBe(`{"output":${output}}`);
  });

  it.each(['job', 'delivery'])(
    'leave no output behind if the %s is removed first',
    async (first) => {
      const job = makeJob({ id: 'job-1', status: 'COMPLETED', webhook: 'https://example.com/' });
      await addJobs(store, [job]);
      await store.write((tx) => {
        tx.putOutput(job, bytesOf('"done"'));
        tx.insertDelivery(makeDelivery({ id: 'a' }), [{ outputOf: job }]);
      });
      const removals = [
        () => store.write((tx) => tx.removeJob(job)),
        () => store.write((tx) => tx.removeDelivery(keyOf('a'))),
      ];
      if (first === 'delivery') removals.reverse();
      await removals[0]?.();
      if (first === 'job') expect(await readRecord('a')).toBe('"done"');
      else expect(textOf(await store.read((tx) => tx.output(job)))).toBe('"done"');
      await removals[1]?.();
      expect(await store.read((tx) => tx.outputBytes(job))).toBe(0);
    },
  );

  it('leave no output behind if their endpoint is removed', async () => {
    const job = makeJob({ id: 'job-1', status: 'COMPLETED', webhook: 'https://example.com/' });
    await addJobs(store, [job]);
    await store.write((tx) => {
      tx.putOutput(job, bytesOf('"done"'));
      tx.insertDelivery(makeDelivery({ id: 'a' }), [{ outputOf: job }]);
      tx.removeJob(job);
      tx.removeEndpoint(job.endpointId);
    });
    expect(await store.read((tx) => tx.outputBytes(job))).toBe(0);
    expect(await store.read((tx) => tx.deliveryPart(keyOf('a'), 0))).toBeUndefined();
  });

  it('are rolled back with the operation that inserted them', async () => {
    const failing = store.write((tx) => {
      tx.insertDelivery(makeDelivery({ id: 'a' }), [bytesOf(RECORD)]);
      throw new Error('on purpose');
    });
    await expect(failing).rejects.toThrow('on purpose');
    expect(await store.read((tx) => tx.receivers())).toEqual([]);
    expect(await store.read((tx) => tx.deliveryPart(keyOf('a'), 0))).toBeUndefined();
  });

  it('are counted by endpoint', async () => {
    await add(
      makeDelivery({ id: 'a' }),
      makeDelivery({ id: 'b' }),
      makeDelivery({ id: 'a', endpointId: 'ep_other' }),
    );
    expect(await store.read((tx) => tx.countDeliveries())).toEqual([
      { endpointId: 'ep_other', count: 1 },
      { endpointId: 'ep_test', count: 2 },
    ]);
  });
}

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
