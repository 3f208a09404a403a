// Schedules in a queue: each tick makes exactly one job, over restarts, clock steps and changes of the schedule.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { cutSchedules } from '../../../../src/queue/schedules/schedules.ts';
import type { StoredJob } from '../../../../src/store/store.ts';
import {
  type ScheduleCreation,
  type ScheduleUpdate,
  type StoredSchedule,
  scheduleCreation,
} from '../../../../src/wire/resources/schedule.ts';
import { completed, ENDPOINT, Hand, Platform } from '../../../support/queue-platform.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

let platform: Platform;

beforeEach(async () => {
  platform = new Platform({ endpoint: { maxQueued: 50 } });
  await platform.start();
});

afterEach(() => platform.close());

const schedules = () => platform.queue.schedules;

async function create(changed: Partial<ScheduleCreation> = {}): Promise<string> {
  const given = { name: 'hourly', endpointId: ENDPOINT, every: HOUR, ...changed };
  const creation = scheduleCreation.parse(given);
  const { schedule } = await schedules().call(ENDPOINT, {
    verb: 'create',
    userId: 'ann',
    creation,
  });
  return schedule.id;
}

const read = async (id: string): Promise<StoredSchedule> =>
  (await schedules().call(ENDPOINT, { verb: 'get', id })).schedule;
const update = (id: string, given: ScheduleUpdate) =>
  schedules().call(ENDPOINT, { verb: 'update', id, update: given });

/** The oldest first. */
async function listJobs(): Promise<StoredJob[]> {
  const all = { endpointId: ENDPOINT, status: undefined, before: undefined, limit: 1_000 };
  return (await platform.store.read((tx) => tx.jobs(all))).reverse();
}

/** Hours of the ticks that have a job, from the start of the test. */
async function listTicks(): Promise<(number | null)[]> {
  return (await listJobs()).map(({ tick }) => tick && (tick.at - startedAt) / HOUR);
}

let startedAt: number;
beforeEach(() => {
  startedAt = platform.clock.now();
});

describe('a tick', () => {
  it('makes one job with the input, the policy and the tick', async () => {
    const id = await create({ input: { a: 1 }, policy: { priority: 3, ttl: 20_000_000 } });
    await platform.clock.advance(HOUR - 1);
    expect(await listJobs()).toEqual([]);
    await platform.clock.advance(1);
    const [job, ...others] = await listJobs();
    expect(others).toEqual([]);
    expect(job).toMatchObject({
      ...{ status: 'IN_QUEUE', priority: 3, ttlMs: 20_000_000 },
      tick: { scheduleId: id, at: startedAt + HOUR },
    });
    const worker = new Hand(() => platform.queue.link(ENDPOINT));
    await worker.hello();
    const [lease] = await worker.take();
    expect(Buffer.from(lease?.input ?? []).toString()).toBe('{"a":1}');
    expect(lease?.schedule).toEqual({ id, tickAt: startedAt + HOUR });
    expect(await read(id)).toMatchObject({
      jobs: 1,
      nextAt: startedAt + 2 * HOUR,
      lastTicks: [{ at: new Date(startedAt + HOUR).toISOString(), jobId: job?.id }],
    });
  });

  it('comes in time, however many there are', async () => {
    for (let n = 0; n < 70; n++) await create({ name: `s${n}` });
    await update(await create({ name: 'other' }), { every: 2 * HOUR, phase: MINUTE });
    await platform.clock.advance(HOUR);
    const made = await listJobs();
    // The endpoint takes 50.
    expect(made.length).toBe(50);
    const ticks = { job: 50, missed: 0, overlap: 0, queue_full: 21 };
    expect(schedules().counts().get(ENDPOINT)).toEqual({ schedules: 71, ticks });
  });

  it('comes once over restarts, and later ones by catchUp', async () => {
    const id = await create({ catchUp: 'all', catchUpMax: 2 });
    await platform.clock.advance(HOUR);
    await platform.restart();
    await platform.clock.advance(1);
    expect(await listTicks()).toEqual([1]);
    await platform.restart(5 * HOUR);
    await platform.clock.advance(1);
    expect(await listTicks()).toEqual([1, 5, 6]);
    expect(await read(id)).toMatchObject({
      skipped: { missed: 3 },
      lastTicks: [
        ...Array(2).fill({ jobId: expect.any(String) }),
        { skipped: 'missed', count: 3 },
        {},
      ],
    });
  });

  it('does not come again after the end of a pause, nor those of the pause', async () => {
    const id = await create();
    await platform.clock.advance(HOUR);
    await update(id, { paused: true });
    await platform.restart(3 * HOUR);
    await platform.clock.advance(HOUR);
    await update(id, { paused: false });
    await platform.clock.advance(HOUR);
    expect(await listTicks()).toEqual([1, 6]);
  });

  it('is not lost when its schedule changes at the same moment', async () => {
    const id = await create();
    await platform.clock.advance(HOUR - 1);
    const changed = Promise.all([platform.clock.advance(1), update(id, { input: { b: 2 } })]);
    await changed;
    await update(id, { name: 'other' });
    await platform.clock.advance(HOUR);
    expect(await listTicks()).toEqual([1, 2]);
  });

  it('comes no more once the schedule, or its endpoint, is gone', async () => {
    const [id, other] = [await create(), await create()];
    await schedules().call(ENDPOINT, { verb: 'remove', id });
    await platform.clock.advance(HOUR);
    expect((await listJobs()).map(({ tick }) => tick?.scheduleId)).toEqual([other]);
    await platform.queue.removal.drop(ENDPOINT, new AbortController().signal);
    expect(schedules().entries('ann')).toEqual([]);
    await platform.clock.advance(2 * HOUR);
    expect(await listJobs()).toEqual([]);
  });

  it('ends the schedule after maxJobs, and goes on with more', async () => {
    const id = await create({ maxJobs: 2 });
    await platform.clock.advance(5 * HOUR);
    expect(await listTicks()).toEqual([1, 2]);
    expect((await read(id)).nextAt).toBeNull();
    await update(id, { maxJobs: 3 });
    await platform.clock.advance(5 * HOUR);
    expect(await listTicks()).toEqual([1, 2, 6]);
  });

  it('spreads the jobs over the jitter', async () => {
    for (let n = 0; n < 20; n++) await create({ jitter: 10 * MINUTE });
    await platform.clock.advance(HOUR);
    const delays = (await listJobs()).map((job) => job.availableAt - job.submittedAt);
    expect(Math.max(...delays)).toBeLessThanOrEqual(10 * MINUTE);
    expect(new Set(delays).size).toBeGreaterThan(15);
  });
});

