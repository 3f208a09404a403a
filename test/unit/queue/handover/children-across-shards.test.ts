// Children that a handler awaits in another shard: each is added once, and its end reaches the parent once, whatever is lost.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isWaiting } from '../../../../src/store/store.ts';
import { LIMITS } from '../../../../src/wire/job/job.ts';
import type { Wait } from '../../../../src/wire/job/memo.ts';
import type { Lease } from '../../../../src/wire/link/worker-link.ts';
import { completed, failed } from '../../../support/queue-platform.ts';
import { type CallFate, Shards } from '../../../support/shards.ts';

const fatally = { ...failed, retry: 'never' } as const;
const released = { kind: 'released', reason: 'drain' } as const;
const waiting = { kind: 'waiting', executionMs: 1 } as const;

let shards: Shards;

beforeEach(async () => {
  shards = new Shards(2);
  await shards.start();
});

afterEach(() => shards.close());

function child(name: string, endpoint = 'e1', input: object = { name }): Wait {
  return { kind: 'child', name, digest: `digest of ${name}`, endpoint, input };
}

/** A job of shard 0 whose handler awaits these children. */
async function startParent(children: readonly Wait[]): Promise<string> {
  const id = await shards.add(0);
  await awaitChildren(children);
  return id;
}

async function awaitChildren(children: readonly Wait[]): Promise<void> {
  const lease = await shards.worker(0).takeOne({ waitMs: 60_000 });
  await shards.worker(0).finish(lease, waiting, { body: JSON.stringify(children) });
}

/** What the next attempt of a parent remembers. */
async function resume(): Promise<unknown> {
  const lease = await shards.worker(0).takeOne({ waitMs: 60_000 });
  await shards.worker(0).finish(lease, released);
  return readMemo(lease);
}

function readMemo({ input = new Uint8Array(), memoBytes = 0 }: Lease): unknown {
  return JSON.parse(Buffer.from(input.subarray(input.length - memoBytes)).toString());
}

async function listJobs(shard: number): Promise<string[]> {
  const listing = { endpointId: `e${shard}`, status: undefined, before: undefined, limit: 200 };
  return (await shards.queue(shard).jobs.list(listing)).jobs.map(({ id }) => id);
}

const isWaitingFor = async (id: string) => {
  const job = await shards.job(0, id);
  return job !== undefined && isWaiting(job);
};

describe('a handler that awaits children in another shard', () => {
  it('goes on with their outputs, and they are released then', async () => {
    const id = await startParent([child('a'), child('b'), child('own', 'e0')]);
    expect(await isWaitingFor(id)).toBe(true);
    const first = await shards.run(1, undefined, '{"of":"a"}');
    expect(first.input).toEqual({ name: 'a' });
    await shards.run(1, undefined, '2');
    await shards.run(0, undefined, '3');
    expect(await resume()).toMatchObject([
      { name: 'own', value: 3 },
      { name: 'b', value: 2 },
      { kind: 'child', name: 'a', endpoint: 'e1', id: first.id, value: { of: 'a' } },
    ]);
    await shards.settle();
    expect((await shards.job(1, first.id))?.links?.readers).toEqual([]);
    await shards.clock.advance(2 * LIMITS.retentionMs.run);
    expect(await shards.statusOf(1, first.id)).toBe('REMOVED');
  });

  it.each<CallFate>(['lost_call', 'lost_answer', 'repeated'])(
    'starts each once if calls fail: %s',
    async (fate) => {
      let calls = 0;
      shards.chooseFate = (verb) => (verb === 'receive' && calls++ % 2 === 0 ? fate : 'answered');
      const id = await startParent([child('a'), child('b')]);
      await shards.settle();
      expect(await listJobs(1)).toHaveLength(2);
      await shards.run(1);
      await shards.settle();
      expect(await isWaitingFor(id)).toBe(true);
      await shards.run(1);
      await shards.settle();
      expect(await resume()).toMatchObject([{ value: 1 }, { value: 1 }]);
      expect(await listJobs(1)).toHaveLength(2);
    },
  );

  it('gets over a restart of both shards at each point', async () => {
    const restart = async () => {
      await shards.restart(0);
      await shards.restart(1);
    };
    shards.away.add(1);
    const id = await startParent([child('a')]);
    await restart();
    await shards.settle();
    shards.away.add(0);
    await shards.run(1, undefined, '"done"');
    await restart();
    await shards.settle();
    expect(await resume()).toMatchObject([{ name: 'a', value: 'done' }]);
    expect(await listJobs(1)).toHaveLength(1);
    expect(await shards.statusOf(0, id)).toBe('IN_QUEUE');
  });

  it('learns the error of one that fails, and runs it again after a retry by a client', async () => {
    const id = await startParent([child('a')]);
    const { id: childId } = await shards.run(1, fatally);
    const lease = await shards.worker(0).takeOne({ waitMs: 60_000 });
    expect(readMemo(lease)).toMatchObject([
      { name: 'a', status: 'FAILED', code: fatally.error.code, message: fatally.error.message },
    ]);
    await shards.worker(0).finish(lease, fatally);
    await shards.queue(0).jobs.retry({ endpointId: 'e0', id });
    await awaitChildren([child('a')]);
    expect((await shards.run(1)).id).toBe(childId);
    expect(await resume()).toMatchObject([{ name: 'a', value: 1 }]);
  });

  it('waits for an output while the shard of the child is away', async () => {
    await startParent([child('a')]);
    shards.chooseFate = (verb) => (verb === 'readOutput' ? 'lost_call' : 'answered');
    await shards.run(1);
    await shards.settle();
    expect(await shards.worker(0).take()).toEqual([]);
    shards.chooseFate = () => 'answered';
    const resumed = resume();
    await shards.clock.advance(10_000);
    expect(await resumed).toMatchObject([{ name: 'a', value: 1 }]);
  });

  it('cancels them if it is cancelled itself', async () => {
    const id = await startParent([child('a'), child('own', 'e0')]);
    await shards.settle();
    await shards.queue(0).jobs.cancel({ endpointId: 'e0', id });
    await shards.settle();
    const [childId = ''] = await listJobs(1);
    await shards.waitForEnd(1, childId);
    expect(await shards.statusOf(1, childId)).toBe('CANCELLED');
  });

  it('remembers that an output is too large', async () => {
    await startParent([child('a')]);
    await shards.run(1, undefined, JSON.stringify('x'.repeat(LIMITS.stepBytes)));
    expect(await resume()).toMatchObject([{ status: 'COMPLETED', code: 'output_too_large' }]);
  });

  it('gives them inputs of megabytes, and their depth', async () => {
    await startParent([child('a', 'e1', { text: 'é'.repeat(1_000_000) })]);
    await shards.settle();
    const [childId = ''] = await listJobs(1);
    expect((await shards.job(1, childId))?.links?.depth).toBe(1);
    const { input } = await shards.run(1);
    expect(input).toEqual({ text: 'é'.repeat(1_000_000) });
    const inputs = await shards
      .store(0)
      .read((tx) => tx.resources({ kind: 'flow_input', limit: 9 }));
    expect(inputs).toEqual([]);
  });
});

