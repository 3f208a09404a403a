import { expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { callWithin } from '../../../../src/worker/link/link-call.ts';

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
