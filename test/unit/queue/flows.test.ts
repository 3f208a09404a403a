// Flows: what is accepted, what their record shows, and cancel and retry of all or some of their jobs.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { NewFlow, NewFlowJob } from '../../../src/queue/flows/flow-insertion.ts';
import { LargePayloads } from '../../../src/queue/payloads/large-payloads.ts';
import { PayloadFileError } from '../../../src/store/store.ts';
import { LIMITS, type ParentPolicy } from '../../../src/wire/job/job.ts';
import type { Outcome } from '../../../src/wire/link/worker-link.ts';
import type { ProblemError } from '../../../src/wire/problem.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import {
  completed,
  ENDPOINT,
  failed,
  Hand,
  NEVER,
  Platform,
} from '../../support/queue-platform.ts';

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

/** A job and its parents: `b: a=x c!run` is b after a, whose output is x, and after c, and runs if c fails. */
function job(text: string, changed: Partial<NewFlowJob> = {}): NewFlowJob {
  const [name = '', parents = ''] = text.split(':');
  const after = parents
    .split(' ')
    .filter((each) => each !== '')
    .map((each) => {
      const [edge = '', as] = each.split('=');
      const [parent = '', onFailure = 'fail'] = edge.split('!');
      // The tests name policies.
      return { job: parent, onFailure: onFailure as ParentPolicy, ...(as && { as }) };
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
    await platform.clock.advance(LIMITS.flowRetentionMs + 600_000);
    await expect(read(id)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('is refused if the records of its user are too many, also after a restart', async () => {
    const { id } = await submit([job('a')]);
    await platform.store.write((tx) => {
      const row = { kind: 'flow_ended', userId: 'owner', parent: ENDPOINT, body: '{}' };
      const position = platform.clock.now() * 1_000;
      const kept = LIMITS.keptFlowsOfUser - 1;
      for (let n = 0; n < kept; n++) tx.putResource({ ...row, id: `${n}`, position: position + n });
    });
    await platform.restart();
    await expect(submit([job('b')])).rejects.toMatchObject({
      ...{ code: 'queue_full', message: expect.stringContaining('20000 flows of the user') },
    });
    expect(await read(id)).toMatchObject({ status: 'RUNNING' });
  });

  it('of many jobs is cancelled in several commits, also after a restart between them', async () => {
    const names = Array.from({ length: 300 }, (_, n) => `c${n}`);
    const { id } = await submit([job('a'), ...names.map((name) => job(`${name}:a`))]);
    await platform.clock.advance(0);
    expect(await platform.queue.flows.cancel({ endpointId: ENDPOINT, id })).toBe(301);
    expect(await read(id)).toMatchObject({ status: 'RUNNING', counts: { open: 173 } });
    await platform.restart();
    await expect
      .poll(async () => (await read(id)).counts, { timeout: 30_000 })
      .toMatchObject({ open: 0, cancelled: 301, failed: 0, skipped: 0 });
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
    for (let ran = 0; ran < names.length; ) {
      const leases = await worker.take({ max: 1_000, waitMs: 1_000 });
      for (const lease of leases) await worker.finish(lease, completed, { body: '1' });
      ran += leases.length;
    }
    expect(await read(id)).toMatchObject({ counts: { completed: 999, open: 1 } });
    await run();
    expect(await read(id)).toMatchObject({ status: 'COMPLETED' });
  });
});

describe('the input of a job', () => {
  const input = (text: string) => ({ input: Buffer.from(text) });

  async function inputsOf(jobs: NewFlowJob[], outputs: string[]): Promise<unknown> {
    await submit(jobs);
    for (const output of outputs) {
      const lease = await worker.takeOne();
      if (output === '') await worker.finish(lease, fatally);
      else await worker.finish(lease, completed, { body: output });
    }
    const parked = await platform.park('take', () => worker.take({ waitMs: 10_000 }));
    const [lease] = await parked.answer;
    return lease && Buffer.from(lease.input).toString();
  }

  it('gets the outputs of its parents as members, unchanged', async () => {
    const jobs = [job('a'), job('b'), job('c:a=image b=mask', input('{"n":1.0} '))];
    expect(await inputsOf(jobs, ['{"url": "x"}', '[1.50]'])).toBe(
      '{"n":1.0,"image":{"url": "x"},"mask":[1.50]}',
    );
  });

  it('may have no other member, and gets null for a parent that has failed', async () => {
    const jobs = [job('a'), job('b'), job('c:a!run=image b=mask', input('{ }'))];
    expect(await inputsOf(jobs, ['', '2'])).toBe('{ "image":null,"mask":2}');
  });

  it('is large, with large outputs', async () => {
    const output = JSON.stringify('x'.repeat(700_000));
    const jobs = [job('a'), job('b:a=text', input(`{"own":${output}}`))];
    expect(await inputsOf(jobs, [output])).toBe(`{"own":${output},"text":${output}}`);
  });

  it('fails the job if it becomes too large', async () => {
    const output = JSON.stringify('x'.repeat(11_000_000));
    const { id, ids } = await submit([job('a'), job('b:a=one', input(`{"own":${output}}`))]);
    await worker.finish(await worker.takeOne(), completed, { body: output });
    await platform.queue.jobs.waitForEnd(
      { endpointId: ENDPOINT, id: ids['b'] ?? '' },
      1_000,
      NEVER,
    );
    expect(await statesOf(id)).toEqual({ a: 'COMPLETED', b: 'FAILED' });
    expect((await platform.record(ids['b'] ?? '')).error?.message).toMatch(
      /^the input with the outputs of the parents is larger than 20971520 bytes/,
    );
  });

  it('finds the output of a parent that ended long before the others', async () => {
    const { ids } = await submit([
      job('a', { policy: { priority: 1 } }),
      job('b', { policy: { ttl: 86_400_000 } }),
      job('c:a=one b=two'),
    ]);
    await worker.finish(await worker.takeOne(), completed, { body: '"early"' });
    // Twice the retention.
    await platform.clock.advance(3_600_000);
    await worker.hello();
    await worker.finish(await worker.takeOne(), completed, { body: '"late"' });
    const parked = await platform.park('take', () => worker.take({ waitMs: 10_000 }));
    const [lease] = await parked.answer;
    expect(lease?.jobId).toBe(ids['c']);
    expect(Buffer.from(lease?.input ?? '').toString()).toBe('{"one":"early","two":"late"}');
    await platform.clock.advance(3_600_000);
    expect(
      await platform.store.read((tx) => tx.job({ endpointId: ENDPOINT, id: ids['a'] ?? '' })),
    ).toBeUndefined();
  });

  it('is filled after a restart between the end of its parent and that', async () => {
    const { id } = await submit([job('a'), job('b:a=one')]);
    const lease = await worker.takeOne();
    // The queue closes as soon as the parent has ended.
    const ended = worker.finish(lease, completed, { body: '1' });
    await Promise.all([ended, platform.queue.close()]);
    expect(
      await platform.store.read((tx) => tx.resources({ kind: 'fill', limit: 9 })),
    ).toHaveLength(1);
    await platform.restart();
    worker = new Hand(() => platform.queue.link(ENDPOINT), { id: ENDPOINT, incarnation: 2 });
    await worker.hello();
    const parked = await platform.park('take', () => worker.take({ waitMs: 10_000 }));
    const [filled] = await parked.answer;
    expect(Buffer.from(filled?.input ?? '').toString()).toBe('{"one":1}');
    expect(await platform.store.read((tx) => tx.resources({ kind: 'fill', limit: 9 }))).toEqual([]);
    expect(await statesOf(id)).toMatchObject({ b: 'IN_PROGRESS' });
  });

  it('says so if the output of a parent is gone', async () => {
    const { ids } = await submit([job('a', { endpointId: 'other' }), job('b'), job('c:a=one b')]);
    const other = await connect('other');
    await run(completed, other);
    await platform.queue.removal.drop('other', NEVER);
    await run();
    await platform.queue.jobs.waitForEnd(
      { endpointId: ENDPOINT, id: ids['c'] ?? '' },
      1_000,
      NEVER,
    );
    expect((await platform.record(ids['c'] ?? '')).error).toMatchObject({
      code: 'parent_failed',
      message: `the output of parent other/${ids['a']} is gone: its record has been removed`,
    });
  });

  it('is filled when a retried parent has COMPLETED, before or after the retry of the job', async () => {
    for (const isEarly of [true, false]) {
      const { ids } = await submit([job('a'), job('b:a=one')]);
      const key = (name: string) => ({ endpointId: ENDPOINT, id: ids[name] ?? '' });
      await run(fatally);
      await platform.queue.jobs.retry(key('a'));
      if (isEarly) await run();
      await platform.queue.jobs.retry(key('b'));
      if (!isEarly) await run();
      const parked = await platform.park('take', () => worker.take({ waitMs: 10_000 }));
      const [lease] = await parked.answer;
      expect(Buffer.from(lease?.input ?? '').toString()).toBe('{"one":1}');
      if (lease) await worker.finish(lease, completed, { body: '1' });
    }
  });

  it('fails the job if it is lost, and holds up no other', async () => {
    const large = input(JSON.stringify({ own: 'x'.repeat(700_000) }));
    const { id, ids } = await submit([job('a'), job('b:a=one', large), job('c:a=one', large)]);
    const lost = ids['b'] ?? '';
    const { read } = LargePayloads.prototype;
    const spy = vi.spyOn(LargePayloads.prototype, 'read').mockImplementation(function (
      this: LargePayloads,
      ...[kind, key, bytes]
    ) {
      if (key.id !== lost) return read.call(this, kind, key, bytes);
      const cause = Object.assign(new Error('no such file'), { code: 'ENOENT' });
      return Promise.reject(new PayloadFileError('input', cause));
    });
    await run();
    const parked = await platform.park('take', () => worker.take({ waitMs: 10_000 }));
    expect(await parked.answer).toMatchObject([{ jobId: ids['c'] }]);
    spy.mockRestore();
    expect(await statesOf(id)).toMatchObject({ b: 'FAILED', c: 'IN_PROGRESS' });
  });

  it('has one parent for a member', async () => {
    expect((await refused([job('a'), job('b'), job('c:a=x b=x')])).errors).toEqual([
      'jobs[2].after[1].as: "x" is the member of another parent',
    ]);
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
      message: 'endpoint e can take 700 more jobs, and not 800; maxQueued is 1500',
    });
    expect((await platform.health()).jobs.inQueue).toBe(800);
  });
});

