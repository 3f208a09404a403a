// Jobs that wait for jobs: when they start, what a parent's failure makes of them, and what is told once.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Submission } from '../../../src/queue/admission.ts';
import { next } from '../../../src/queue/lifecycle/lifecycle.ts';
import { isWaiting } from '../../../src/store/store.ts';
import { LIMITS, type ParentPolicy, type ParentReference } from '../../../src/wire/job/job.ts';
import type { Outcome } from '../../../src/wire/link/worker-link.ts';
import type { ProblemError } from '../../../src/wire/problem.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { completed, ENDPOINT, failed, Hand, Platform } from '../../support/queue-platform.ts';

const OTHER = 'other';
const DAY_MS = 86_400_000;

let platform: Platform;
let worker: Hand;

beforeEach(async () => {
  platform = new Platform();
  await platform.start();
  const settings = endpointSettings.parse({});
  await platform.store.write((tx) => {
    tx.putEndpoint({ id: OTHER, settings, createdAt: 0 });
    tx.putEndpoint({ id: 'foreign', settings, createdAt: 0, userId: 'somebody' });
  });
  worker = new Hand(() => platform.queue.link(ENDPOINT));
  await worker.hello();
});

afterEach(() => platform.close());

function submit(after: ParentReference[] = [], changed: Partial<Submission> = {}) {
  return platform.queue.submissions.submit({
    ...{ endpointId: ENDPOINT, mode: 'run', input: Buffer.from('{}'), policy: {} },
    idempotency: undefined,
    ...(after.length > 0 && { after }),
    ...changed,
  });
}

async function add(...after: ParentReference[]): Promise<string> {
  return (await submit(after)).id;
}

async function statusOf(id: string, endpointId = ENDPOINT) {
  return (await platform.queue.jobs.outline({ endpointId, id })).status;
}

/** Runs the job that is next; it must be this one. */
async function run(id: string, end: Outcome = completed): Promise<void> {
  const lease = await worker.takeOne();
  expect(lease.jobId).toBe(id);
  await worker.finish(lease, end, { body: end.kind === 'completed' ? '1' : '' });
}

const fatally = { ...failed, retry: 'never' } as const;

