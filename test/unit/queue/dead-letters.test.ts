// Dead letters: failed jobs after their retention, within the bounds of their user, and their second submission.
import { afterEach, describe, expect, it } from 'vitest';
import type { JobPolicy } from '../../../src/wire/job/job.ts';
import type { FailedJob } from '../../../src/wire/job/job-records.ts';
import { scheduleCreation } from '../../../src/wire/resources/schedule.ts';
import {
  chunksOf,
  completed,
  ENDPOINT,
  failed,
  Hand,
  logOf,
  Platform,
  type PlatformOptions,
} from '../../support/queue-platform.ts';

const HOUR = 3_600_000;
const MB = 1_048_576;

let platform: Platform;
let hand: Hand;
afterEach(() => platform.close());

async function open(options: PlatformOptions = {}): Promise<void> {
  platform = new Platform({ ...options, endpoint: { maxAttempts: 1, ...options.endpoint } });
  await platform.start();
  await greet();
}

/** The retention of ended jobs passes; an idle worker is forgotten by then. */
async function waitOut(): Promise<void> {
  await platform.clock.advance(HOUR);
  await greet();
}

async function greet(): Promise<void> {
  hand = new Hand(() => platform.queue.link(ENDPOINT), { slots: 1 });
  await hand.hello();
}

/** Submits a job that fails. */
async function failOne(
  input: object = {},
  message = 'no such model',
  policy: JobPolicy = {},
): Promise<string> {
  const id = await platform.submit(policy, Buffer.from(JSON.stringify(input)));
  const lease = await hand.takeOne();
  await hand.report([logOf(lease, 1, 'line\n')]);
  const error = { code: 'handler_error', message } as const;
  await hand.finish(lease, { ...failed, error, retry: 'never' }, { seq: 2 });
  return id;
}

const list = async (filter: object = {}) => {
  const page = await platform.queue.jobs.listFailed([ENDPOINT], { limit: 10, ...filter });
  return page.jobs.map(({ id }) => id);
};

const read = async (id: string): Promise<FailedJob> => {
  const pieces = await platform.queue.deadLetters.details({ endpointId: ENDPOINT, id });
  return JSON.parse(Buffer.concat(pieces).toString());
};

const resubmit = (...ids: string[]) => platform.queue.deadLetters.resubmit(ENDPOINT, ids);

