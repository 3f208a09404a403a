import { expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { EarlyAnswers } from '../../../../src/worker/link/early-answers.ts';

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
