// Flows: what is accepted, what their record shows, and cancel and retry of all or some of their jobs.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { NewFlow, NewFlowJob } from '../../../src/queue/flows/flows.ts';
import { LIMITS, type ParentPolicy } from '../../../src/wire/job/job.ts';
import type { Outcome } from '../../../src/wire/link/worker-link.ts';
import type { ProblemError } from '../../../src/wire/problem.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { completed, ENDPOINT, failed, Hand, Platform } from '../../support/queue-platform.ts';

const fatally = { ...failed, retry: 'never' } as const;

let platform: Platform;
let worker: Hand;

beforeEach(async () => {
  platform = new Platform({ endpoint: { maxQueued: 1_500 } });
  await platform.start();
  const settings = endpointSettings.parse({});
  await platform.store.write((tx) => {
    tx.putEndpoint({ id: 'other', settings, createdAt: 0 });
    tx.putEndpoint({ id: 'foreign', settings, createdAt: 0, userId: 'somebody' });
  });
  worker = await connect(ENDPOINT);
});

afterEach(() => platform.close());

async function connect(endpointId: string): Promise<Hand> {
  const hand = new Hand(() => platform.queue.link(endpointId), { id: endpointId, slots: 100 });
  await hand.hello();
  return hand;
}

/** A job and its parents: `b: a c!run` is b after a and c, and runs if c fails. */
function job(text: string, changed: Partial<NewFlowJob> = {}): NewFlowJob {
  const [name = '', parents = ''] = text.split(':');
  const after = parents
    .split(' ')
    .filter((each) => each !== '')
    .map((each) => {
      const [parent = '', onFailure = 'fail'] = each.split('!');
      // The tests name policies.
      return { job: parent, onFailure: onFailure as ParentPolicy };
    });
  return { name, endpointId: ENDPOINT, input: Buffer.from('{}'), policy: {}, after, ...changed };
}

async function submit(jobs: NewFlowJob[], changed: Partial<NewFlow> = {}) {
  const flow = { endpointId: ENDPOINT, jobs, idempotency: undefined, ...changed };
  const { id, jobs: added } = await platform.queue.flows.submit(flow);
  return { id, ids: Object.fromEntries(added.map((each) => [each.name, each.id])) };
}

function refused(jobs: NewFlowJob[]): Promise<ProblemError> {
  return submit(jobs).then(
    () => expect.fail('the flow was accepted'),
    (error) => error,
  );
}

const read = (id: string) => platform.queue.flows.read({ endpointId: ENDPOINT, id });

/** The state of each job by its name. */
async function statesOf(id: string): Promise<Record<string, string>> {
  return Object.fromEntries((await read(id)).jobs.map(({ name, state }) => [name, state]));
}

/** Ends the job that is next. */
async function run(end: Outcome = completed, by = worker): Promise<string> {
  const lease = await by.takeOne();
  await by.finish(lease, end, { body: end.kind === 'completed' ? '1' : '' });
  return lease.jobId;
}

