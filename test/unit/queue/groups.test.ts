// Groups of jobs in a real queue: their order over restarts, delays and retries, and the limit of a group's leases.
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { JobPolicy } from '../../../src/wire/job/job.ts';
import type { Lease } from '../../../src/wire/link/worker-link.ts';
import type { EndpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { completed, ENDPOINT, Hand, outcomeOf, Platform } from '../../support/queue-platform.ts';

let platform: Platform;
afterEach(() => platform.close());

async function open(endpoint: Partial<EndpointSettings> = {}): Promise<void> {
  platform = new Platform({ endpoint: { maxQueued: 1_000_000, ...endpoint } });
  await platform.start();
}

function submit(policy: JobPolicy, count = 1): Promise<{ id: string }[]> {
  const input = Buffer.from(JSON.stringify(policy.group ?? 'none'));
  const submission = {
    ...{ endpointId: ENDPOINT, mode: 'run' as const, input, policy },
    idempotency: undefined,
  };
  const { submissions } = platform.queue;
  return Promise.all(Array.from({ length: count }, () => submissions.submit(submission)));
}

async function openHand(id = 'w1'): Promise<Hand> {
  const hand = new Hand(() => platform.queue.link(ENDPOINT), { id, slots: 100 });
  await hand.hello();
  return hand;
}

/** The groups of the jobs that the worker gets, one by one. */
async function takeGroups(hand: Hand, count: number): Promise<string[]> {
  const groups: string[] = [];
  for (let i = 0; i < count; i++) {
    const [lease] = await hand.take();
    if (lease) groups.push(groupOf(lease));
  }
  return groups;
}

/** The groups of the jobs that the worker runs one after the other, each in no time. */
async function runGroups(hand: Hand, count: number): Promise<string[]> {
  const groups: string[] = [];
  for (let i = 0; i < count; i++) {
    const lease = await hand.takeOne();
    groups.push(groupOf(lease));
    await hand.finish(lease, { ...completed, executionMs: 0 });
  }
  return groups;
}

function groupOf({ input }: Lease): string {
  return JSON.parse(Buffer.from(input).toString());
}

async function setLimit(groupConcurrency?: number): Promise<void> {
  const settings = endpointSettings.parse({
    maxQueued: 1_000_000,
    ...(groupConcurrency !== undefined && { groupConcurrency }),
  });
  await platform.store.write((tx) => tx.putEndpoint({ id: ENDPOINT, settings, createdAt: 1 }));
}

describe('groups', () => {
  it('begin with the next job, with 5,000 of another group queued', async () => {
    await open();
    await submit({ group: 'a' }, 5_000);
    const hand = await openHand();
    expect(await takeGroups(hand, 3)).toEqual(['a', 'a', 'a']);
    await submit({ group: 'b' }, 2);
    expect(await takeGroups(hand, 5)).toEqual(['b', 'b', 'a', 'a', 'a']);
  });

  it('go on after a restart with what runs', async () => {
    await open();
    await submit({ group: 'a' }, 6);
    await submit({}, 6);
    expect(await takeGroups(await openHand(), 5)).toEqual(['none', 'a', 'none', 'a', 'none']);
    await platform.restart();
    await submit({ group: 'b' }, 2);
    expect(await takeGroups(await openHand('w2'), 9)).toEqual([
      ...['b', 'b', 'a', 'none', 'a', 'none', 'a', 'none', 'a'],
    ]);
  });

  it('do not get ahead with jobs that were delayed, nor fall behind', async () => {
    await open();
    await submit({ group: 'a', delay: 10_000 }, 20);
    await submit({ group: 'a' });
    await submit({ group: 'b' }, 30);
    const hand = await openHand();
    expect(await runGroups(hand, 3)).toEqual(['a', 'b', 'b']);
    await platform.clock.advance(11_000);
    expect((await takeGroups(hand, 6)).toSorted()).toEqual(['a', 'a', 'a', 'b', 'b', 'b']);
  });

  it('keep the place of a job that is released', async () => {
    await open();
    await submit({ group: 'a' }, 3);
    await submit({ group: 'b' }, 3);
    const hand = await openHand();
    const first = await hand.takeOne();
    await hand.reportOne(outcomeOf(first, 1, { kind: 'released', reason: 'drain' }));
    const again = await hand.takeOne();
    expect(again).toMatchObject({ jobId: first.jobId, attempt: 2 });
  });

  it('do not exist for delayed jobs without one: those keep the order of submission', async () => {
    await open();
    const [delayed] = await submit({ delay: 10_000 });
    await submit({}, 3);
    const hand = await openHand();
    await platform.clock.advance(11_000);
    expect(await hand.takeOne()).toMatchObject({ jobId: delayed?.id });
  });

  it('show in the record of the job', async () => {
    await open();
    const [job] = await submit({ group: 'customer 7' });
    const [other] = await submit({});
    const read = async (id = '') => {
      const { body } = await platform.queue.jobs.record({ endpointId: ENDPOINT, id });
      return JSON.parse(body.toString());
    };
    expect(await read(job?.id)).toMatchObject({ group: 'customer 7' });
    expect(await read(other?.id)).not.toHaveProperty('group');
  });

  it('are leased up to the limit of the endpoint, and then when a lease of theirs ends', async () => {
    await open({ groupConcurrency: 2 });
    await submit({ group: 'a' }, 40);
    await submit({ group: 'b' });
    await submit({}, 3);
    const hand = await openHand();
    const leases = await hand.take({ max: 50 });
    expect(leases.map(groupOf).toSorted()).toEqual(['a', 'a', 'b', 'none', 'none', 'none']);
    expect(await hand.take({ max: 50 })).toEqual([]);
    const first = leases.find((lease) => groupOf(lease) === 'a');
    const other = await openHand('w2');
    const waiting = await platform.park('take', () => other.take({ max: 9, waitMs: 10_000 }));
    expect(waiting.hasEnded).toBe(false);
    if (first) await hand.reportOne(outcomeOf(first, 1, completed, '1'));
    // No time has passed.
    expect((await waiting.answer).map(groupOf)).toEqual(['a']);
  });

  it('are no work for the scaler beyond their limit', async () => {
    await open({ groupConcurrency: 2 });
    await submit({ group: 'a' }, 5);
    const hand = await openHand();
    const load = () => platform.queue.workerLoads.load(ENDPOINT);
    expect(await load()).toMatchObject({ waiting: 2, running: 0 });
    await hand.take({ max: 50 });
    expect(await load()).toMatchObject({ waiting: 0, running: 2, oldestQueuedAt: null });
  });

  it('have a changed limit at once, also for a take that waits', async () => {
    await open({ groupConcurrency: 1 });
    await submit({ group: 'a' }, 9);
    const hand = await openHand();
    expect(await hand.take({ max: 5 })).toHaveLength(1);
    const waiting = await platform.park('take', () => hand.take({ max: 5, waitMs: 10_000 }));
    await setLimit(3);
    await platform.clock.advance(1_100);
    expect(await waiting.answer).toHaveLength(2);
    await setLimit();
    expect(await hand.take({ max: 5 })).toHaveLength(5);
    await setLimit(8);
    expect(await hand.take({ max: 5 })).toEqual([]);
  });

  it('cost little at their limit, however many takes wait for them', async () => {
    await open({ groupConcurrency: 1 });
    await submit({ group: 'a' }, 3);
    const hands = [];
    for (let i = 0; i < 1_500; i++) hands.push(await openHand(`w${i}`));
    await hands[0]?.takeOne();
    const takes = hands.map((hand) => hand.take({ waitMs: 10_000 }));
    await platform.clock.advance(1_000);
    const write = vi.spyOn(platform.store, 'write');
    for (let second = 0; second < 6; second++) await platform.clock.advance(1_000);
    // 500 a second, not 1,500.
    expect(write.mock.calls.length).toBeGreaterThan(1_000);
    expect(write.mock.calls.length).toBeLessThan(5_000);
    await platform.clock.advance(10_000);
    await Promise.all(takes);
  });

  it('keep no other waiting at their limit, however many of their jobs come first', async () => {
    await open({ groupConcurrency: 1 });
    await submit({ group: 'a', priority: 9 }, 4_000);
    await submit({ group: 'b' });
    await submit({});
    const hand = await openHand();
    expect(groupOf(await hand.takeOne())).toBe('a');
    const next = await platform.park('take', () => hand.take({ waitMs: 10_000 }));
    const others = [...(await next.answer), await hand.takeOne()];
    expect(others.map(groupOf).toSorted()).toEqual(['b', 'none']);
  });
});
