// Changes of all jobs that match a filter: cancel, retry, delete.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ChangePage } from '../../../src/queue/job-changes.ts';
import { changedJobs } from '../../../src/wire/job/job-records.ts';
import {
  ENDPOINT,
  type Platform,
  readJson,
  startPlatform,
  submitJob,
  takeJob,
} from '../../support/api/platform.ts';
import {
  Hand,
  ENDPOINT as QUEUE,
  Platform as QueuePlatform,
} from '../../support/queue-platform.ts';

const PATH = `/v2/${ENDPOINT}/jobs/change`;

async function change(platform: Platform, body: object) {
  const response = await platform.post(PATH, body);
  expect(response.status).toBe(200);
  return changedJobs.parse(await response.json());
}

const submit = (platform: Platform, ...tags: string[]) =>
  submitJob(platform, { input: {}, policy: { tags } });

async function fail(platform: Platform): Promise<void> {
  await (await takeJob(platform)).fail('never');
}

async function read(platform: Platform, id: string) {
  return (await readJson(await platform.call(`/v2/${ENDPOINT}/status/${id}`)))['status'];
}

/** All pages, as a client reads them. */
async function changeAll(platform: Platform, body: object) {
  const pages: Omit<ChangePage, 'next'>[] = [];
  let more: { asOf?: number; cursor?: string | undefined } = {};
  do {
    const { asOf, cursor, ...page } = await change(platform, { ...body, ...more });
    pages.push({ asOf, ...page });
    more = cursor === undefined ? {} : { asOf, cursor };
  } while (more.cursor !== undefined);
  const sum = (name: 'matched' | 'changed') => pages.reduce((all, page) => all + page[name], 0);
  return { matched: sum('matched'), changed: sum('changed') };
}

it('cancels a job that runs when it begins, and is back in the queue between two pages', async () => {
  const platform = new QueuePlatform();
  onTestFinished(() => platform.close());
  await platform.start();
  const worker = new Hand(() => platform.queue.link(QUEUE));
  await worker.hello();
  await Promise.all(Array.from({ length: 1_001 }, () => platform.submit()));
  const id = await platform.submit({ priority: 9 });
  const lease = await worker.takeOne();
  expect(lease.jobId).toBe(id);
  // Positions are µs: those of so many jobs reach into the next ms.
  await platform.clock.advance(10);
  const request = { endpointId: QUEUE, change: 'cancel', criteria: {}, dryRun: false } as const;
  const first = await platform.queue.jobs.changeMany(request);
  await worker.finish(lease, { kind: 'released', reason: 'drain' });
  const { asOf, next: from } = first;
  const second = await platform.queue.jobs.changeMany({ ...request, asOf, from });
  expect(second.next).toBeUndefined();
  expect(first.changed + second.changed).toBe(1_002);
  expect(await platform.record(id)).toMatchObject({ status: 'CANCELLED' });
});

describe('jobs that match a filter', () => {
  it('are counted first, then cancelled, and no others', async () => {
    const platform = await startPlatform();
    const running = await submit(platform, 'old');
    await takeJob(platform);
    const queued = await submit(platform, 'old');
    const other = await submit(platform, 'new');
    const body = { change: 'cancel', filter: { tags: ['old'] } };
    expect(await changeAll(platform, { ...body, dryRun: true })).toEqual({
      matched: 2,
      changed: 0,
    });
    expect(await read(platform, queued)).toBe('IN_QUEUE');
    expect(await changeAll(platform, body)).toEqual({ matched: 2, changed: 2 });
    const ids = [running, queued, other];
    const statuses = await Promise.all(ids.map((id) => read(platform, id)));
    expect(statuses).toEqual(['CANCELLED', 'CANCELLED', 'IN_QUEUE']);
    expect(await changeAll(platform, body)).toEqual({ matched: 0, changed: 0 });
  });

  it('are retried once, however often a request is repeated', async () => {
    const platform = await startPlatform();
    const id = await submit(platform, 'a');
    await fail(platform);
    await submit(platform);
    await fail(platform);
    const filter = { tags: ['a'], errorCode: 'handler_error' };
    const { asOf } = await change(platform, { change: 'retry', filter, dryRun: true });
    const body = { change: 'retry', filter, asOf };
    expect(await change(platform, body)).toMatchObject({ matched: 1, changed: 1 });
    expect(await read(platform, id)).toBe('IN_QUEUE');
    await new Promise((resolve) => setTimeout(resolve, 2));
    await fail(platform);
    expect(await changeAll(platform, body)).toEqual({ matched: 0, changed: 0 });
    expect(await read(platform, id)).toBe('FAILED');
    expect(await changeAll(platform, { change: 'retry', filter })).toEqual({
      matched: 1,
      changed: 1,
    });
  });

  it('are deleted if they have ended, with their outputs', async () => {
    const platform = await startPlatform();
    const ended = await submit(platform, 'a');
    await (await takeJob(platform)).complete();
    const failed = await submit(platform, 'a');
    await fail(platform);
    const queued = await submit(platform, 'a');
    const body = { change: 'delete', filter: { tags: ['a'] } };
    expect(await changeAll(platform, body)).toEqual({ matched: 2, changed: 2 });
    for (const id of [ended, failed]) {
      expect((await platform.call(`/v2/${ENDPOINT}/status/${id}`)).status).toBe(404);
    }
    expect(await read(platform, queued)).toBe('IN_QUEUE');
  });

  it('are changed in slices and pages, of which each says where the next one begins', async () => {
    const platform = await startPlatform();
    const jobs = Array.from({ length: 100 }, () => ({ input: {} }));
    for (let n = 0; n < 2; n++) await platform.post(`/v2/${ENDPOINT}/jobs`, { jobs });
    const request = {
      endpointId: ENDPOINT,
      change: 'cancel',
      criteria: {},
      dryRun: false,
    } as const;
    const first = await platform.queue.jobs.changeMany(request);
    expect(first).toMatchObject({ matched: 200, changed: 200, next: undefined });
    const last = await platform.queue.jobs.changeMany({ ...request, asOf: first.asOf });
    expect(last).toMatchObject({ matched: 0, changed: 0, next: undefined });
  });

  it.each([
    [{ change: 'cancel' }, 'filter'],
    [{ change: 'stop', filter: {} }, 'change'],
    [{ change: 'cancel', filter: { status: 'FAILED' } }, 'filter.status'],
    [{ change: 'cancel', filter: { tags: Array(11).fill('a') } }, 'filter.tags'],
    [{ change: 'cancel', filter: {}, cursor: 'FAILED.1' }, 'cursor'],
  ])('are not changed by %j', async (body, path) => {
    const platform = await startPlatform();
    const response = await platform.post(PATH, body);
    expect(response.status).toBe(422);
    expect(String((await readJson(response))['errors'])).toContain(`${path}: `);
  });
});
