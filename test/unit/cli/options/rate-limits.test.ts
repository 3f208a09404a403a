import { describe, expect, it } from 'vitest';
import { DEFAULT_RATE_LIMITS } from '../../../../src/api/limits/rate-limit.ts';
import { rateLimitOption, readRateLimits } from '../../../../src/cli/options/limit-options.ts';

describe('--rate-limit', () => {
  it('has the platform’s default', () => {
    expect(readRateLimits(rateLimitOption.fallback ?? '')).toEqual(DEFAULT_RATE_LIMITS);
  });

  it.each([
    ['minute=10', { ...DEFAULT_RATE_LIMITS, minute: 10 }],
    ['day=7, minute=10', { ...DEFAULT_RATE_LIMITS, day: 7, minute: 10 }],
    ['minute=10,hour=0,day=0', { minute: 10 }],
    ['minute=0,hour=0,day=0', undefined],
    ['none', undefined],
    ['0', undefined],
  ])('%s means %j', (given, limits) => {
    expect(readRateLimits(given)).toEqual(limits);
  });

  it.each([
    '',
    '10',
    'week=1',
    'minute',
    'minute=',
    'minute=-1',
    'minute=1.5',
    'day=1000000001',
    'minute=1,',
  ])('%j is refused', (given) => {
    expect(() => readRateLimits(given)).toThrow(
      /^--rate-limit: .* is invalid; write none, or NAME=N, NAME one of minute/,
    );
  });
});
