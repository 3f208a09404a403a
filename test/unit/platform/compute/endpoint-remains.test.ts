// What follows the deletion of an endpoint, also over the death of the platform.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { letOthersRun, ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { Endpoints } from '../../../../src/control/endpoints/endpoints.ts';
import { EndpointDeletion } from '../../../../src/platform/compute/endpoint-remains.ts';
import { Queue } from '../../../../src/queue/queue.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { OWNER, type Store } from '../../../../src/store/store.ts';
import { addJobs, makeJob } from '../../../support/store/stored-jobs.ts';
import { syncAtOnce } from '../../../support/sync-at-once.ts';

const ID = 'demo';
const JOBS = 20_000;
const LONG = { timeout: 60_000 };

let folder: string;
let platform: Platform;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-deletion-'));
  platform = await openPlatform();
});

afterEach(async () => {
  await platform.close();
  await rm(folder, { recursive: true });
});

interface Platform {
  clock: ManualClock;
  store: Store;
  queue: Queue;
  endpoints: Endpoints;
  deletion: EndpointDeletion;
  close: () => Promise<void>;
}

async function openPlatform(endWorkers = async (_id: string) => {}): Promise<Platform> {
  const clock = new ManualClock();
  const store = openSqliteStore({ path: join(folder, 'millrace.db'), syncFile: syncAtOnce });
  const endpoints = await Endpoints.open({ store, clock });
  const queue = new Queue({ store, clock, log: silentLog });
  await queue.start();
  const rest = { store, clock, log: silentLog, endpoints, endWorkers };
  const deletion = new EndpointDeletion({ ...rest, jobs: queue.removal });
  await deletion.start();
  const close = async () => {
    await deletion.close();
    await queue.close();
    await store.close();
  };
  return { clock, store, queue, endpoints, deletion, close };
}

/** With jobs in it. */
async function declareEndpoint({ clock, endpoints, store }: Platform, count: number) {
  await endpoints.ensureEndpoint(ID);
  const now = clock.now();
  const times = { expiresAt: now + 1e9, dueAt: now + 1e9, submittedAt: now, queuedAt: now };
  const jobs = Array.from({ length: count }, (_, n) =>
    makeJob({ ...times, endpointId: ID, id: `job-${n}`, position: n + 1 }),
  );
  await addJobs(store, jobs);
}

async function countJobs({ store }: Platform): Promise<number> {
  const listing = { endpointId: ID, status: undefined, before: undefined, limit: JOBS };
  return (await store.read((tx) => tx.jobs(listing))).length;
}

function submit({ queue }: Platform, endpointId: string) {
  return queue.submissions.submit({
    ...{ endpointId, mode: 'run', input: Buffer.from('{}') },
    ...{ policy: {}, idempotency: undefined },
  });
}

const readRow = ({ store }: Platform) => store.read((tx) => tx.endpoint(ID));

it('leaves neither a job nor the endpoint', LONG, async () => {
  await declareEndpoint(platform, JOBS);
  await platform.endpoints.remove(OWNER, ID);
  await platform.deletion.settled(ID);
  expect(await countJobs(platform)).toBe(0);
  expect(await readRow(platform)).toBeUndefined();
  await platform.endpoints.ensureEndpoint(ID);
  const { id } = await submit(platform, ID);
  const record = await platform.queue.jobs.record({ endpointId: ID, id });
  expect(record.status).toBe('IN_QUEUE');
});

it('does not block the store meanwhile', LONG, async () => {
  await platform.endpoints.ensureEndpoint('other');
  await declareEndpoint(platform, JOBS);
  await platform.endpoints.remove(OWNER, ID);
  let isSettled = false;
  const settled = platform.deletion.settled(ID).then(() => {
    isSettled = true;
  });
  let submitted = 0;
  for (; !isSettled; submitted++) {
    await submit(platform, 'other');
  }
  await settled;
  // One at least between any two operations that remove 500.
  expect(submitted).toBeGreaterThanOrEqual(JOBS / 500);
});

it('continues where a killed platform stopped', LONG, async () => {
  await declareEndpoint(platform, JOBS);
  await platform.endpoints.remove(OWNER, ID);
  while ((await countJobs(platform)) === JOBS) await letOthersRun();
  // Nothing is told to end: what runs on finds its store closed.
  await platform.store.close();
  const died = platform;

  platform = await openPlatform();
  expect(await countJobs(platform)).toBeGreaterThan(0);
  expect(platform.endpoints.has(ID)).toBe(false);
  const job = platform.queue.jobs.record({ endpointId: ID, id: 'job-0' });
  await expect(job).rejects.toMatchObject({
    ...{ code: 'not_found', message: expect.stringContaining(ID) },
  });
  await platform.deletion.settled(ID);
  expect(await countJobs(platform)).toBe(0);
  expect(await readRow(platform)).toBeUndefined();
  await died.close();
});

it('stops when the platform stops, and the next one continues', LONG, async () => {
  await declareEndpoint(platform, JOBS);
  await platform.endpoints.remove(OWNER, ID);
  await platform.close();
  platform = await openPlatform();
  expect(await countJobs(platform)).toBeGreaterThan(0);
  await platform.deletion.settled(ID);
  expect(await countJobs(platform)).toBe(0);
  expect(await readRow(platform)).toBeUndefined();
});

it('ends the existing workers, and again those started meanwhile', async () => {
  await platform.close();
  const jobsAtEnd: number[] = [];
  platform = await openPlatform(async () => {
    jobsAtEnd.push(await countJobs(platform));
  });
  await declareEndpoint(platform, 3);
  await platform.endpoints.remove(OWNER, ID);
  await platform.deletion.settled(ID);
  expect(jobsAtEnd).toEqual([3, 0]);
});

it('is retried after a failed step without losing its state', async () => {
  await platform.close();
  let failures = 2;
  platform = await openPlatform(async () => {
    if (failures-- > 0) throw new Error('no');
  });
  await declareEndpoint(platform, 3);
  await platform.endpoints.remove(OWNER, ID);
  await platform.clock.advance(999);
  expect(await readRow(platform)).toMatchObject({ deleted: true });
  await platform.clock.advance(1);
  expect(await readRow(platform)).toMatchObject({ deleted: true });
  await platform.clock.advance(1_000);
  await platform.deletion.settled(ID);
  expect(await readRow(platform)).toBeUndefined();
});
