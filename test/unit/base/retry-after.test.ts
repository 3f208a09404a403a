import { describe, expect, it } from 'vitest';
import { readRetryAfterMs } from '../../../src/base/retry-after.ts';

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