describe('children in another shard', () => {
  const addForeign = () =>
    shards.store(1).write((tx) => {
      const endpoint = tx.endpoint('e1');
      if (endpoint) tx.putEndpoint({ ...endpoint, id: 'e1-foreign', userId: 'somebody' });
    });
  const countForeign = () => shards.store(1).read((tx) => tx.endpoint('e1-foreign')?.inQueue);

  it('are refused at the endpoint of another user', async () => {
    await addForeign();
    const id = await startParent([child('a', 'e1-foreign')]);
    expect(await shards.job(0, id)).toMatchObject({
      status: 'FAILED',
      error: { code: 'wait_failed', message: 'ctx.run: endpoint e1-foreign not found' },
    });
    expect(await countForeign()).toBe(0);
  });

  it('are not added at the endpoint of another user by a message either: they count as removed', async () => {
    shards.chooseFate = (verb) => (verb === 'judgeJobs' ? 'lost_call' : 'answered');
    await addForeign();
    await startParent([child('a', 'e1-foreign')]);
    expect(await resume()).toMatchObject([{ name: 'a', status: 'REMOVED' }]);
    expect(await countForeign()).toBe(0);
  });

  it('are refused for a while if their queue is full: the attempt is retried', async () => {
    await shards.store(1).write((tx) => {
      const endpoint = tx.endpoint('e1');
      if (!endpoint) return;
      tx.putEndpoint({ ...endpoint, settings: { ...endpoint.settings, maxQueued: 1 } });
    });
    const id = await startParent([child('a'), child('b')]);
    expect(await shards.job(0, id)).toMatchObject({
      error: {
        code: 'wait_failed',
        message: 'ctx.run: endpoint e1 can take 1 more jobs, and not 2; maxQueued is 1',
      },
    });
  });

  it('get a bounded number of messages', async () => {
    const many = Array.from({ length: LIMITS.awaitedChildren }, (_, n) => child(`child ${n}`));
    const id = await startParent(many);
    await shards.settle();
    expect(await listJobs(1)).toHaveLength(LIMITS.awaitedChildren);
    for (const lease of await shards.worker(1).take({ max: 200 })) {
      await shards.worker(1).finish(lease, completed, { body: '1' });
    }
    await shards.settle();
    expect(await resume()).toHaveLength(LIMITS.awaitedChildren);
    expect(await shards.statusOf(0, id)).toBe('IN_QUEUE');
  });
});