describe('a job with parents', () => {
  it('is not taken before its last parent has ended', async () => {
    const [a, b] = [await add(), await add()];
    const child = await add({ id: a }, { id: b });
    expect(await statusOf(child)).toBe('IN_QUEUE');
    await run(a);
    const lease = await worker.takeOne();
    expect(await worker.take()).toEqual([]);
    await worker.finish(lease, completed, { body: '1' });
    await run(child);
    expect(await statusOf(child)).toBe('COMPLETED');
  });

  it('says which parent it waits for', async () => {
    const [a, b, c] = [await add(), await add(), await add()];
    const child = await add({ id: a }, { id: b }, { id: c });
    const waitReason = async () =>
      (await platform.queue.jobs.outline({ endpointId: ENDPOINT, id: child })).waitReason;
    expect(await waitReason()).toMatchObject({
      code: 'waits_for_parent',
      message: `The job waits for the end of job ${a} and 2 other parents; 0 of 3 have ended.`,
    });
    await run(a);
    expect(await waitReason()).toMatchObject({
      message: `The job waits for the end of job ${b} and 1 other parent; 1 of 3 have ended.`,
    });
  });

  it('waits for a job of another endpoint', async () => {
    const parent = await submit([], { endpointId: OTHER });
    const child = await add({ id: parent.id, endpoint: OTHER });
    expect(await worker.take()).toEqual([]);
    const other = new Hand(() => platform.queue.link(OTHER), { id: 'w2' });
    await other.hello();
    await other.finish(await other.takeOne(), completed, { body: '1' });
    await run(child);
  });

  it('wakes a take that waits for jobs', async () => {
    const parent = await add();
    const child = await add({ id: parent });
    const lease = await worker.takeOne();
    const second = new Hand(() => platform.queue.link(ENDPOINT), { id: 'w2' });
    await second.hello();
    const parked = await platform.park('take', () => second.take({ waitMs: 10_000 }));
    await worker.finish(lease, completed, { body: '1' });
    expect((await parked.answer).map(({ jobId }) => jobId)).toEqual([child]);
  });

  it('costs no timer and keeps its whole time to live and its delay until its parents have ended', async () => {
    const parent = await add();
    await platform.queue.jobs.setTtl({ endpointId: ENDPOINT, id: parent }, 7 * DAY_MS);
    const child = (await submit([{ id: parent }], { policy: { ttl: 10_000, delay: 5_000 } })).id;
    expect((await platform.job(child)).dueAt).toBe(platform.clock.now() + LIMITS.parentWaitMs);
    await platform.clock.advance(DAY_MS);
    await worker.hello();
    await run(parent);
    const now = platform.clock.now();
    expect(await platform.job(child)).toMatchObject({
      ...{ delayed: true, availableAt: now + 5_000, expiresAt: now + 15_000, queuedAt: now },
    });
    await platform.clock.advance(5_000);
    await run(child);
  });

  it('starts at once if its parents have ended', async () => {
    const parent = await add();
    await run(parent);
    const child = await add({ id: parent });
    await run(child);
  });

  it('takes its turn in its group when its parents have ended', async () => {
    const parent = await add();
    const child = (await submit([{ id: parent }], { policy: { group: 'g' } })).id;
    await run(parent);
    await run(child);
  });

  it('is refused with the path of each parent that is none', async () => {
    const parent = await add();
    const foreign = (await submit([], { endpointId: 'foreign' })).id;
    const references = [
      { id: 'nobody' },
      { id: parent },
      { id: parent },
      { id: foreign, endpoint: 'foreign' },
      { id: parent, endpoint: 'nowhere' },
    ];
    const refused: ProblemError = await submit(references).then(
      () => expect.fail('the job was accepted'),
      (error) => error,
    );
    expect(refused.code).toBe('invalid');
    expect(refused.errors).toEqual([
      'after[0]: job nobody of endpoint e not found or expired',
      `after[2]: job ${parent} is named twice`,
      `after[3]: job ${foreign} of endpoint foreign not found or expired`,
      `after[4]: job ${parent} of endpoint nowhere not found or expired`,
    ]);
    expect((await platform.job(parent)).links).toBeNull();
    expect((await platform.health()).jobs.inQueue).toBe(1);
  });

  it('is refused if as many jobs as may wait for the parent already', async () => {
    const parent = await add();
    const children = Array.from({ length: LIMITS.childrenOfJob }, (_, index) => index);
    await Promise.all(children.map(() => add({ id: parent })));
    await expect(add({ id: parent })).rejects.toMatchObject({
      errors: [`after[0]: 1000 jobs wait for job ${parent} already, the most that may`],
    });
    await run(parent);
    // Not in one commit: that would hold the event loop.
    const first = (await worker.take({ max: 1_000 })).length;
    expect(first).toBeLessThan(1_000);
    let taken = first;
    while (taken < 1_000) taken += (await worker.take({ max: 1_000, waitMs: 1_000 })).length;
  });

  it('is one job for one idempotency key', async () => {
    const parent = await add();
    const idempotency = { key: 'k', requestHash: 'h' };
    const first = await submit([{ id: parent }], { idempotency });
    expect(await submit([{ id: parent }], { idempotency })).toEqual(first);
    expect((await platform.job(parent)).links?.children).toHaveLength(1);
  });

  it('goes on waiting after a restart', async () => {
    const parent = await add();
    const child = await add({ id: parent });
    await platform.restart();
    worker = new Hand(() => platform.queue.link(ENDPOINT), { incarnation: 2 });
    await worker.hello();
    await run(parent);
    await run(child);
  });

  it('ends and says so if a parent has not ended after 30 days', async () => {
    const parent = await add();
    const child = await platform.job(await add({ id: parent }));
    const late = { settings: platform.queue.settings, now: child.dueAt, random: () => 0 };
    expect(next(child, { type: 'clock' }, { ...late, now: child.dueAt - 1 })).toMatchObject({
      job: child,
    });
    const decision = next(child, { type: 'clock' }, late);
    const message = `parent ${parent} did not end within 30 days`;
    expect(decision).toMatchObject({
      removed: false,
      job: {
        status: 'FAILED',
        error: { code: 'parent_failed', message },
        expiresAt: late.now + 1_800_000,
      },
    });
  });
});