describe('overlap', () => {
  it('skip makes no job while one has not ended, however long that takes', async () => {
    const id = await create({ overlap: 'skip' });
    await platform.clock.advance(15 * HOUR);
    expect(await listTicks()).toEqual([1]);
    const worker = new Hand(() => platform.queue.link(ENDPOINT));
    await worker.hello();
    const [lease] = await worker.take();
    if (!lease) throw new Error('no lease');
    await worker.finish(lease, completed, { body: '1' });
    await platform.clock.advance(HOUR);
    expect((await read(id)).jobs).toBe(2);
    expect((await read(id)).skipped.overlap).toBe(14);
    expect((await read(id)).lastTicks).toMatchObject([
      { jobId: expect.any(String) },
      { skipped: 'overlap', count: 14 },
      {},
    ]);
  });

  it('replace cancels the job before in the same commit', async () => {
    await create({ overlap: 'replace', catchUp: 'all' });
    await platform.clock.advance(HOUR);
    await platform.restart(4 * HOUR);
    await platform.clock.advance(1);
    const jobs = await listJobs();
    expect(jobs.map(({ status, tick }) => [((tick?.at ?? 0) - startedAt) / HOUR, status])).toEqual([
      [1, 'CANCELLED'],
      [5, 'IN_QUEUE'],
    ]);
  });
});

describe('trigger', () => {
  it('makes a job at once and leaves the ticks as they are', async () => {
    const id = await create({ paused: true, overlap: 'skip' });
    const { jobId } = await schedules().call(ENDPOINT, { verb: 'trigger', id });
    await schedules().call(ENDPOINT, { verb: 'trigger', id });
    const [job] = await listJobs();
    expect(job).toMatchObject({
      id: jobId,
      tick: { scheduleId: id, at: startedAt, isTriggered: true },
    });
    expect(await read(id)).toMatchObject({
      jobs: 0,
      lastTicks: [{ triggered: true }, { triggered: true }],
    });
  });
});

it('lists each schedule of several queues once, also those with the same position', async () => {
  await create();
  const [one] = (await schedules().page('ann', { limit: 1 })).listed;
  if (!one) throw new Error('no schedule');
  const queues = [
    [9, 7, 5],
    [7, 6],
    [8, 7],
  ];
  const list = (before: number, limit: number) =>
    queues.map((all) => {
      const left = all.filter((position) => position < before);
      const listed = left.slice(0, limit).map((position) => ({ ...one, position }));
      return { listed, next: left.length > limit ? listed.at(-1)?.position : undefined };
    });
  const found: number[] = [];
  for (let before: number | undefined = 10; before !== undefined; ) {
    const { listed, next } = cutSchedules(list(before, 4), 4);
    found.push(...listed.map(({ position }) => position));
    before = next;
  }
  expect(found).toEqual([9, 8, 7, 7, 7, 6, 5]);
});

it('makes the job later if a commit fails', async () => {
  await create();
  const refused = vi.spyOn(platform.store, 'write').mockRejectedValueOnce(new Error('disk full'));
  await platform.clock.advance(HOUR + 10_000);
  expect(refused.mock.results.length).toBeGreaterThan(0);
  expect(await listTicks()).toEqual([1]);
});
