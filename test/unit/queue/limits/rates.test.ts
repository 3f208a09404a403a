// Rate limits of an endpoint and of its groups in a real queue: starts in time, wake-ups without polling, restarts, the scaler.
import { afterEach, describe, expect, it } from 'vitest';
import { MAX_GROUPS } from '../../../../src/queue/limits/rates.ts';
import {
  type EndpointSettings,
  endpointSettings,
} from '../../../../src/wire/resources/endpoint.ts';
import { ENDPOINT, Hand, NEVER, Platform } from '../../../support/queue-platform.ts';

let platform: Platform;
afterEach(() => platform.close());

async function open(endpoint: Partial<EndpointSettings>): Promise<Hand> {
  platform = new Platform({ endpoint });
  await platform.start();
  return openHand();
}

async function openHand(id = 'w1'): Promise<Hand> {
  const hand = new Hand(() => platform.queue.link(ENDPOINT), { id, slots: 1_000 });
  await hand.hello();
  return hand;
}

const submit = (group?: string) => platform.submit(group === undefined ? {} : { group });
async function submitMany(count: number, group?: string): Promise<void> {
  for (let i = 0; i < count; i++) await submit(group);
}
const load = () => platform.queue.workerLoads.load(ENDPOINT);
const countRows = async () =>
  (await platform.store.read((tx) => tx.resources({ kind: 'rate', limit: 100 }))).length;

describe('the rate limit of an endpoint', () => {
  const rateLimit = { max: 3, perMs: 10_000 };

  it('lets so many jobs start in any time of its length, and wakes a take when the next one may', async () => {
    const hand = await open({ rateLimit });
    await submitMany(10);
    expect(await hand.take({ max: 10 })).toHaveLength(3);
    const taking = await platform.park('take', () => hand.take({ max: 10, waitMs: 20_000 }));
    await platform.clock.advance(9_999);
    expect(taking.hasEnded).toBe(false);
    await platform.clock.advance(1);
    expect(await taking.answer).toHaveLength(3);
  });

  it('says until when a job waits', async () => {
    const hand = await open({ rateLimit });
    await submitMany(4);
    const [first] = await hand.take({ max: 10 });
    expect(first).toBeDefined();
    const id = await submit();
    const until = platform.clock.now() + 10_000;
    expect((await platform.record(id)).waitReason).toEqual({
      code: 'rate_limited',
      message: `3 jobs of the endpoint (rateLimit) started in the last 10 s, the most that may; the next one may at ${new Date(until).toISOString()}.`,
      until,
    });
  });

  it('holds over restarts, also for attempts that have ended', async () => {
    const hand = await open({ rateLimit });
    await submitMany(9);
    await hand.take({ max: 2 });
    await platform.restart(4_000);
    const other = await openHand('w2');
    expect(await other.take({ max: 10 })).toHaveLength(1);
    await platform.restart(5_999);
    const last = await openHand('w3');
    const taking = await platform.park('take', () => last.take({ max: 10, waitMs: 1_000 }));
    expect(taking.hasEnded).toBe(false);
    await platform.clock.advance(1);
    expect(await taking.answer).toHaveLength(2);
  });

  it('counts leases that are repeated once', async () => {
    const hand = await open({ rateLimit });
    await submitMany(4);
    expect(await hand.take({ max: 2, takeId: 'a', held: [] })).toHaveLength(2);
    // The answer was lost: the worker gets the same leases, which count once.
    expect(await hand.take({ max: 2, takeId: 'a', held: [] })).toHaveLength(2);
    expect(await hand.take({ max: 2 })).toHaveLength(1);
  });

  it('runs no query while takes wait for it', async () => {
    const hand = await open({ rateLimit });
    await submitMany(10);
    await hand.take({ max: 10 });
    const hands = await Promise.all([1, 2, 3, 4].map((id) => openHand(`idle-${id}`)));
    let polls = 0;
    const write = platform.store.write.bind(platform.store);
    platform.store.write = (operation, options) => {
      polls++;
      return write(operation, options);
    };
    const takes = hands.map((each) => each.take({ waitMs: 9_000, signal: NEVER }));
    await platform.clock.advance(0);
    const before = polls;
    await platform.clock.advance(8_900);
    expect(polls - before).toBe(0);
    await platform.clock.advance(200);
    await Promise.all(takes);
  });

  it('has no work for the scaler while no job may start', async () => {
    const hand = await open({ rateLimit });
    await submitMany(5);
    expect(await load()).toMatchObject({ waiting: 3 });
    await hand.take({ max: 10 });
    expect(await load()).toMatchObject({ waiting: 0, oldestQueuedAt: null });
    await platform.clock.advance(10_000);
    expect(await load()).toMatchObject({ waiting: 2 });
  });

  it('removes its row when it was idle for a minute', async () => {
    const hand = await open({ rateLimit });
    await submit();
    await hand.take();
    expect(await countRows()).toBe(1);
    await platform.clock.advance(70_001);
    expect(await countRows()).toBe(0);
  });
});

