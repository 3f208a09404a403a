// Waits before retries: how they grow, and the bounds of their jitter.
import { describe, expect, it } from 'vitest';
import { backoffMs, readRetryAfterMs } from '../../../src/base/backoff.ts';
import { fc } from '../../support/properties.ts';

describe('backoffMs', () => {
  it('doubles from the base on and stops at the longest', () => {
    const options = { baseMs: 1_000, maxMs: 60_000, jitter: 0.2, random: () => 0.5 };
    const waits = [1, 2, 3, 4, 5, 6, 7, 8].map((retry) => backoffMs(retry, options));
    expect(waits).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
  });

  it('moves a wait by at most its jitter, and never beyond the longest', () => {
    const randoms = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 5_000 }), randoms, (retry, drawn) => {
        const wait = backoffMs(retry, {
          baseMs: 1_000,
          maxMs: 60_000,
          jitter: 0.2,
          random: () => drawn,
        });
        const plain = Math.min(60_000, 1_000 * 2 ** (retry - 1));
        expect(Number.isInteger(wait)).toBe(true);
        expect(wait).toBeGreaterThanOrEqual(plain * 0.8);
        expect(wait).toBeLessThanOrEqual(Math.min(60_000, plain * 1.2));
      }),
    );
  });

  it('reaches both ends of the jitter', () => {
    const options = { baseMs: 1_000, maxMs: 60_000, jitter: 0.2 };
    expect(backoffMs(1, { ...options, random: () => 0 })).toBe(800);
    expect(backoffMs(1, { ...options, random: () => 0.999_999 })).toBe(1_200);
  });
});

describe('readRetryAfterMs', () => {
  const now = Date.parse('2026-01-01T00:00:00Z');

  it.each([
    ['2', 2_000],
    [' 0 ', 0],
    ['Thu, 01 Jan 2026 00:00:05 GMT', 5_000],
    ['Wed, 31 Dec 2025 00:00:00 GMT', 0],
    ['soon', undefined],
    ['', undefined],
    [undefined, undefined],
  ])('reads %j as %j', (header, expected) => {
    expect(readRetryAfterMs(header, now)).toBe(expected);
  });
});
