import { describe, expect, it } from 'vitest';
import { LinkError } from '../../../../src/wire/link/worker-link.ts';
import { RetryPace } from '../../../../src/worker/link/retry-pace.ts';

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
