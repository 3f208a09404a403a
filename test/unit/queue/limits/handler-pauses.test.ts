// Reports of handlers that pause their group: repetition, order, bounds, and pauses that people have made.
import { afterEach, describe, expect, it } from 'vitest';
import type { Lease, Report } from '../../../../src/wire/link/worker-link.ts';
import {
  completed,
  ENDPOINT,
  Hand,
  outcomeOf,
  Platform,
  refTo,
} from '../../../support/queue-platform.ts';

let platform: Platform;
afterEach(() => platform.close());

async function open(group?: string): Promise<{ hand: Hand; lease: Lease }> {
  platform = new Platform();
  await platform.start();
  const hand = new Hand(() => platform.queue.link(ENDPOINT), { slots: 10 });
  await hand.hello();
  await platform.submit(group === undefined ? {} : { group });
  return { hand, lease: await hand.takeOne() };
}

const pauseOf = (lease: Lease, seq: number, forMs: number): Report => ({
  ...refTo(lease),
  kind: 'pause',
  seq,
  forMs,
  body: new Uint8Array(),
});
const pauses = () => platform.queue.pauses.list(ENDPOINT);

describe('a pause that a handler asks for', () => {
  it('is applied in order with the outcome of the same call, once', async () => {
    const { hand, lease } = await open('a');
    const until = platform.clock.now() + 5_000;
    const reports = [pauseOf(lease, 1, 5_000), outcomeOf(lease, 2, completed, '1')];
    const applied = { answer: 'applied' };
    expect(await hand.report(reports)).toEqual([applied, applied]);
    expect(pauses()).toMatchObject([{ group: 'a', until }]);
    await platform.queue.pauses.resume({ endpointId: ENDPOINT, group: 'a' });
    expect(await hand.reportOne(pauseOf(lease, 1, 5_000))).not.toEqual(applied);
    expect(pauses()).toEqual([]);
  });

  it('extends an earlier one, and ends none sooner', async () => {
    const { hand, lease } = await open('a');
    const now = platform.clock.now();
    await hand.reportOne(pauseOf(lease, 1, 5_000));
    await hand.reportOne(pauseOf(lease, 2, 1_000));
    expect(pauses()).toMatchObject([{ until: now + 5_000 }]);
    await hand.reportOne(pauseOf(lease, 3, 9_000));
    expect(pauses()).toMatchObject([{ until: now + 9_000 }]);
  });

  it('leaves a pause alone that someone has made', async () => {
    const { hand, lease } = await open();
    const made = { endpointId: ENDPOINT, group: '', until: null, reason: 'mine' };
    await platform.queue.pauses.pause(made);
    await hand.reportOne(pauseOf(lease, 1, 5_000));
    expect(pauses()).toMatchObject([{ group: '', until: null, reason: 'mine' }]);
  });

  it('leaves a pause alone that someone makes at the same moment', async () => {
    const { hand, lease } = await open('a');
    const target = { endpointId: ENDPOINT, group: 'a', reason: null };
    const { pauses: known } = platform.queue;
    const first = known.pause({ ...target, until: 1 });
    const made = known.pause({ ...target, until: null });
    await Promise.all([first, made, hand.reportOne(pauseOf(lease, 1, 5_000))]);
    expect(pauses()).toMatchObject([{ group: 'a', until: null }]);
  });

  it('of an attempt that has lost its lease has no effect', async () => {
    const { hand, lease } = await open('a');
    await platform.queue.jobs.cancel({ endpointId: ENDPOINT, id: lease.jobId });
    await hand.reportOne(pauseOf({ ...lease, token: 'other' }, 1, 5_000));
    expect(pauses()).toEqual([]);
  });
});
