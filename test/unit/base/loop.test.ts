import { expect, it, onTestFinished } from 'vitest';
import { letOthersRun, ManualClock } from '../../../src/base/clock.ts';
import { AT_ONCE, Loop, MAX_SLEEP_MS, NEVER, RETRY_MS } from '../../../src/base/loop.ts';

const START = new ManualClock().now();

/** Passes are noted by their time since START, ms; `plan` says what each of them does. */
function startLoop(plan: (pass: number) => number | Promise<number>) {
  const clock = new ManualClock();
  const closing = new AbortController();
  const passes: number[] = [];
  const errors: unknown[] = [];
  const loop = new Loop({
    clock,
    closing: closing.signal,
    onError: (error) => errors.push(error),
    async pass() {
      passes.push(clock.now() - START);
      return plan(passes.length);
    },
  });
  const ended = loop.run();
  const close = async () => {
    closing.abort();
    await ended;
  };
  onTestFinished(close);
  return { clock, close, closing, ended, errors, loop, passes };
}

it('repeats the pass at the returned time, not before', async () => {
  const { clock, passes } = startLoop((pass) => START + pass * 100);
  await clock.advance(99);
  expect(passes).toEqual([0]);
  await clock.advance(201);
  expect(passes).toEqual([0, 100, 200, 300]);
});

it('checks again after a while although nothing is due, because the clock may have been set', async () => {
  const { clock, passes } = startLoop(() => NEVER);
  await clock.advance(2 * MAX_SLEEP_MS);
  expect(passes).toEqual([0, MAX_SLEEP_MS, 2 * MAX_SLEEP_MS]);
});

it('begins a pass at once when it is woken', async () => {
  const { clock, loop, passes } = startLoop(() => NEVER);
  await clock.advance(10);
  loop.wake();
  await letOthersRun();
  expect(passes).toEqual([0, 10]);
});

it('is woken by an earlier time, but not by a later one', async () => {
  const { clock, loop, passes } = startLoop((pass) => (pass === 1 ? START + 100 : NEVER));
  await letOthersRun();
  loop.wake(START + 200);
  loop.wake(START + 50);
  await clock.advance(1_000);
  expect(passes).toEqual([0, 50]);
});

it('does not lose a wake-up during a pass', async () => {
  const gate = Promise.withResolvers<number>();
  const { clock, loop, passes } = startLoop((pass) => (pass === 1 ? gate.promise : NEVER));
  await letOthersRun();
  loop.wake(clock.now() + 70);
  gate.resolve(NEVER);
  await clock.advance(1_000);
  expect(passes).toEqual([0, 70]);
});

it('repeats the pass at once on request and lets other work run between', async () => {
  const { passes } = startLoop((pass) => (pass < 4 ? AT_ONCE : NEVER));
  let turns = 0;
  while (passes.length < 4) {
    await new Promise((resolve) => setImmediate(resolve));
    turns++;
  }
  expect(passes).toEqual([0, 0, 0, 0]);
  expect(turns).toBeGreaterThan(3);
});

it('does not spin when a pass leaves due items', async () => {
  const { clock, passes } = startLoop(() => 0);
  await clock.advance(3);
  expect(passes).toEqual([0, 1, 2, 3]);
});

it('waits after a failure, even if it is woken meanwhile', async () => {
  const failure = new Error('no');
  const { clock, errors, loop, passes } = startLoop((pass) => {
    if (pass === 1) throw failure;
    return NEVER;
  });
  await clock.advance(10);
  loop.wake();
  await clock.advance(RETRY_MS - 11);
  expect(passes).toEqual([0]);
  await clock.advance(1);
  expect(passes).toEqual([0, RETRY_MS]);
  expect(errors).toEqual([failure]);
});

it.each(['asleep', 'after a failure'])('ends when it is closed %s', async (when) => {
  const { close, passes } = startLoop(() => {
    if (when !== 'asleep') throw new Error('no');
    return NEVER;
  });
  await letOthersRun();
  await close();
  expect(passes).toEqual([0]);
});

it('ends after the running pass and reports no failure of it', async () => {
  const gate = Promise.withResolvers<number>();
  const { closing, ended, errors, passes } = startLoop(() => gate.promise);
  await letOthersRun();
  closing.abort();
  let hasEnded = false;
  void ended.then(() => {
    hasEnded = true;
  });
  await letOthersRun();
  expect(hasEnded).toBe(false);
  gate.reject(new Error('the store is closed'));
  await ended;
  expect({ errors, passes }).toEqual({ errors: [], passes: [0] });
});
