// The queue of a deleted endpoint: open waits end at once, and jobs are removed in batches.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { StoredJob } from '../../../src/store/store.ts';
import { ENDPOINT, Hand, NEVER, Platform } from '../../support/queue-platform.ts';
import { addEndpoint, addJobs, makeJob } from '../../support/store/stored-jobs.ts';

/** More than go in one operation. */
const MANY = 1_300;

let platform: Platform;
let worker: Hand;

beforeEach(async () => {
  platform = new Platform();
  await platform.start();
  worker = new Hand(() => platform.queue.link(ENDPOINT));
});

afterEach(() => platform.close());

async function markDeleted(): Promise<void> {
  await platform.store.write((tx) => {
    const endpoint = tx.endpoint(ENDPOINT);
    if (endpoint) tx.putEndpoint({ ...endpoint, deleted: true });
  });
}

/** All newer than any job that is submitted: the newest are removed first. */
async function addMany(endpointId = ENDPOINT): Promise<void> {
  const now = platform.clock.now();
  const times = { expiresAt: now + 1e9, dueAt: now + 1e9, submittedAt: now, queuedAt: now };
  const jobs = Array.from({ length: MANY }, (_, n) =>
    makeJob({ ...times, endpointId, id: `job-${n}`, position: 2 ** 52 + n }),
  );
  await addJobs(platform.store, jobs);
}

function listJobs(endpointId = ENDPOINT): Promise<StoredJob[]> {
  const listing = { endpointId, status: undefined, before: undefined, limit: 10_000 };
  return platform.store.read((tx) => tx.jobs(listing));
}

const drop = (signal = NEVER) => platform.queue.removal.drop(ENDPOINT, signal);

/** Deletes the endpoint; fails if everything was gone before the answer had come. */
async function endsBeforeTheJobs<T>(answer: Promise<T>): Promise<T> {
  const ended = answer.then(
    async (value) => ({ value, left: await listJobs() }),
    async (error: unknown) => ({ error, left: await listJobs() }),
  );
  await markDeleted();
  const dropped = drop();
  const { left, ...outcome } = await ended;
  expect(left.length).toBeGreaterThan(0);
  expect(await dropped).toBe(true);
  if ('error' in outcome) throw outcome.error;
  return outcome.value;
}

/** Names the endpoint: an unknown job is `not_found` too. */
const notFound = { code: 'not_found', message: expect.stringContaining(ENDPOINT) };

describe('a call that waits at an endpoint while it is deleted', () => {
  it('rejects at once with not_found if it waits for the end of a job', async () => {
    await addMany();
    const key = { endpointId: ENDPOINT, id: await platform.submit() };
    const waiting = platform.queue.jobs.waitForEnd(key, 90_000, NEVER);
    await platform.clock.advance(0);
    await expect(endsBeforeTheJobs(waiting)).rejects.toMatchObject(notFound);
  });

  it('rejects at once with not_found if it waits for the next chunk', async () => {
    await addMany();
    const key = { endpointId: ENDPOINT, id: await platform.submit() };
    const request = { ...key, after: undefined, waitMs: 90_000, maxBytes: 1_000, signal: NEVER };
    const waiting = platform.queue.streams.read(request);
    await platform.clock.advance(0);
    await expect(endsBeforeTheJobs(waiting)).rejects.toMatchObject(notFound);
  });

  it('returns no lease if it is a take', async () => {
    await worker.hello();
    const { answer } = await platform.park('take', () => worker.take({ waitMs: 20_000 }));
    await addMany();
    expect(await endsBeforeTheJobs(answer)).toEqual([]);
  });

  it('reports the lease as lost and drains the worker if it is a renewal', async () => {
    const id = await platform.submit();
    await worker.hello();
    const lease = await worker.takeOne();
    await addMany();
    const call = () => worker.renew([lease], { waitMs: 5_000 });
    const { answer } = await platform.park('renew', call);
    expect(await endsBeforeTheJobs(answer)).toEqual({
      ended: [{ jobId: id, token: lease.token, verdict: 'lost' }],
      drain: true,
    });
  });
});

describe('an endpoint that is being removed', () => {
  it('is not found by any call while its jobs still exist', async () => {
    const id = await platform.submit();
    await addMany();
    await markDeleted();
    const broken = new AbortController();
    broken.abort();
    expect(await drop(broken.signal)).toBe(false);
    const { jobs, streams } = platform.queue;
    const key = { endpointId: ENDPOINT, id };
    const page = { endpointId: ENDPOINT, status: undefined, before: undefined, limit: 1 };
    const read = { ...key, after: undefined, waitMs: 0, maxBytes: 1_000, signal: NEVER };
    for (const call of [
      () => jobs.record(key),
      () => jobs.waitForEnd(key, 0, NEVER),
      () => jobs.cancel(key),
      () => jobs.retry(key),
      () => jobs.setTtl(key, 10_000),
      () => jobs.log(key, 0),
      () => jobs.list(page),
      () => jobs.purge(ENDPOINT),
      () => streams.read(read),
      () => platform.submit(),
      () => platform.health(),
    ]) {
      await expect(call()).rejects.toMatchObject(notFound);
    }
    expect(await listJobs()).toHaveLength(MANY + 1);
  });

  it('refuses new workers and forgets the present ones', async () => {
    await worker.hello();
    await markDeleted();
    await drop();
    await expect(worker.take()).rejects.toMatchObject({ code: 'unknown_worker' });
    await expect(worker.hello()).rejects.toMatchObject({ code: 'unavailable' });
  });

  it('leaves jobs and waits of other endpoints alone', async () => {
    const other = `${ENDPOINT}2`;
    await addEndpoint(platform.store, other);
    await addMany(other);
    await addMany();
    const key = { endpointId: other, id: 'job-0' };
    const waiting = platform.queue.jobs.waitForEnd(key, 90_000, NEVER);
    await markDeleted();
    expect(await drop()).toBe(true);
    expect(await listJobs()).toEqual([]);
    expect(await listJobs(other)).toHaveLength(MANY);
    await platform.queue.jobs.cancel(key);
    expect(await waiting).toMatchObject({ status: 'CANCELLED' });
  });

  it('keeps the remaining jobs for the next start when the queue closes', async () => {
    await addMany();
    await markDeleted();
    const dropped = drop();
    await platform.queue.close();
    expect(await dropped).toBe(false);
    const left = (await listJobs()).length;
    expect(left).toBeGreaterThan(0);
    await platform.restart();
    expect(await drop()).toBe(true);
    expect(await listJobs()).toEqual([]);
  });

  it('frees its ID when nothing is left and it is forgotten', async () => {
    await addMany();
    await markDeleted();
    await drop();
    await platform.store.write((tx) => tx.removeEndpoint(ENDPOINT));
    platform.queue.removal.forget(ENDPOINT);
    await addEndpoint(platform.store, ENDPOINT);
    await worker.hello();
    const id = await platform.submit();
    expect(await platform.record(id)).toMatchObject({ id, status: 'IN_QUEUE' });
    expect(await worker.takeOne()).toMatchObject({ jobId: id });
  });
});
