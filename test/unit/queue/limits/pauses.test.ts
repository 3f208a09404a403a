// Pauses of an endpoint and of its groups in a real queue: what workers get, why jobs wait, restarts, ends, and bounds.
import { afterEach, describe, expect, it, vi } from 'vitest';
import { NO_GROUP } from '../../../../src/store/store.ts';
import { LIMITS } from '../../../../src/wire/job/job.ts';
import { completed, ENDPOINT, Hand, Platform } from '../../../support/queue-platform.ts';

let platform: Platform;
afterEach(() => platform.close());

async function open(): Promise<Hand> {
  platform = new Platform();
  await platform.start();
  return openHand();
}

async function openHand(id = 'w1'): Promise<Hand> {
  const hand = new Hand(() => platform.queue.link(ENDPOINT), { id, slots: 100 });
  await hand.hello();
  return hand;
}

const pause = (group: string | null = null, until: number | null = null) =>
  platform.queue.pauses.pause({ endpointId: ENDPOINT, group, until, reason: null });
const resume = (group: string | null = null) =>
  platform.queue.pauses.resume({ endpointId: ENDPOINT, group });
const submit = (group?: string) => platform.submit(group === undefined ? {} : { group });
const load = () => platform.queue.workerLoads.load(ENDPOINT);
const takeIds = async (hand: Hand, max = 10) =>
  (await hand.take({ max })).map(({ jobId }) => jobId);
const readWait = async (id: string) => (await platform.record(id)).waitReason;

describe('a paused endpoint', () => {
  it('accepts jobs and leases none until it is resumed, and its running jobs end', async () => {
    const hand = await open();
    await submit();
    const lease = await hand.takeOne();
    await pause();
    const id = await submit();
    expect(await takeIds(hand)).toEqual([]);
    expect(await readWait(id)).toMatchObject({ code: 'paused' });
    await hand.finish(lease, completed);
    const taking = await platform.park('take', () => hand.take({ waitMs: 5_000 }));
    expect(taking.hasEnded).toBe(false);
    await resume();
    expect(await taking.answer).toMatchObject([{ jobId: id }]);
  });

  it('repeats a lease whose answer was lost', async () => {
    const hand = await open();
    const id = await submit();
    await hand.take({ takeId: 'lost', held: [] });
    await pause();
    expect(await hand.take({ takeId: 'lost', held: [] })).toMatchObject([{ jobId: id }]);
  });

  it('stays paused over a restart, and shows it', async () => {
    await open();
    await submit();
    await pause();
    await platform.restart();
    expect(await takeIds(await openHand('w2'))).toEqual([]);
    expect(await platform.health()).toMatchObject({ paused: { group: null, until: null } });
    expect(await platform.queue.activity.now(ENDPOINT)).toMatchObject({ paused: true });
  });

  it('goes on at the time at which its pause ends, also if that was before a restart', async () => {
    const hand = await open();
    const id = await submit();
    await pause(null, platform.clock.now() + 10_000);
    const taking = await platform.park('take', () => hand.take({ waitMs: 20_000 }));
    await platform.clock.advance(9_999);
    expect(taking.hasEnded).toBe(false);
    await platform.clock.advance(1);
    expect(await taking.answer).toMatchObject([{ jobId: id }]);
    await submit();
    await pause(null, platform.clock.now() + 10_000);
    await platform.restart(60_000);
    expect(await takeIds(await openHand('w2'))).toHaveLength(1);
    expect(await platform.queue.listPauses(ENDPOINT)).toEqual([]);
  });

  it('has no work for the scaler, and its oldest job still waits', async () => {
    await open();
    await submit();
    await pause();
    expect(await load()).toMatchObject({ waiting: 0, oldestQueuedAt: null });
    expect(await platform.queue.workerLoads.oldestQueuedAt(ENDPOINT)).toBe(platform.clock.now());
    await resume();
    expect(await load()).toMatchObject({ waiting: 1 });
  });

  it('is not found if it does not exist', async () => {
    await open();
    const unknown = { endpointId: 'x', group: null };
    const { pauses } = platform.queue;
    const request = { ...unknown, until: null, reason: null };
    await expect(pauses.pause(request)).rejects.toMatchObject({ code: 'not_found' });
    await expect(pauses.resume(unknown)).rejects.toMatchObject({ code: 'not_found' });
    expect(pauses.list('x')).toEqual([]);
  });
});

describe('a paused group', () => {
  it('waits while the other groups go on, however many of its jobs come first', async () => {
    const hand = await open();
    for (let i = 0; i < 200; i++) await submit('a');
    const other = await submit('b');
    const none = await submit();
    await pause('a');
    expect(new Set(await takeIds(hand))).toEqual(new Set([other, none]));
    const waiting = await submit('a');
    expect(await takeIds(hand)).toEqual([]);
    expect(await readWait(waiting)).toMatchObject({ code: 'group_paused' });
    expect(await load()).toMatchObject({ waiting: 0 });
    const taking = await platform.park('take', () => hand.take({ max: 300, waitMs: 5_000 }));
    await resume('a');
    expect((await taking.answer).length + (await takeIds(hand, 300)).length).toBe(201);
  });

  it('can be that of the jobs without a group', async () => {
    const hand = await open();
    for (let i = 0; i < 100; i++) await submit();
    const other = await submit('a');
    await pause(NO_GROUP);
    expect(await takeIds(hand)).toEqual([other]);
    await resume(NO_GROUP);
    const taken = new Set<string>();
    while (taken.size < 100) {
      const ids = await takeIds(hand, 100);
      expect(ids).not.toEqual([]);
      for (const id of ids) taken.add(id);
    }
  });

  it('stays paused when its endpoint is paused and resumed, and over a restart', async () => {
    await open();
    const id = await submit('a');
    await pause('a');
    await pause();
    await resume();
    await platform.restart();
    const hand = await openHand('w2');
    expect(await takeIds(hand)).toEqual([]);
    expect(await platform.health()).toMatchObject({ pausedGroups: 1 });
    await resume('a');
    expect(await takeIds(hand)).toEqual([id]);
  });

  it('goes on after its endpoint, if it was resumed first', async () => {
    const hand = await open();
    for (let i = 0; i < 200; i++) await submit('a');
    const other = await submit('b');
    await pause('a');
    await pause('c');
    expect(await takeIds(hand)).toEqual([other]);
    await pause();
    await resume('a');
    expect(await takeIds(hand)).toEqual([]);
    await resume();
    expect(await takeIds(hand)).toHaveLength(10);
  });

  it('goes on if its pause could not be stored', async () => {
    const hand = await open();
    for (let i = 0; i < 200; i++) await submit('a');
    const other = await submit('b');
    await pause('c');
    const full = Promise.withResolvers<never>();
    const refused = vi.spyOn(platform.store, 'write').mockReturnValueOnce(full.promise);
    const pausing = pause('a');
    await vi.waitFor(() => expect(refused).toHaveBeenCalled());
    expect(await takeIds(hand)).toEqual([other]);
    full.reject(new Error('disk full'));
    await expect(pausing).rejects.toThrow('disk full');
    expect(await takeIds(hand)).toHaveLength(10);
  });

  it('is one of at most 1,000 of an endpoint', async () => {
    await open();
    const groups = Array.from({ length: LIMITS.pausesOfEndpoint }, (_, i) => `g${i}`);
    await Promise.all(groups.map((group) => pause(group)));
    await expect(pause('one more')).rejects.toMatchObject({ code: 'quota_exceeded' });
    await pause('g1', platform.clock.now() + 5);
    await platform.clock.advance(5);
    await pause('one more');
  });
});