describe('the rate limit of groups', () => {
  const groupRateLimit = { max: 2, perMs: 10_000 };
  const groupsOf = (leases: readonly { jobId: string }[], jobs: Map<string, string>) =>
    leases.map(({ jobId }) => jobs.get(jobId));

  it('holds back the jobs of a group, however many come first, and no others', async () => {
    const hand = await open({ groupRateLimit });
    const jobs = new Map<string, string>();
    for (let i = 0; i < 100; i++) jobs.set(await submit('a'), 'a');
    for (let i = 0; i < 3; i++) jobs.set(await submit('b'), 'b');
    for (let i = 0; i < 3; i++) jobs.set(await submit(), 'none');
    const found: (string | undefined)[] = [];
    for (let i = 0; i < 10; i++) found.push(...groupsOf(await hand.take({ max: 3 }), jobs));
    expect(found.toSorted()).toEqual(['a', 'a', 'b', 'b', 'none', 'none', 'none']);
    await platform.clock.advance(3_000);
    const taking = await platform.park('take', () => hand.take({ max: 3, waitMs: 20_000 }));
    await platform.clock.advance(6_999);
    expect(taking.hasEnded).toBe(false);
    await platform.clock.advance(1);
    const more = groupsOf(await taking.answer, jobs);
    for (let i = 0; i < 3; i++) more.push(...groupsOf(await hand.take({ max: 3 }), jobs));
    expect(more.toSorted()).toEqual(['a', 'a', 'b']);
  });

  it('lets a group go on when the endpoint may start jobs again', async () => {
    const rateLimit = { max: 3, perMs: 11_000 };
    const hand = await open({ groupRateLimit, rateLimit });
    await submitMany(100, 'a');
    expect(await hand.take({ max: 10 })).toHaveLength(2);
    await submit('b');
    expect(await hand.take({ max: 10 })).toHaveLength(1);
    // Group `a` may start jobs after 10 s, the endpoint after 11 s.
    await platform.clock.advance(10_000);
    expect(await hand.take({ max: 10 })).toHaveLength(0);
    await platform.clock.advance(1_000);
    expect(await hand.take({ max: 10 })).toHaveLength(2);
  });

  it('starts no job of one group too many until another one was idle', async () => {
    await open({ groupRateLimit });
    const now = platform.clock.now();
    await platform.store.write((tx) => {
      for (let i = 0; i < MAX_GROUPS; i++) {
        const [row, group] = [{ kind: 'rate', userId: '', position: now }, `g${i}`];
        const body = JSON.stringify({ group, perMs: 10_000, entries: [[now, now, 1]] });
        tx.putResource({ ...row, id: `${ENDPOINT}/${group}`, parent: ENDPOINT, body });
      }
    });
    await platform.restart();
    const hand = await openHand('w2');
    await submitMany(100, 'one more');
    expect(await hand.take({ max: 3 })).toEqual([]);
    await platform.clock.advance(69_000);
    const taking = await platform.park('take', () => hand.take({ max: 3, waitMs: 20_000 }));
    expect(taking.hasEnded).toBe(false);
    await platform.clock.advance(1_001);
    expect(await taking.answer).toHaveLength(2);
  });

  it('follows a limit that is raised', async () => {
    const hand = await open({ groupRateLimit });
    await submitMany(50, 'a');
    expect(await hand.take({ max: 20 })).toHaveLength(2);
    expect(await hand.take({ max: 20 })).toHaveLength(0);
    const settings = endpointSettings.parse({ groupRateLimit: { max: 10, perMs: 10_000 } });
    await platform.store.write((tx) => tx.putEndpoint({ id: ENDPOINT, settings, createdAt: 1 }));
    expect(await hand.take({ max: 20 })).toHaveLength(8);
  });

  it('holds over restarts', async () => {
    const hand = await open({ groupRateLimit });
    await submitMany(9, 'a');
    expect(await hand.take({ max: 10 })).toHaveLength(2);
    await platform.restart(9_998);
    const other = await openHand('w2');
    expect(await other.take({ max: 10 })).toHaveLength(0);
    await platform.clock.advance(2);
    expect(await other.take({ max: 10 })).toHaveLength(2);
  });
});