describe('the end of a parent without COMPLETED', () => {
  const parentOf = (id: string, onFailure?: ParentPolicy): ParentReference => ({
    id,
    ...(onFailure && { onFailure }),
  });

  it.each<[string, ParentPolicy | undefined, string]>([
    ['fails the child by default', undefined, 'FAILED'],
    ['fails a child that wants it', 'fail', 'FAILED'],
    ['cancels a child that is to be skipped', 'skip', 'CANCELLED'],
    ['lets a child run that wants it', 'run', 'IN_QUEUE'],
  ])('%s', async (_, policy, status) => {
    const parent = await add();
    const child = await add(parentOf(parent, policy));
    await run(parent, fatally);
    expect(await statusOf(child)).toBe(status);
    if (status === 'IN_QUEUE') return run(child);
    const message = `${policy === 'skip' ? 'skipped: ' : ''}parent ${parent} is FAILED`;
    expect((await platform.record(child)).error).toMatchObject({ code: 'parent_failed', message });
  });

  it('has its effect on a child that comes later', async () => {
    const parent = await add();
    await run(parent, fatally);
    expect(await submit([parentOf(parent)])).toMatchObject({ status: 'FAILED' });
    expect(await submit([parentOf(parent, 'skip')])).toMatchObject({ status: 'CANCELLED' });
    await run(await add(parentOf(parent, 'run')));
    expect(await platform.health()).toMatchObject({
      jobs: { inQueue: 0, failed: 2, completed: 1 },
    });
  });

  it('reaches the children of its children', async () => {
    const a = await add();
    const b = await add(parentOf(a));
    const c = await add(parentOf(b));
    const d = await add(parentOf(c, 'run'));
    await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id: a });
    expect(await Promise.all([b, c, d].map((id) => statusOf(id)))).toEqual([
      'FAILED',
      'FAILED',
      'IN_QUEUE',
    ]);
    await run(d);
  });

  it('skips what follows a skipped job, unless that runs nevertheless', async () => {
    const a = await add();
    const b = await add(parentOf(a, 'skip'));
    const c = await add(parentOf(b));
    const d = await add(parentOf(b, 'run'));
    await run(a, fatally);
    expect(await Promise.all([b, c, d].map((id) => statusOf(id)))).toEqual([
      'CANCELLED',
      'CANCELLED',
      'IN_QUEUE',
    ]);
  });

  it('ends a child at once, also if other parents have not ended', async () => {
    const [a, b] = [await add(), await add()];
    const child = await add(parentOf(a), parentOf(b));
    await run(a, fatally);
    expect(await statusOf(child)).toBe('FAILED');
    await run(b);
    expect(await statusOf(child)).toBe('FAILED');
  });

  it('is the removal of a parent that never ran', async () => {
    const parent = (await submit([], { policy: { ttl: 10_000 } })).id;
    const child = await add(parentOf(parent));
    await platform.clock.advance(10_000);
    expect((await platform.record(child)).error).toMatchObject({
      message: `parent ${parent} was removed before it ended`,
    });
  });

  it('is the deletion of its endpoint', async () => {
    const parent = (await submit([], { endpointId: OTHER })).id;
    const child = await add({ id: parent, endpoint: OTHER });
    await platform.queue.removal.drop(OTHER, new AbortController().signal);
    expect(await statusOf(child)).toBe('FAILED');
  });

  it('is the purge of the queue', async () => {
    const parent = await add();
    const child = await add(parentOf(parent, 'run'));
    await platform.queue.jobs.purge(ENDPOINT);
    // The purge names both: a child that its parent's end has made ready is cancelled too.
    expect(await statusOf(child)).toBe('CANCELLED');
  });
});

describe('a retry', () => {
  const key = (id: string) => ({ endpointId: ENDPOINT, id });

  it('of a child is refused while its parent has failed, and waits while its parent runs again', async () => {
    const parent = await add();
    const child = await add({ id: parent });
    await run(parent, fatally);
    await expect(platform.queue.jobs.retry(key(child))).rejects.toMatchObject({
      message: `job ${child} cannot be retried: its parent ${parent} has not COMPLETED; retry that first`,
    });
    await platform.queue.jobs.retry(key(parent));
    await platform.queue.jobs.retry(key(child));
    expect(isWaiting(await platform.job(child))).toBe(true);
    await run(parent);
    await run(child);
    expect(await statusOf(child)).toBe('COMPLETED');
  });

  it('of a child is refused if too many jobs wait for its parent', async () => {
    const parent = await add();
    const child = await add({ id: parent });
    await run(parent, fatally);
    await platform.queue.jobs.retry({ endpointId: ENDPOINT, id: parent });
    const others = Array.from({ length: LIMITS.childrenOfJob }, (_, index) => `other-${index}`);
    await platform.store.write((tx) => {
      const job = tx.job({ endpointId: ENDPOINT, id: parent });
      if (!job) return;
      const children = others.map((id) => ({ endpointId: ENDPOINT, id }));
      tx.saveJob(job, { ...job, links: { parents: [], delayMs: 0, children } }, 0);
    });
    const retried = platform.queue.jobs.retry({ endpointId: ENDPOINT, id: child });
    await expect(retried).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringContaining('1000 jobs wait for it already'),
    });
    expect(await statusOf(child)).toBe('FAILED');
  });

  it('that is refused does not make the job a child again', async () => {
    const parent = await add();
    const child = await add({ id: parent, onFailure: 'run' });
    await run(parent, fatally);
    await run(child);
    await platform.queue.jobs.retry({ endpointId: ENDPOINT, id: parent });
    const retried = platform.queue.jobs.retry({ endpointId: ENDPOINT, id: child });
    await expect(retried).rejects.toMatchObject({ code: 'conflict' });
    expect((await platform.job(parent)).links?.children).toEqual([]);
  });

  it('runs a skipped child', async () => {
    const parent = await add();
    const child = await add({ id: parent, onFailure: 'skip' });
    await run(parent, fatally);
    await platform.queue.jobs.retry(key(parent));
    await run(parent);
    await platform.queue.jobs.retry(key(child));
    await run(child);
  });

  it('of a parent does not run a child again', async () => {
    const parent = await add();
    const child = await add({ id: parent, onFailure: 'run' });
    await run(parent, fatally);
    await run(child);
    await platform.queue.jobs.retry(key(parent));
    await run(parent);
    expect(await worker.take()).toEqual([]);
    expect((await platform.job(child)).attempt).toBe(1);
  });
});
