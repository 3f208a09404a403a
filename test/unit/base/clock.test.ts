// The clock that a test drives, and sleeping on a clock.
import { describe, expect, it, vi } from 'vitest';
import {
  callAfterRun,
  callAt,
  ManualClock,
  Standstill,
  SteadyTime,
  sleep,
} from '../../../src/base/clock.ts';

describe('ManualClock', () => {
  it('stands still until it is moved', async () => {
    const clock = new ManualClock(1_000);
    expect(clock.now()).toBe(1_000);
    await clock.advance(250);
    expect(clock.now()).toBe(1_250);
  });

  it('runs due timers in the order of their time, then of their creation', async () => {
    const clock = new ManualClock(0);
    const calls: string[] = [];
    clock.after(20, () => calls.push(`c at ${clock.now()}`));
    clock.after(10, () => calls.push(`a at ${clock.now()}`));
    clock.after(10, () => calls.push(`b at ${clock.now()}`));
    clock.after(31, () => calls.push('too late'));
    await clock.advance(30);
    expect(calls).toEqual(['a at 10', 'b at 10', 'c at 20']);
  });

  it('fires timers that other timers have set', async () => {
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

  it('does not run cancelled timers', async () => {
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

describe('a call at a time', () => {
  /** Its timers fire before their time. */
  class HastyClock extends ManualClock {
    override after(ms: number, act: () => void): () => void {
      return super.after(ms > 1 ? ms / 2 : ms, act);
    }
  }

  it('is not made before that time, however early timers fire', async () => {
    const clock = new HastyClock(0);
    const calls: number[] = [];
    callAt(clock, 100, () => calls.push(clock.now()));
    await clock.advance(99);
    expect(calls).toEqual([]);
    await clock.advance(2);
    expect(calls).toHaveLength(1);
    expect(calls[0]).toBeGreaterThanOrEqual(100);
  });

  it('sets no timer for longer than Node’s timers allow', async () => {
    const longest = 2 ** 31 - 1;
    const clock = new ManualClock(0);
    const waits = vi.spyOn(clock, 'after');
    const cancel = callAt(clock, longest + 100, () => undefined);
    expect(waits.mock.lastCall?.[0]).toBe(longest);
    cancel();
  });

  it('can be cancelled after its first timer has fired', async () => {
    const clock = new HastyClock(0);
    let calls = 0;
    const cancel = callAt(clock, 100, () => calls++);
    await clock.advance(60);
    cancel();
    await clock.advance(1_000);
    expect(calls).toBe(0);
  });
});

describe('steady time', () => {
  function start() {
    const time = { wall: 1_000_000, monotonic: 50 };
    const { now, startFrom } = new SteadyTime({
      wall: () => time.wall,
      monotonic: () => time.monotonic,
    });
    const pass = (ms: number) => {
      time.wall += ms;
      time.monotonic += ms;
      return now();
    };
    return { time, now, pass, startFrom };
  }

  it('is the wall clock as long as nobody sets it', () => {
    const { now, pass } = start();
    expect([now(), pass(0.5), pass(10), pass(60_000)]).toEqual([
      1_000_000, 1_000_000, 1_000_010, 1_060_010,
    ]);
  });

  it('continues when the wall clock is set back, until that has caught up', () => {
    const { now, pass, time } = start();
    time.wall -= 60_000;
    expect(now()).toBe(1_000_000);
    expect(pass(10_000)).toBe(1_009_500);
    expect(pass(20 * 60_000)).toBe(time.wall);
  });

  it('continues from a recorded time until the wall clock has caught up', () => {
    const { now, pass, startFrom, time } = start();
    startFrom(1_060_000);
    expect([now(), pass(10_000)]).toEqual([1_060_000, 1_069_500]);
    expect(pass(20 * 60_000)).toBe(time.wall);
    startFrom(time.wall - 60_000);
    expect(now()).toBe(time.wall);
  });

  it('follows a wall clock that is set forward', () => {
    const { now, time } = start();
    time.wall += 60_000;
    expect(now()).toBe(1_060_000);
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

  it('does not start if the signal has already aborted', async () => {
    await sleep(new ManualClock(0), 1_000, AbortSignal.abort());
  });
});

describe('callAfterRun', () => {
  async function measure(stands: readonly [from: number, to: number][], ms = 1_000) {
    const clock = new ManualClock(0);
    const standstill = new Standstill(clock.now);
    const calls: number[] = [];
    for (const [from, to] of stands) {
      clock.after(from, () => standstill.begin());
      clock.after(to, () => standstill.end());
    }
    const cancel = callAfterRun(clock, ms, standstill, () => calls.push(clock.now()));
    await clock.advance(60_000);
    return { calls, cancel, standstill };
  }

  it('leaves out the time in which it stands still', async () => {
    expect((await measure([])).calls).toEqual([1_000]);
    const { calls, standstill } = await measure([
      [100, 5_100],
      [5_200, 6_200],
    ]);
    expect(standstill.ms).toBe(6_000);
    expect(calls).toEqual([7_000]);
  });

  it('is never early, and late by a moment at most', async () => {
    for (const [from, to] of [
      [990, 995],
      [999, 30_000],
      [1_000, 1_500],
    ] as const) {
      const { calls } = await measure([[from, to]]);
      const due = from >= 1_000 ? 1_000 : 1_000 + to - from;
      expect(calls[0]).toBeGreaterThanOrEqual(due);
      expect(calls[0]).toBeLessThanOrEqual(due + 200);
    }
  });

  it('does nothing after it was cancelled, also while it stands still', async () => {
    const clock = new ManualClock(0);
    const standstill = new Standstill(clock.now);
    const calls: number[] = [];
    standstill.begin();
    const cancel = callAfterRun(clock, 10, standstill, () => calls.push(clock.now()));
    await clock.advance(1_000);
    cancel();
    standstill.end();
    await clock.advance(60_000);
    expect(calls).toEqual([]);
  });
});
