// Flows with jobs in several shards: accepted whole, each job runs once after its parents, and the record counts each end.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { NewFlowJob } from '../../../../src/queue/flows/flow-insertion.ts';
import type { Outcome } from '../../../../src/wire/link/worker-link.ts';
import { completed, failed } from '../../../support/queue-platform.ts';
import { type CallFate, Shards } from '../../../support/shards.ts';

const fatally = { ...failed, retry: 'never' } as const;

let shards: Shards;

beforeEach(async () => {
  shards = new Shards(3);
  await shards.start();
});

afterEach(() => shards.close());

/** `a@1:b c=as`: job a in shard 1, after b and c. */
function parse(text: string): NewFlowJob {
  const [head = '', edges = ''] = text.split(':');
  const [name = '', shard = '0'] = head.split('@');
  const after = edges
    .split(' ')
    .filter(Boolean)
    .map((edge) => {
      const [job = '', as] = edge.split('=');
      const isRun = job.endsWith('!');
      const onFailure = isRun ? 'run' : 'fail';
      return { job: job.replace('!', ''), onFailure, ...(as !== undefined && { as }) } as const;
    });
  return {
    name,
    endpointId: `e${shard}`,
    input: Buffer.from('{}'),
    policy: {},
    webhook: undefined,
    after,
  };
}

interface Flow {
  id: string;
  ids: Record<string, string>;
}

async function submit(texts: string[], changed: Partial<NewFlowJob> = {}): Promise<Flow> {
  const jobs = texts.map((text) => ({ ...parse(text), ...changed }));
  const given = { endpointId: 'e0', jobs, idempotency: undefined };
  const flow = await shards.queue(0).flows.submit(given);
  return { id: flow.id, ids: Object.fromEntries(flow.jobs.map(({ id, name }) => [name, id])) };
}

const keyOf = (flow: Flow) => ({ endpointId: 'e0', id: flow.id });
const read = (flow: Flow) => shards.queue(0).flows.read(keyOf(flow));

async function statesOf(flow: Flow): Promise<Record<string, string>> {
  const { jobs } = await read(flow);
  return Object.fromEntries(jobs.map(({ name, state }) => [name, state]));
}

/** Runs the next job of the shard; it must be this one. */
async function run(flow: Flow, name: string, shard: number, end: Outcome = completed) {
  const ran = await shards.run(shard, end, JSON.stringify(name));
  expect(ran.id).toBe(flow.ids[name]);
  return ran;
}

const isIdle = async (shard: number) => (await shards.worker(shard).take()).length === 0;