describe('a failed job', () => {
  it('is kept after its retention, and only the operations for failed jobs find it', async () => {
    await open();
    const id = await failOne({ n: 1 });
    await waitOut();
    await expect(platform.record(id)).rejects.toMatchObject({ code: 'not_found' });
    await expect(platform.queue.jobs.retry({ endpointId: ENDPOINT, id })).rejects.toMatchObject({
      code: 'not_found',
    });
    const shown = { endpointId: ENDPOINT, status: undefined, before: undefined, limit: 9 };
    expect((await platform.queue.jobs.list(shown)).jobs).toEqual([]);
    expect((await platform.queue.jobs.list({ ...shown, since: 1 })).jobs).toEqual([]);
    expect(await list()).toEqual([id]);
    expect(await read(id)).toMatchObject({
      ...{ id, status: 'FAILED', input: { n: 1 }, error: { message: 'no such model' } },
      log: 'line\n',
      timeline: [
        { event: 'submitted' },
        { event: 'started' },
        { event: 'failed' },
        { event: 'ended' },
      ],
    });
  });

  it('is removed when its endpoint keeps it no longer, also after a restart', async () => {
    await open({ endpoint: { failedRetention: 3 * HOUR } });
    const id = await failOne();
    await waitOut();
    await platform.restart(HOUR);
    expect(await list()).toEqual([id]);
    await platform.clock.advance(HOUR);
    expect(await list()).toEqual([]);
    await expect(read(id)).rejects.toMatchObject({ code: 'not_found' });
    expect(
      await platform.store.read((tx) => tx.resources({ kind: 'dead_letters', limit: 9 })),
    ).toEqual([]);
  });

  it('is not kept by an endpoint that keeps none, and no other job is', async () => {
    await open({ endpoint: { failedRetention: 0 } });
    await failOne();
    const done = await platform.submit();
    await hand.finish(await hand.takeOne(), completed);
    await waitOut();
    expect(await list()).toEqual([]);
    await expect(read(done)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('is found by code, time and text, before and after its retention', async () => {
    await open();
    const first = await failOne({ model: 'Alpha' }, 'out of quota', { tags: ['a', 'b'] });
    await waitOut();
    const since = platform.clock.now();
    const second = await failOne({ model: 'beta' });
    expect(await list()).toEqual([second, first]);
    expect(await list({ errorCode: 'handler_error' })).toEqual([second, first]);
    expect(await list({ errorCode: 'out_of_memory' })).toEqual([]);
    expect(await list({ tags: ['b', 'a'] })).toEqual([first]);
    expect(await list({ tags: ['c'] })).toEqual([]);
    expect(await list({ since })).toEqual([second]);
    expect(await list({ until: since - 1 })).toEqual([first]);
    expect(await list({ text: 'QUOTA' })).toEqual([first]);
    expect(await list({ text: 'alpha' })).toEqual([first]);
    expect(await list({ text: 'model' })).toEqual([second, first]);
    const page = await platform.queue.jobs.listFailed([ENDPOINT], { limit: 1 });
    expect(await list({ limit: 1, before: page.next })).toEqual([first]);
  });
});

describe('a resubmission', () => {
  it('is one new job, however often it is asked for', async () => {
    await open();
    const id = await failOne({ n: 7 });
    await waitOut();
    const [both, again] = await Promise.all([resubmit(id), resubmit(id)]);
    const [made] = both;
    if (!made || 'error' in made) throw new Error(JSON.stringify(made));
    expect(again).toEqual([{ retryOf: id, id: made.id, isNew: !made.isNew }]);
    const lease = await hand.takeOne();
    expect(lease.jobId).toBe(made.id);
    expect(JSON.parse(Buffer.from(lease.input).toString())).toEqual({ n: 7 });
    await hand.finish(lease, completed);
    // The new job is gone, and the failed one still names it.
    await waitOut();
    expect(await resubmit(id)).toEqual([{ retryOf: id, id: made.id, isNew: false }]);
    expect(await hand.take()).toEqual([]);
    expect(await read(id)).toMatchObject({ retriedAs: made.id });
  });

  it('is one new job too if the platform restarts in between', async () => {
    await open();
    const id = await failOne();
    const [made] = await resubmit(id);
    await platform.restart(HOUR);
    expect(await resubmit(id)).toMatchObject([
      { id: made && 'id' in made && made.id, isNew: false },
    ]);
  });

  it('carries a large input, and the policy of the job', async () => {
    await open();
    const text = 'x'.repeat(MB);
    const id = await failOne({ text });
    await waitOut();
    await resubmit(id);
    const lease = await hand.takeOne();
    expect(JSON.parse(Buffer.from(lease.input).toString())).toEqual({ text });
    await hand.finish(lease, { ...failed, retry: 'never' });
    expect(await read(lease.jobId)).toMatchObject({ retryOf: id, priority: 0 });
  });

  it('has the tick of the schedule that made the failed job', async () => {
    await open();
    const creation = scheduleCreation.parse({ name: 's', endpointId: ENDPOINT, every: HOUR });
    const call = { verb: 'create', userId: '', creation } as const;
    const { schedule } = await platform.queue.schedules.call(ENDPOINT, call);
    await waitOut();
    const first = await hand.takeOne();
    await hand.finish(first, { ...failed, retry: 'never' });
    await resubmit(first.jobId);
    const again = await hand.takeOne();
    const tick = { id: schedule.id, tickAt: schedule.nextAt };
    expect([first.schedule, again.schedule]).toEqual([tick, { ...tick, triggered: true }]);
  });

  it('is another job if the failed one was retried since, and failed again', async () => {
    await open();
    const id = await failOne();
    await resubmit(id);
    await hand.finish(await hand.takeOne(), completed);
    await platform.queue.jobs.retry({ endpointId: ENDPOINT, id });
    expect(await resubmit(id)).toMatchObject([{ error: { code: 'conflict' } }]);
    await hand.finish(await hand.takeOne(), { ...failed, retry: 'never' });
    expect(await resubmit(id)).toMatchObject([{ retryOf: id, isNew: true }]);
  });

  it('is refused for a job that has not run, because its parent has failed', async () => {
    await open();
    const parent = await platform.submit();
    const { id } = await platform.queue.submissions.submit({
      ...{ endpointId: ENDPOINT, mode: 'run', input: Buffer.from('{}'), policy: {} },
      ...{ idempotency: undefined, after: [{ id: parent, as: 'image' }] },
    });
    await hand.finish(await hand.takeOne(), { ...failed, retry: 'never' });
    expect(await resubmit(id, parent)).toMatchObject([
      { retryOf: id, error: { code: 'conflict' } },
      { retryOf: parent, isNew: true },
    ]);
    expect((await hand.takeOne()).jobId).not.toBe(id);
    expect(await hand.take()).toEqual([]);
  });

  it('says of each job why it has none', async () => {
    await open();
    const done = await platform.submit();
    await hand.finish(await hand.takeOne(), completed);
    expect(await resubmit('gone', done)).toMatchObject([
      { retryOf: 'gone', error: { code: 'not_found' } },
      { retryOf: done, error: { code: 'conflict' } },
    ]);
  });
});

describe('the bounds of a user', () => {
  it.each([
    ['number', { maxJobs: 2, maxBytes: MB }, 0],
    ['bytes', { maxJobs: 9, maxBytes: 2.5 * MB }, MB],
  ])('remove the oldest dead letters beyond their %s', async (_, deadLetters, bytes) => {
    await open({ settings: { deadLetters } });
    const ids: string[] = [];
    for (let n = 0; n < 4; n += 1) ids.push(await failOne({ n, text: 'x'.repeat(bytes) }));
    await waitOut();
    await platform.clock.advance(1_000);
    expect(await list()).toEqual([ids[3], ids[2]]);
  });
});

describe('the totals of a user', () => {
  const totals = () =>
    platform.store.read((tx) => tx.resources({ kind: 'dead_letters', limit: 9 }));

  it('count the texts of errors, and take back what they counted', async () => {
    await open();
    const ids = [await failOne({}, 'x'.repeat(1_000)), await failOne({}, 'short')];
    await waitOut();
    const read = async () => (await totals()).map(({ body }) => JSON.parse(body));
    expect(await read()).toEqual([{ jobs: 2, bytes: expect.any(Number) }]);
    const [before] = await read();
    expect(before.bytes).toBeGreaterThan(1_000);
    await platform.queue.deadLetters.delete(ENDPOINT, ids.slice(0, 1));
    const [after] = await read();
    expect(before.bytes - after.bytes).toBeGreaterThan(1_000);
    await platform.queue.deadLetters.delete(ENDPOINT, ids);
    expect(await totals()).toEqual([]);
  });

  it('do not keep the sweeper busy if they are wrong', async () => {
    await open({ settings: { deadLetters: { maxJobs: 2, maxBytes: MB } } });
    await platform.store.write((tx) => {
      const body = JSON.stringify({ jobs: 3, bytes: 0 });
      const row = { kind: 'dead_letters', id: 'owner', userId: 'owner' };
      tx.putResource({ ...row, parent: '', position: 0, body });
    });
    await waitOut();
    expect(await totals()).toEqual([]);
  });
});

it('keeps no chunks of a dead letter, which no bound counts', async () => {
  await open();
  const id = await platform.submit();
  const lease = await hand.takeOne();
  await hand.report([chunksOf(lease, 1, 0, ['a', 'b'])]);
  await hand.finish(lease, { ...failed, retry: 'never' }, { seq: 2 });
  const chunks = () =>
    platform.store.read((tx) => [
      ...tx.chunks({ endpointId: ENDPOINT, id, attempt: 1, from: 0, maxBytes: MB }),
    ]);
  expect(await chunks()).toHaveLength(1);
  await waitOut();
  expect(await list()).toEqual([id]);
  expect(await chunks()).toEqual([]);
});

it('deletes failed jobs, and no others', async () => {
  await open();
  const [first, second] = [await failOne(), await failOne()];
  await waitOut();
  const third = await failOne();
  const waiting = await platform.submit();
  const { deadLetters } = platform.queue;
  expect(await deadLetters.delete(ENDPOINT, [first, third, waiting, 'gone', first])).toBe(2);
  expect(await list()).toEqual([second]);
  expect(await platform.record(waiting)).toMatchObject({ status: 'IN_QUEUE' });
});
