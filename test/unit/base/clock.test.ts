// The clock that a test drives, and sleeping on a clock.
import { describe, expect, it } from 'vitest';
import { ManualClock, sleep } from '../../../src/base/clock.ts';

describe('ManualClock', () => {
  it('stands still until it is moved', async () => {
    const clock = new ManualClock(1_000);
    expect(clock.now()).toBe(1_000);
    await clock.advance(250);
    expect(clock.now()).toBe(1_250);
  });

  it('calls what is due in the order of its time, and of its asking for equal times', async () => {
    const clock = new ManualClock(0);
    const calls: string[] = [];
    clock.after(20, () => calls.push(`c at ${clock.now()}`));
    clock.after(10, () => calls.push(`a at ${clock.now()}`));
    clock.after(10, () => calls.push(`b at ${clock.now()}`));
    clock.after(31, () => calls.push('too late'));
    await clock.advance(30);
    expect(calls).toEqual(['a at 10', 'b at 10', 'c at 20']);
  });

  it('fires timers that were set by what a timer set off', async () => {
    const clock = new ManualClock(0);
    const times: number[] = [];
    const tick = async () => {
      while (times.length < 3) {
        await sleep(clock, 10);
        times.push(clock.now());
      }
    };
    const ticking = tick();
    await clock.advance(30);
    await ticking;
    expect(times).toEqual([10, 20, 30]);
  });

  it('does not call what was taken back', async () => {
    const clock = new ManualClock(0);
    let called = false;
    const cancel = clock.after(10, () => {
      called = true;
    });
    cancel();
    await clock.advance(20);
    expect(called).toBe(false);
  });
});

describe('sleep', () => {
  it('ends at once when the signal aborts, and leaves no timer behind', async () => {
    const clock = new ManualClock(0);
    const abort = new AbortController();
    const sleeping = sleep(clock, 1_000, abort.signal);
    abort.abort();
    await sleeping;
    expect(clock.now()).toBe(0);
  });

  it('does not begin when the signal has aborted before', async () => {
    await sleep(new ManualClock(0), 1_000, AbortSignal.abort());
  });
});