describe('a flow with jobs in several shards', () => {
  it('runs parents before their children, and counts each end', async () => {
    const flow = await submit(['a@1', 'b@2:a', 'c:b', 'd@1:a c']);
    await shards.settle();
    await run(flow, 'a', 1);
    await run(flow, 'b', 2);
    expect(await isIdle(1)).toBe(true);
    await run(flow, 'c', 0);
    await run(flow, 'd', 1);
    await shards.settle();
    expect(await read(flow)).toMatchObject({
      ...{ status: 'COMPLETED', total: 4, counts: { open: 0, completed: 4 } },
    });
  });

  it('starts no job before all are added', async () => {
    shards.chooseFate = (verb) => (verb === 'receive' ? 'lost_call' : 'answered');
    const flow = await submit(['a', 'b@1', 'c@2:a']);
    await shards.clock.advance(1_000);
    expect([await isIdle(0), await isIdle(1)]).toEqual([true, true]);
    expect(await statesOf(flow)).toEqual({ a: 'WAITING', b: 'WAITING', c: 'WAITING' });
    const { waitReason } = await shards
      .queue(0)
      .jobs.outline({ endpointId: 'e0', id: flow.ids['a'] ?? '' });
    expect(waitReason?.message).toContain('is being added');
    shards.chooseFate = () => 'answered';
    await shards.settle();
    await run(flow, 'b', 1);
    await run(flow, 'a', 0);
    await run(flow, 'c', 2);
  });

  it('is refused as a whole if an endpoint is too full, foreign or unknown', async () => {
    await shards.store(1).write((tx) => {
      const endpoint = tx.endpoint('e1');
      if (!endpoint) return;
      tx.putEndpoint({ ...endpoint, settings: { ...endpoint.settings, maxQueued: 1 } });
    });
    await expect(submit(['a', 'b@1', 'c@1'])).rejects.toMatchObject({ code: 'queue_full' });
    await shards.store(2).write((tx) => {
      const endpoint = tx.endpoint('e2');
      if (endpoint) tx.putEndpoint({ ...endpoint, id: 'f2', userId: 'somebody' });
    });
    await expect(submit(['a', 'b@1', 'c@x'])).rejects.toMatchObject({ code: 'not_found' });
    const foreign = { userId: 'owner', jobs: [{ endpointId: 'f2', count: 1 }] };
    expect(await shards.queue(2).shardService.judgeJobs(foreign)).toMatchObject({
      code: 'not_found',
    });
    expect([await isIdle(0), await isIdle(1)]).toEqual([true, true]);
    expect(
      (await shards.queue(0).flows.list({ endpointId: 'e0', before: undefined, limit: 9 })).flows,
    ).toEqual([]);
  });

  it('puts outputs into inputs across shards, and takes large inputs with it', async () => {
    const big = JSON.stringify({ text: 'x'.repeat(3_000_000) });
    const flow = await submit(['a@1', 'b@2:a=image'], { input: Buffer.from(big) });
    await run(flow, 'a', 1);
    const { input } = await run(flow, 'b', 2);
    expect(input).toEqual({ ...JSON.parse(big), image: 'a' });
    await shards.settle();
    const left = await shards.store(0).read((tx) => tx.resources({ kind: 'flow_input', limit: 9 }));
    expect(left).toEqual([]);
  });

  it('is one flow for one idempotency key', async () => {
    const idempotency = { key: 'k', requestHash: 'h' };
    const given = { endpointId: 'e0', jobs: [parse('a'), parse('b@1:a')], idempotency };
    const first = await shards.queue(0).flows.submit(given);
    expect(await shards.queue(0).flows.submit(given)).toEqual(first);
    await shards.settle();
    await shards.run(0);
    await shards.run(1);
    expect([await isIdle(0), await isIdle(1)]).toEqual([true, true]);
  });

  it.each<CallFate>(['lost_call', 'lost_answer', 'repeated'])(
    'runs each job once if every second call fails: %s',
    async (fate) => {
      let calls = 0;
      shards.chooseFate = (verb) => (verb === 'receive' && calls++ % 2 === 0 ? fate : 'answered');
      const flow = await submit(['a@1', 'b@2:a', 'c:a b', 'd@1:c']);
      await shards.settle();
      for (const [name, shard] of [
        ['a', 1],
        ['b', 2],
        ['c', 0],
        ['d', 1],
      ] as const) {
        await run(flow, name, shard);
        await shards.settle();
      }
      expect(await read(flow)).toMatchObject({ status: 'COMPLETED', counts: { completed: 4 } });
      for (const shard of [0, 1, 2]) expect(await isIdle(shard)).toBe(true);
    },
  );

  it.each([0, 1, 2])('goes on after a restart of shard %i between all steps', async (shard) => {
    const flow = await submit(['a@1', 'b@2:a', 'c:b']);
    await shards.restart(shard);
    await shards.settle();
    await run(flow, 'a', 1);
    await shards.restart(shard);
    await shards.settle();
    await run(flow, 'b', 2);
    await shards.restart(shard);
    await shards.settle();
    await run(flow, 'c', 0);
    await shards.settle();
    expect(await read(flow)).toMatchObject({ status: 'COMPLETED' });
  });

  it('takes a job for removed whose endpoint is deleted before the job is added', async () => {
    shards.chooseFate = (verb) => (verb === 'receive' ? 'lost_call' : 'answered');
    const flow = await submit(['a', 'b@1', 'c@2:b', 'd:b!']);
    await shards.store(1).write((tx) => {
      const endpoint = tx.endpoint('e1');
      if (endpoint) tx.putEndpoint({ ...endpoint, deleted: true });
    });
    shards.chooseFate = () => 'answered';
    await shards.settle();
    await run(flow, 'a', 0);
    await run(flow, 'd', 0);
    await shards.settle();
    expect(await statesOf(flow)).toEqual({
      a: 'COMPLETED',
      b: 'REMOVED',
      c: 'FAILED',
      d: 'COMPLETED',
    });
  });
});