describe('a flow', () => {
  it('runs parents before their children, each job once, and counts them', async () => {
    const { id, ids } = await submit([job('d:b c'), job('b:a'), job('c:a'), job('a')]);
    expect(await statesOf(id)).toEqual({
      ...{ a: 'IN_QUEUE', b: 'WAITING', c: 'WAITING', d: 'WAITING' },
    });
    expect(await run()).toBe(ids['a']);
    expect(await read(id)).toMatchObject({
      ...{ status: 'RUNNING', endedAt: null, total: 4 },
      counts: { open: 3, completed: 1 },
    });
    expect([await run(), await run()].sort()).toEqual([ids['b'], ids['c']].sort());
    expect(await run()).toBe(ids['d']);
    expect(await worker.take()).toEqual([]);
    expect(await read(id)).toMatchObject({
      ...{ status: 'COMPLETED', endedAt: platform.clock.now() },
      counts: { open: 0, completed: 4 },
    });
  });

  it('runs on several endpoints', async () => {
    const { id } = await submit([job('a'), job('b:a', { endpointId: 'other' }), job('c:b')]);
    const other = await connect('other');
    await run();
    await run(completed, other);
    await run();
    expect(await read(id)).toMatchObject({ status: 'COMPLETED' });
  });

  it('fails what follows a failure, skips what is to be skipped, and runs the rest', async () => {
    const { id } = await submit([
      job('a'),
      ...[job('b:a'), job('c:b'), job('d:a!skip'), job('e:d'), job('f:c!run e!run')],
    ]);
    await run(fatally);
    await run();
    expect(await statesOf(id)).toEqual({
      ...{ a: 'FAILED', b: 'FAILED', c: 'FAILED', d: 'SKIPPED', e: 'SKIPPED', f: 'COMPLETED' },
    });
    expect(await read(id)).toMatchObject({
      status: 'FAILED',
      counts: { failed: 3, skipped: 2, completed: 1 },
    });
  });

  it('is one flow for one idempotency key, and refuses the key with another body', async () => {
    const idempotency = { key: 'k', requestHash: 'h' };
    const first = await submit([job('a')], { idempotency });
    expect(await submit([job('a')], { idempotency })).toEqual(first);
    await run();
    expect(await submit([job('a')], { idempotency })).toEqual(first);
    const other = { key: 'k', requestHash: 'other' };
    await expect(submit([job('a')], { idempotency: other })).rejects.toMatchObject({
      code: 'conflict',
    });
    expect((await platform.health()).jobs.inQueue).toBe(0);
  });

  it('is one flow if a node repeats the request', async () => {
    const newFlow = { id: '01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d76' };
    const first = await submit([job('a'), job('b:a')], { newFlow });
    expect(await submit([job('a'), job('b:a')], { newFlow })).toEqual(first);
    expect((await platform.health()).jobs.inQueue).toBe(2);
  });

  it('keeps the graph and the ends of its jobs over a restart', async () => {
    const { id } = await submit([job('a'), job('b:a')]);
    await run();
    await platform.restart();
    worker = new Hand(() => platform.queue.link(ENDPOINT), { id: ENDPOINT, incarnation: 2 });
    await worker.hello();
    await run();
    expect(await read(id)).toMatchObject({ status: 'COMPLETED', counts: { completed: 2 } });
  });

  it('keeps its record after those of its jobs, for a day', async () => {
    const { id } = await submit([job('a')]);
    await run();
    await platform.clock.advance(3_600_000);
    expect(await statesOf(id)).toEqual({ a: 'COMPLETED' });
    await platform.clock.advance(LIMITS.flowRetentionMs);
    await submit([job('b')]);
    await expect(read(id)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('is listed with the newest first, a page at a time', async () => {
    const flows = [await submit([job('a')]), await submit([job('a')]), await submit([job('a')])];
    await run();
    const page = { endpointId: ENDPOINT, limit: 2, before: undefined };
    const first = await platform.queue.flows.list(page);
    expect(first.flows.map(({ id }) => id)).toEqual([flows[2]?.id, flows[1]?.id]);
    const rest = await platform.queue.flows.list({ ...page, before: first.next });
    expect(rest).toMatchObject({ flows: [{ id: flows[0]?.id, status: 'COMPLETED' }] });
    expect(rest.next).toBeUndefined();
  });

  it('of 1,000 jobs with one parent and one child', async () => {
    const names = Array.from({ length: LIMITS.jobsOfFlow - 2 }, (_, index) => `m${index}`);
    const maps = names.map((name) => job(`${name}:start`));
    const { id } = await submit([job('start'), ...maps, job(`end:${names.join(' ')}`)]);
    await run();
    for (const lease of await worker.take({ max: 1_000 })) {
      await worker.finish(lease, completed, { body: '1' });
    }
    expect(await read(id)).toMatchObject({ counts: { completed: 999, open: 1 } });
    await run();
    expect(await read(id)).toMatchObject({ status: 'COMPLETED' });
  });
});

describe('a flow that is refused', () => {
  it.each<[string, NewFlowJob[], string[]]>([
    [
      'for two jobs of one name',
      [job('a'), job('b'), job('a')],
      ['jobs[2].name: jobs[0] is named "a" too'],
    ],
    [
      'for parents that it does not have',
      [job('a:x'), job('b:a y')],
      [
        'jobs[0].after[0]: no job of the flow is named "x"',
        'jobs[1].after[1]: no job of the flow is named "y"',
      ],
    ],
    [
      'for a parent named twice',
      [job('a'), job('b:a a')],
      ['jobs[1].after[1]: "a" is named twice'],
    ],
    ['for a job after itself', [job('a:a')], ['jobs[0].after[0]: the job would wait for itself']],
    [
      'for a cycle',
      [job('a'), job('b:a d'), job('c:b'), job('d:c'), job('e:d')],
      ['jobs[1].after: the jobs wait for each other: b after d after c after b'],
    ],
  ])('%s adds no job', async (_, jobs, errors) => {
    expect((await refused(jobs)).errors).toEqual(errors);
    expect((await platform.health()).jobs.inQueue).toBe(0);
  });

  it('for too many edges names their number', async () => {
    const all = Array.from({ length: 150 }, (_, index) => `j${index}`);
    const jobs = all.map((name, index) => job(`${name}:${all.slice(0, index).join(' ')}`));
    expect((await refused(jobs)).errors).toEqual([
      'jobs: must have at most 10000 edges, and have 11175',
    ]);
  });

  it('for an endpoint of another user adds no job', async () => {
    const problem = await refused([job('a'), job('b:a', { endpointId: 'foreign' })]);
    expect(problem).toMatchObject({ code: 'not_found', message: 'endpoint foreign not found' });
    expect((await platform.health()).jobs.inQueue).toBe(0);
  });

  it('for a queue without room for all of its jobs adds none', async () => {
    const all = (prefix: string) =>
      Array.from({ length: 800 }, (_, index) => job(`${prefix}${index}`));
    await submit(all('a'));
    expect(await refused(all('b'))).toMatchObject({
      code: 'queue_full',
      message:
        'endpoint e has room for 700 more jobs, and the flow has 800 for it; maxQueued is 1500',
    });
    expect((await platform.health()).jobs.inQueue).toBe(800);
  });
});

describe('cancel', () => {
  const key = (id: string) => ({ endpointId: ENDPOINT, id });

  it('of a flow cancels all jobs that have not ended, and fails none', async () => {
    const { id } = await submit([job('a'), job('b:a'), job('c:b'), job('d')]);
    await run();
    expect(await platform.queue.flows.cancel(key(id), undefined)).toBe(3);
    expect(await statesOf(id)).toEqual({
      ...{ a: 'COMPLETED', b: 'CANCELLED', c: 'CANCELLED', d: 'CANCELLED' },
    });
    expect(await read(id)).toMatchObject({ status: 'CANCELLED' });
    expect(await platform.queue.flows.cancel(key(id), undefined)).toBe(0);
  });

  it('of some jobs leaves their children to the edges', async () => {
    const { id } = await submit([job('a'), job('b:a!skip'), job('c:a!run'), job('d')]);
    expect(await platform.queue.flows.cancel(key(id), ['a'])).toBe(1);
    expect(await statesOf(id)).toEqual({
      ...{ a: 'CANCELLED', b: 'SKIPPED', c: 'IN_QUEUE', d: 'IN_QUEUE' },
    });
  });

  it('names a job that the flow does not have', async () => {
    const { id } = await submit([job('a')]);
    await expect(platform.queue.flows.cancel(key(id), ['a', 'x'])).rejects.toMatchObject({
      errors: ['jobs[1]: no job of the flow is named "x"'],
    });
  });
});

describe('retry', () => {
  const key = (id: string) => ({ endpointId: ENDPOINT, id });

  it('of a flow runs what has failed and what follows, and nothing else', async () => {
    const { id, ids } = await submit([job('a'), job('b:a'), job('c:b'), job('d:b!skip')]);
    await run();
    await run(fatally);
    expect(await read(id)).toMatchObject({ status: 'FAILED' });
    expect(await platform.queue.flows.retry(key(id), undefined)).toBe(3);
    expect(await statesOf(id)).toEqual({
      ...{ a: 'COMPLETED', b: 'IN_QUEUE', c: 'WAITING', d: 'WAITING' },
    });
    expect(await run()).toBe(ids['b']);
    await run();
    await run();
    expect(await worker.take()).toEqual([]);
    expect(await read(id)).toMatchObject({ status: 'COMPLETED', counts: { completed: 4 } });
  });

  it('of a job runs it and what follows from it, not other failures', async () => {
    const { id } = await submit([job('a'), job('b:a'), job('x'), job('y:x')]);
    await run(fatally);
    await run(fatally);
    expect(await platform.queue.flows.retry(key(id), ['a'])).toBe(2);
    expect(await statesOf(id)).toEqual({
      ...{ a: 'IN_QUEUE', b: 'WAITING', x: 'FAILED', y: 'FAILED' },
    });
  });

  it('is refused if nothing has failed', async () => {
    const { id } = await submit([job('a')]);
    await expect(platform.queue.flows.retry(key(id), undefined)).rejects.toMatchObject({
      code: 'conflict',
    });
  });
});
