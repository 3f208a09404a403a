// Jobs that wait for jobs of other shards: each end of a parent reaches each child once, whatever is lost on the way.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { isWaiting } from '../../../../src/store/store.ts';
import { LIMITS } from '../../../../src/wire/job/job.ts';
import { completed, failed } from '../../../support/queue-platform.ts';
import { type CallFate, Shards } from '../../../support/shards.ts';

const fatally = { ...failed, retry: 'never' } as const;

let shards: Shards;

beforeEach(async () => {
  shards = new Shards(2);
  await shards.start();
});

afterEach(() => shards.close());

const behind = (id: string, more: object = {}) => ({ id, endpoint: 'e0', ...more });
const isIdle = async (shard: number) => (await shards.worker(shard).take()).length === 0;

describe('a job with a parent in another shard', () => {
  it('starts when the parent has ended', async () => {
    const parent = await shards.add(0);
    const child = await shards.add(1, [behind(parent)]);
    await shards.settle();
    expect(await isIdle(1)).toBe(true);
    expect((await shards.job(0, parent))?.links?.children).toEqual([
      { endpointId: 'e1', id: child, shard: 1 },
    ]);
    await shards.run(0);
    expect((await shards.run(1)).id).toBe(child);
    await shards.settle();
  });

  it('starts at once if the parent has ended before', async () => {
    const parent = await shards.add(0);
    await shards.run(0);
    const child = await shards.add(1, [behind(parent)]);
    expect((await shards.run(1)).id).toBe(child);
    expect(await shards.countMessages(1)).toBe(0);
  });

  it('is refused if the parent is none, or belongs to another user', async () => {
    await shards.store(0).write((tx) => {
      const endpoint = tx.endpoint('e0');
      if (endpoint) tx.putEndpoint({ ...endpoint, id: 'e3', userId: 'somebody' });
    });
    const gone = [behind('nobody'), { id: 'x', endpoint: 'unknown' }];
    await expect(shards.add(1, gone)).rejects.toMatchObject({
      code: 'invalid',
      errors: [
        'after[0]: job nobody of endpoint e0 not found or expired',
        'after[1]: job x of endpoint unknown not found or expired',
      ],
    });
    const asked = { userId: 'somebody', keys: [{ endpointId: 'e0', id: await shards.add(0) }] };
    expect(await shards.queue(0).shardService.describeParents(asked)).toEqual([null]);
  });

  it('is refused while nobody serves the shard of the parent', async () => {
    const parent = await shards.add(0);
    shards.away.add(0);
    const refused = shards.add(1, [behind(parent)]);
    const asserted = expect(refused).rejects.toMatchObject({ name: 'StoreUnavailableError' });
    await shards.clock.advance(60_000);
    await asserted;
  });

  it.each([
    ['fail', 'FAILED'],
    ['skip', 'CANCELLED'],
  ] as const)('ends as its edge says if the parent fails: %s', async (onFailure, status) => {
    const parent = await shards.add(0);
    const child = await shards.add(1, [behind(parent, { onFailure })]);
    await shards.settle();
    await shards.run(0, fatally);
    await shards.waitForEnd(1, child);
    expect(await shards.job(1, child)).toMatchObject({
      status,
      error: {
        code: 'parent_failed',
        message: expect.stringContaining(`parent e0/${parent} is FAILED`),
      },
    });
  });

  it('fails if the parent is removed before the end, also before it knows the child', async () => {
    const parent = await shards.add(0);
    shards.chooseFate = (verb) => (verb === 'receive' ? 'lost_call' : 'answered');
    const child = await shards.add(1, [behind(parent)]);
    await shards.queue(0).jobs.cancel({ endpointId: 'e0', id: parent });
    await shards.queue(0).jobs.changeMany({
      ...{ endpointId: 'e0', change: 'delete', criteria: {}, dryRun: false, status: 'CANCELLED' },
    });
    shards.chooseFate = () => 'answered';
    await shards.settle();
    expect((await shards.job(1, child))?.error).toMatchObject({
      message: `parent e0/${parent} was removed before it ended`,
    });
  });

  it('gets the output of the parent, and the parent is kept until then', async () => {
    const parent = await shards.add(0);
    const late = await shards.add(0);
    const child = await shards.add(1, [behind(parent, { as: 'image' }), behind(late)], '{"n":1}');
    await shards.settle();
    await shards.run(0, completed, '{"big":"x"}');
    await shards.clock.advance(2 * LIMITS.retentionMs.run);
    expect(await shards.statusOf(0, parent)).toBe('COMPLETED');
    await shards.worker(0).hello();
    await shards.worker(1).hello();
    await shards.run(0);
    expect(await shards.run(1)).toEqual({ id: child, input: { n: 1, image: { big: 'x' } } });
    await shards.settle();
    expect((await shards.job(0, parent))?.links?.readers).toEqual([]);
    await shards.clock.advance(2 * LIMITS.retentionMs.run);
    expect(await shards.statusOf(0, parent)).toBe('REMOVED');
  });

  it('gets an output of several parts', async () => {
    const parent = await shards.add(0);
    await shards.add(1, [behind(parent, { as: 'text' })]);
    const text = 'é'.repeat(5_000_000);
    await shards.run(0, completed, JSON.stringify(text));
    const { input } = await shards.run(1);
    expect(input).toEqual({ text });
  });

  it('waits for an output while the shard of the parent is away, and holds up no other one', async () => {
    const parent = await shards.add(0);
    const child = await shards.add(1, [behind(parent, { as: 'image' })]);
    await shards.settle();
    shards.chooseFate = (verb) => (verb === 'readOutput' ? 'lost_call' : 'answered');
    await shards.run(0);
    await shards.settle();
    const own = await shards.add(1);
    const second = await shards.add(1, [{ id: own, as: 'own' }]);
    expect((await shards.run(1)).id).toBe(own);
    expect(await shards.run(1)).toEqual({ id: second, input: { own: 1 } });
    shards.chooseFate = () => 'answered';
    const parked = shards.run(1);
    await shards.clock.advance(10_000);
    expect(await parked).toEqual({ id: child, input: { image: 1 } });
  });

  it('lets the parent go if it is cancelled', async () => {
    const parent = await shards.add(0);
    const late = await shards.add(0);
    const child = await shards.add(1, [behind(parent, { as: 'image' }), behind(late)]);
    await shards.settle();
    await shards.run(0);
    await shards.queue(1).jobs.cancel({ endpointId: 'e1', id: child });
    await shards.settle();
    expect((await shards.job(0, parent))?.links?.readers).toEqual([]);
  });
});