describe('cancel', () => {
  it('cancels all jobs of the flow in all shards; none fails by that', async () => {
    const flow = await submit(['a@1', 'b@2:a', 'c:b', 'd@1:c']);
    await shards.settle();
    expect(await shards.queue(0).flows.cancel(keyOf(flow))).toBe(4);
    await shards.settle();
    expect(await read(flow)).toMatchObject({ status: 'CANCELLED', counts: { cancelled: 4 } });
  });

  it('cancels jobs that are yet to be added', async () => {
    shards.chooseFate = (verb) => (verb === 'receive' ? 'lost_call' : 'answered');
    const flow = await submit(['a', 'b@1', 'c@2:a b']);
    await shards.queue(0).flows.cancel(keyOf(flow));
    shards.chooseFate = () => 'answered';
    await shards.settle();
    expect(await read(flow)).toMatchObject({ status: 'CANCELLED', counts: { cancelled: 3 } });
    for (const shard of [0, 1, 2]) expect(await isIdle(shard)).toBe(true);
  });

  it('of a part leaves the rest to the edges', async () => {
    const flow = await submit(['a@1', 'b@2:a', 'c:a!', 'x@1']);
    await shards.settle();
    expect(await shards.queue(0).flows.cancel(keyOf(flow), { names: ['a'] })).toBe(1);
    await shards.settle();
    expect(await statesOf(flow)).toEqual({
      a: 'CANCELLED',
      b: 'FAILED',
      c: 'IN_QUEUE',
      x: 'IN_QUEUE',
    });
  });
});

describe('retry', () => {
  it('runs the failed jobs again, each after its parents', async () => {
    const flow = await submit(['a@1', 'b@2:a', 'c:b', 'd@1:c', 'x:a!']);
    await shards.settle();
    await run(flow, 'a', 1, fatally);
    await shards.settle();
    await run(flow, 'x', 0);
    await shards.settle();
    const failedAll = { a: 'FAILED', b: 'FAILED', c: 'FAILED', d: 'FAILED', x: 'COMPLETED' };
    expect(await statesOf(flow)).toEqual(failedAll);
    expect(await shards.queue(0).flows.retry(keyOf(flow))).toBe(4);
    expect(await read(flow)).toMatchObject({ status: 'RUNNING', counts: { open: 4 } });
    await shards.settle();
    for (const shard of [0, 2]) expect(await isIdle(shard)).toBe(true);
    await run(flow, 'a', 1);
    await run(flow, 'b', 2);
    await run(flow, 'c', 0);
    await run(flow, 'd', 1);
    await shards.settle();
    expect(await read(flow)).toMatchObject({ status: 'COMPLETED', counts: { completed: 5 } });
  });

  it.each([0, 1, 2])(
    'waits for parents whose retry arrives later than that of shard %i',
    async (first) => {
      const flow = await submit(['a@1', 'b@2:a', 'c:b']);
      await shards.settle();
      await run(flow, 'a', 1, fatally);
      await shards.settle();
      for (const shard of [0, 1, 2]) if (shard !== first) shards.away.add(shard);
      await shards.queue(0).flows.retry(keyOf(flow));
      await shards.settle();
      for (const shard of [2, 1, 0]) {
        shards.away.delete(shard);
        await shards.settle();
      }
      await run(flow, 'a', 1);
      await run(flow, 'b', 2);
      await run(flow, 'c', 0);
      await shards.settle();
      expect(await read(flow)).toMatchObject({ status: 'COMPLETED' });
    },
  );

  it('ends jobs again whose parent is gone', async () => {
    const flow = await submit(['a@1', 'b@2:a', 'c:b']);
    await shards.settle();
    await run(flow, 'a', 1, fatally);
    await shards.settle();
    await shards.queue(1).jobs.changeMany({
      ...{ endpointId: 'e1', change: 'delete', criteria: {}, dryRun: false, status: 'FAILED' },
    });
    await shards.queue(0).flows.retry(keyOf(flow));
    await shards.settle();
    expect(await statesOf(flow)).toEqual({ a: 'FAILED', b: 'FAILED', c: 'FAILED' });
  });
});
