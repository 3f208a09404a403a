// Keyed wake-ups: none is lost, none wakes more than it should.
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import { type Waiter, Waiters } from '../../../src/base/waiters.ts';

function open(): { clock: ManualClock; waiters: Waiters } {
  const clock = new ManualClock(0);
  return { clock, waiters: new Waiters(clock) };
}

/** Waits, and notes how it ended. */
function park(waiter: Waiter, ms = 1_000, signal?: AbortSignal): { result: boolean | undefined } {
  const parked: { result: boolean | undefined } = { result: undefined };
  void waiter.wait(ms, signal).then((woken) => {
    parked.result = woken;
  });
  return parked;
}

describe('Waiters', () => {
  it('wakes only waiters of the key', async () => {
    const { clock, waiters } = open();
    const a = park(waiters.open('a'));
    const b = park(waiters.open('b'));
    waiters.wake('a');
    await clock.advance(0);
    expect([a.result, b.result]).toEqual([true, undefined]);
  });

  it('keeps a wake-up between the check and the wait', async () => {
    const { waiters } = open();
    const waiter = waiters.open('a');
    waiters.wake('a');
    expect(await waiter.wait(1_000)).toBe(true);
  });

  it('does not wake for events before the check', async () => {
    const { clock, waiters } = open();
    waiters.wake('a');
    const parked = park(waiters.open('a'));
    await clock.advance(999);
    expect(parked.result).toBeUndefined();
    await clock.advance(1);
    expect(parked.result).toBe(false);
  });

  it('uses each wake-up once', async () => {
    const { clock, waiters } = open();
    const waiter = waiters.open('a');
    waiters.wake('a');
    await waiter.wait(1_000);
    const again = park(waiter, 10);
    await clock.advance(10);
    expect(again.result).toBe(false);
  });

  it('wakes the requested number, the longest waiting first', async () => {
    const { clock, waiters } = open();
    const parked = [1, 2, 3].map(() => park(waiters.open('a')));
    waiters.wake('a', 2);
    await clock.advance(0);
    expect(parked.map(({ result }) => result)).toEqual([true, true, undefined]);
    waiters.wake('a', 2);
    await clock.advance(0);
    expect(parked.map(({ result }) => result)).toEqual([true, true, true]);
  });

  it('makes checking waiters check again without counting them', async () => {
    const { clock, waiters } = open();
    const looking = waiters.open('a');
    const parked = park(waiters.open('a'));
    waiters.wake('a', 1);
    await clock.advance(0);
    expect(parked.result).toBe(true);
    expect(await looking.wait(1_000)).toBe(true);
  });

  it('does not count waiters that were woken, timed out or aborted before', async () => {
    const { clock, waiters } = open();
    const abort = new AbortController();
    const ended = [
      park(waiters.open('a'), 5),
      park(waiters.open('a'), 1_000, abort.signal),
      park(waiters.open('a')),
    ];
    await clock.advance(5);
    abort.abort();
    waiters.wake('a', 1);
    await clock.advance(0);
    expect(ended.map(({ result }) => result)).toEqual([false, false, true]);
  });

  it('does not wait if the time is over or the signal has aborted', async () => {
    const { waiters } = open();
    const waiter = waiters.open('a');
    expect(await waiter.wait(0)).toBe(false);
    expect(await waiter.wait(1_000, AbortSignal.abort())).toBe(false);
  });

  it('does not wake closed waiters', async () => {
    const { clock, waiters } = open();
    const closed = waiters.open('a');
    closed.close();
    const parked = park(waiters.open('a'));
    waiters.wake('a', 1);
    await clock.advance(0);
    expect(parked.result).toBe(true);
  });

  it('wakes all waiters on request', async () => {
    const { clock, waiters } = open();
    const parked = ['a', 'a', 'b'].map((key) => park(waiters.open(key)));
    waiters.wakeAll();
    await clock.advance(0);
    expect(parked.map(({ result }) => result)).toEqual([true, true, true]);
  });
});