describe('messages between shards', () => {
  it.each<CallFate>(['lost_call', 'lost_answer', 'repeated'])(
    'have their effect once if a call fails: %s',
    async (fate) => {
      const parents = [await shards.add(0), await shards.add(0)];
      let calls = 0;
      shards.chooseFate = (verb) => (verb === 'receive' && calls++ % 2 === 0 ? fate : 'answered');
      const child = await shards.add(
        1,
        parents.map((id) => behind(id)),
      );
      await shards.settle();
      await shards.run(0);
      await shards.settle();
      expect(await isIdle(1)).toBe(true);
      await shards.run(0);
      await shards.settle();
      expect((await shards.run(1)).id).toBe(child);
      expect((await shards.job(0, parents[0] ?? ''))?.links?.children).toEqual([]);
    },
  );

  it('go on after a restart of the sender, and of the receiver', async () => {
    const parent = await shards.add(0);
    const child = await shards.add(1, [behind(parent)]);
    await shards.settle();
    shards.away.add(1);
    await shards.run(0);
    await shards.restart(0);
    await shards.restart(1);
    await shards.settle();
    expect((await shards.run(1)).id).toBe(child);
    // Their numbers go on: the receiver would ignore those that it has seen.
    const second = await shards.add(0);
    await shards.restart(0);
    const last = await shards.add(1, [behind(second)]);
    await shards.settle();
    await shards.run(0);
    await shards.settle();
    expect((await shards.run(1)).id).toBe(last);
  });

  it('are taken in once: a late repetition of an older one changes nothing', async () => {
    const parent = await shards.add(0);
    const child = await shards.add(1, [behind(parent)]);
    await shards.settle();
    const key = { endpointId: 'e0', id: parent };
    const children = [{ endpointId: 'e1', id: child }];
    const ended = { type: 'ended', parent: key, status: 'COMPLETED', children } as const;
    const service = shards.queue(1).shardService;
    const seen = await service.receive({ from: 0, messages: [] });
    await service.receive({ from: 0, messages: [{ number: seen, message: ended }] });
    const job = await shards.job(1, child);
    expect(job && isWaiting(job)).toBe(true);
  });

  it('wait for a shard that is away, and its user gets no further edges at the bound', async () => {
    const parent = await shards.add(0);
    shards.chooseFate = (verb) => (verb === 'receive' ? 'lost_call' : 'answered');
    await shards.add(1, [behind(parent)]);
    await shards.store(1).write((tx) => {
      const body = '{"type":"reader_left","parent":{},"child":{}}';
      const row = { kind: 'handover', userId: 'owner', parent: '0', body };
      for (let n = 2; n <= 10_000; n++) tx.putResource({ ...row, id: String(n), position: -n });
    });
    await shards.restart(1);
    await expect(shards.add(1, [behind(parent)])).rejects.toMatchObject({ code: 'queue_full' });
    expect(await shards.statusOf(1, await shards.add(1))).toBe('IN_QUEUE');
  });

  it('about an earlier wait do not end a later one', async () => {
    const [parent, other] = [await shards.add(0), await shards.add(1)];
    const child = await shards.add(1, [behind(parent, { onFailure: 'run' }), { id: other }]);
    await shards.settle();
    shards.chooseFate = (verb) => (verb === 'receive' ? 'lost_call' : 'answered');
    await shards.run(0, fatally);
    await shards.run(1, fatally);
    expect(await shards.statusOf(1, child)).toBe('FAILED');
    await shards.queue(0).jobs.retry({ endpointId: 'e0', id: parent });
    await shards.queue(1).jobs.retry({ endpointId: 'e1', id: other });
    await shards.queue(1).jobs.retry({ endpointId: 'e1', id: child });
    shards.chooseFate = () => 'answered';
    await shards.settle();
    expect((await shards.run(1)).id).toBe(other);
    expect(await isIdle(1)).toBe(true);
    await shards.run(0);
    expect((await shards.run(1)).id).toBe(child);
  });
});

