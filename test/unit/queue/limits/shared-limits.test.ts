// Shared limits in real queues: of one shard, and of several that borrow from each other.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { completed, refTo } from '../../../support/queue-platform.ts';
import { LimitedShards } from '../../../support/sharded-limits.ts';

let shards: LimitedShards;
beforeEach(() => {
  shards = new LimitedShards();
});
afterEach(() => shards.close());

const WAIT = { waitMs: 20_000 };

describe('endpoints of one shard', () => {
  it('start no more jobs together than the window lets them', async () => {
    shards.addLimit({ id: 'l', rateLimit: { max: 3, perMs: 10_000 } });
    await shards.addEndpoint('a', 0, { limits: ['l'] });
    await shards.addEndpoint('b', 0, { limits: ['l'] });
    await shards.submit('a', 5);
    await shards.submit('b', 5);
    const [a, b] = [await shards.hand('a'), await shards.hand('b')];
    expect(await a.take({ max: 2 })).toHaveLength(2);
    expect(await b.take({ max: 2 })).toHaveLength(1);
    const taking = a.take({ max: 5, ...WAIT });
    let taken: unknown[] | undefined;
    void taking.then((leases) => {
      taken = leases;
    });
    await shards.clock.advance(9_999);
    expect(taken).toBeUndefined();
    await shards.clock.advance(1);
    expect(taken).toHaveLength(2);
  });

  it('run no more jobs at once than the limit, and the next one starts when one ends', async () => {
    shards.addLimit({ id: 'l', concurrency: 2 });
    await shards.addEndpoint('a', 0, { limits: ['l'] });
    await shards.addEndpoint('b', 0, { limits: ['l'] });
    await shards.submit('a', 5);
    await shards.submit('b', 5);
    const [a, b] = [await shards.hand('a'), await shards.hand('b')];
    const [first] = await a.take({ max: 2 });
    const taking = b.take({ max: 5, ...WAIT });
    await shards.clock.advance(1);
    if (first) await a.finish(first, completed);
    expect(await taking).toHaveLength(1);
    expect(await a.take({ max: 5 })).toHaveLength(0);
  });

  it('take turns: each gets every second start', async () => {
    shards.addLimit({ id: 'l', concurrency: 1 });
    const order: string[] = [];
    const ids = ['a', 'b'];
    for (const id of ids) await shards.addEndpoint(id, 0, { limits: ['l'] });
    for (const id of ids) await shards.submit(id, 10);
    const work = ids.map(async (id) => {
      const hand = await shards.hand(id);
      for (let i = 0; i < 5; i++) {
        const lease = await hand.takeOne(WAIT);
        order.push(id);
        await hand.finish(lease, completed);
      }
    });
    const working = Promise.all(work);
    await shards.clock.advance(1_000);
    await working;
    expect(order.slice(0, 8).join('')).toMatch(/^(ab){4}|(ba){4}$/);
  });
});

describe('endpoints of several shards', () => {
  it('start no more jobs together than the window lets them', async () => {
    shards.addLimit({ id: 'l', rateLimit: { max: 10, perMs: 10_000 } });
    await shards.addEndpoint('a', 0, { limits: ['l'] });
    await shards.addEndpoint('b', 1, { limits: ['l'] });
    await shards.submit('a', 20);
    await shards.submit('b', 20);
    const [a, b] = [await shards.hand('a'), await shards.hand('b')];
    expect(await a.take({ max: 4 })).toHaveLength(4);
    const taking = b.take({ max: 20, ...WAIT });
    await shards.clock.advance(100);
    expect(await taking).toHaveLength(6);
    expect(await a.take({ max: 4 })).toHaveLength(0);
  });

  it('run no more jobs at once than the limit, and places move to the shard that waits', async () => {
    shards.addLimit({ id: 'l', concurrency: 2 });
    await shards.addEndpoint('a', 0, { limits: ['l'] });
    await shards.addEndpoint('b', 1, { limits: ['l'] });
    await shards.submit('a', 5);
    await shards.submit('b', 5);
    const [a, b] = [await shards.hand('a'), await shards.hand('b')];
    const taking = b.take({ max: 5, ...WAIT });
    await shards.clock.advance(100);
    const [first, second] = await taking;
    expect(second).toBeDefined();
    const next = a.take({ max: 5, ...WAIT });
    await shards.clock.advance(100);
    if (first) await b.finish(first, completed);
    await shards.clock.advance(1_500);
    expect(await next).toHaveLength(1);
  });
});

describe('a pause that a handler asks for', () => {
  it('holds back the endpoints of all shards, and says so', async () => {
    shards.addLimit({ id: 'l', name: 'upstream', concurrency: 9 });
    await shards.addEndpoint('a', 0, { limits: ['l'] });
    await shards.addEndpoint('b', 1, { limits: ['l'] });
    const [, waits = ''] = await shards.submit('a', 5);
    await shards.submit('b', 5);
    const [a, b] = [await shards.hand('a'), await shards.hand('b')];
    const taking = b.take(WAIT);
    await shards.clock.advance(100);
    const [lease] = await taking;
    if (!lease) throw new Error('no job has started');
    const pause = { kind: 'pause', seq: 1, forMs: 30_000, limit: 'upstream' } as const;
    await b.reportOne({ ...refTo(lease), ...pause, body: new Uint8Array() });
    const until = shards.clock.now() + 30_000;
    await shards.clock.advance(1_000);
    expect([await a.take(), await b.take()]).toEqual([[], []]);
    const { waitReason } = await shards.record('a', waits);
    expect(waitReason).toMatchObject({ code: 'shared_limit' });
    expect(Math.abs((waitReason?.until ?? 0) - until)).toBeLessThan(1_100);
    const next = a.take({ waitMs: 20_000 });
    await shards.clock.advance(20_000);
    expect(await next).toEqual([]);
    const last = a.take({ waitMs: 20_000 });
    await shards.clock.advance(10_000);
    expect(await last).toHaveLength(1);
  });
});

describe('a limit for each group', () => {
  it('counts the jobs of a group in all endpoints, and lets the other groups go on', async () => {
    shards.addLimit({ id: 'l', key: 'group', concurrency: 1 });
    await shards.addEndpoint('a', 0, { limits: ['l'] });
    await shards.addEndpoint('b', 0, { limits: ['l'] });
    for (const id of ['a', 'b']) {
      await shards.submit(id, 2, { group: 'x' });
      await shards.submit(id, 1, { group: 'y' });
    }
    const [a, b] = [await shards.hand('a'), await shards.hand('b')];
    const first = await a.take({ max: 1 });
    expect(await b.take({ max: 9 })).toHaveLength(1);
    const taking = b.take({ max: 9, ...WAIT });
    await shards.clock.advance(1);
    if (first[0]) await a.finish(first[0], completed);
    await shards.clock.advance(1);
    expect(await taking).toHaveLength(1);
  });
});
