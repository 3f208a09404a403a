import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import { LinkError } from '../../../src/wire/link/worker-link.ts';
import { callWithin, EarlyAnswers, RetryPace } from '../../../src/worker/session.ts';

it('aborts a call that takes longer than its limit, and rejects as unavailable', async () => {
  const clock = new ManualClock();
  let given: AbortSignal | undefined;
  const answer = callWithin({ clock, limitMs: 1_000 }, (signal) => {
    given = signal;
    return new Promise(() => {});
  });
  const refused = expect(answer).rejects.toMatchObject({ code: 'unavailable' });
  await clock.advance(999);
  expect(given?.aborted).toBe(false);
  await clock.advance(1);
  expect(given?.aborted).toBe(true);
  await refused;
});

it('aborts a call when its caller aborts, and keeps a late answer', async () => {
  const clock = new ManualClock();
  const caller = new AbortController();
  const answer = callWithin({ clock, limitMs: 1_000, signal: caller.signal }, (signal) => {
    const { promise, resolve } = Promise.withResolvers<string>();
    signal.addEventListener('abort', () => resolve('kept'));
    return promise;
  });
  caller.abort();
  expect(await answer).toBe('kept');
});

const told = (retryAfterMs: number) => new LinkError('unavailable', '503', { retryAfterMs });
const pace = (random: number) =>
  new RetryPace({ baseMs: 100, maxMs: 1_000, jitter: 0.2, random: () => random });

describe('the pace of a repeated call', () => {
  it('doubles up to its limit and restarts after an answer', () => {
    const even = pace(0.5);
    const waits = [1, 2, 3, 4, 5, 6].map(() => even.next());
    expect(waits).toEqual([100, 200, 400, 800, 1_000, 1_000]);
    even.reset();
    expect(even.next()).toBe(100);
  });

  it('spreads its waits by the jitter, up and down', () => {
    expect([pace(0).next(), pace(0.999).next()]).toEqual([80, 120]);
  });

  it('is at least the wait that the platform asks for', () => {
    expect([pace(0).next(told(30_000)), pace(0.999).next(told(30_000))]).toEqual([30_000, 35_994]);
  });

  it('keeps counting failures while the platform sets the wait', () => {
    const even = pace(0.5);
    even.next(told(5_000));
    even.next(told(5_000));
    expect(even.next()).toBe(400);
  });
});

const never = new AbortController().signal;

function openPoll() {
  const clock = new ManualClock();
  const answers = new EarlyAnswers(clock);
  /** ms until the next poll after an answer that came after `tookMs` of 20,000. */
  return async ({ tookMs = 0, isNews = false } = {}) => {
    const askedAt = clock.now();
    await clock.advance(tookMs);
    let isOver = false;
    const answeredAt = clock.now();
    void answers.slowDown({ askedAt, waitMs: 20_000, isNews }, never).then(() => {
      isOver = true;
    });
    await clock.advance(0);
    while (!isOver) await clock.advance(10);
    return clock.now() - answeredAt;
  };
}

describe('the pause between polls', () => {
  it('pauses after the fourth early answer in a row, and longer after each further one', async () => {
    const poll = openPoll();
    const pauses: number[] = [];
    for (let count = 0; count < 5; count++) pauses.push(await poll());
    expect(pauses.slice(0, 3)).toEqual([0, 0, 0]);
    expect(pauses[3]).toBeGreaterThanOrEqual(200);
    expect(pauses[4]).toBeGreaterThan(pauses[3] ?? 0);
  });

  it.each([{ isNews: true }, { tookMs: 10_000 }])('restarts the count after %o', async (answer) => {
    const poll = openPoll();
    for (let count = 0; count < 4; count++) await poll();
    expect(await poll(answer)).toBe(0);
    expect(await poll()).toBe(0);
  });
});