describe('a retry', () => {
  it('is refused until the parent in the other shard runs again, and waits for that', async () => {
    const parent = await shards.add(0);
    const child = await shards.add(1, [behind(parent)]);
    await shards.settle();
    await shards.run(0, fatally);
    await shards.waitForEnd(1, child);
    const retry = () => shards.queue(1).jobs.retry({ endpointId: 'e1', id: child });
    await expect(retry()).rejects.toMatchObject({ code: 'conflict' });
    await shards.queue(0).jobs.retry({ endpointId: 'e0', id: parent });
    await retry();
    await shards.settle();
    expect(await isIdle(1)).toBe(true);
    await shards.run(0);
    expect((await shards.run(1)).id).toBe(child);
  });

  it('of many jobs waits for their parents', async () => {
    const parent = await shards.add(0);
    const child = await shards.add(1, [behind(parent)]);
    await shards.settle();
    await shards.run(0, fatally);
    await shards.waitForEnd(1, child);
    await shards.queue(0).jobs.retry({ endpointId: 'e0', id: parent });
    const request = { endpointId: 'e1', change: 'retry', criteria: {}, dryRun: false } as const;
    expect(await shards.queue(1).jobs.changeMany(request)).toMatchObject({ changed: 1 });
    await shards.settle();
    await shards.run(0);
    expect((await shards.run(1)).id).toBe(child);
  });
});

describe('many edges', () => {
  it('end in several commits if a failure ends a chain of jobs', async () => {
    let last = await shards.add(0);
    for (let n = 0; n < 500; n++) last = await shards.add(0, [{ id: last }]);
    await shards.run(0, fatally);
    expect(await shards.statusOf(0, last)).toBe('IN_QUEUE');
    await shards.settle();
    expect(await shards.statusOf(0, last)).toBe('FAILED');
  });

  it('of a join are taken in at once by its job', async () => {
    const parents = await Promise.all(Array.from({ length: 300 }, () => shards.add(0)));
    const child = await shards.add(
      1,
      parents.map((id) => behind(id)),
    );
    await shards.settle();
    for (const lease of await shards.worker(0).take({ max: 300 })) {
      await shards.worker(0).finish(lease, completed, { body: '1' });
    }
    expect((await shards.run(1)).id).toBe(child);
  });
});