describe('cancel', () => {
  const key = (id: string) => ({ endpointId: ENDPOINT, id });

  it('of a flow cancels all jobs that have not ended, and fails none', async () => {
    const { id } = await submit([job('a'), job('b:a'), job('c:b'), job('d')]);
    await run();
    expect(await platform.queue.flows.cancel(key(id))).toBe(3);
    expect(await statesOf(id)).toEqual({
      ...{ a: 'COMPLETED', b: 'CANCELLED', c: 'CANCELLED', d: 'CANCELLED' },
    });
    expect(await read(id)).toMatchObject({ status: 'CANCELLED' });
    expect(await platform.queue.flows.cancel(key(id))).toBe(0);
  });

  it('of some jobs leaves their children to the edges', async () => {
    const { id } = await submit([job('a'), job('b:a!skip'), job('c:a!run'), job('d')]);
    expect(await platform.queue.flows.cancel(key(id), { names: ['a'] })).toBe(1);
    expect(await statesOf(id)).toEqual({
      ...{ a: 'CANCELLED', b: 'SKIPPED', c: 'IN_QUEUE', d: 'IN_QUEUE' },
    });
  });

  it('names a job that the flow does not have', async () => {
    const { id } = await submit([job('a')]);
    await expect(platform.queue.flows.cancel(key(id), { names: ['a', 'x'] })).rejects.toMatchObject(
      {
        errors: ['jobs[1]: no job of the flow is named "x"'],
      },
    );
  });
});

describe('retry', () => {
  const key = (id: string) => ({ endpointId: ENDPOINT, id });

  it('of a flow runs what has failed and what follows, and nothing else', async () => {
    const { id, ids } = await submit([job('a'), job('b:a'), job('c:b'), job('d:b!skip')]);
    await run();
    await run(fatally);
    expect(await read(id)).toMatchObject({ status: 'FAILED' });
    expect(await platform.queue.flows.retry(key(id))).toBe(3);
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
    expect(await platform.queue.flows.retry(key(id), { names: ['a'] })).toBe(2);
    expect(await statesOf(id)).toEqual({
      ...{ a: 'IN_QUEUE', b: 'WAITING', x: 'FAILED', y: 'FAILED' },
    });
  });

  it('is refused if nothing has failed', async () => {
    const { id } = await submit([job('a')]);
    await expect(platform.queue.flows.retry(key(id))).rejects.toMatchObject({
      code: 'conflict',
    });
  });
});
