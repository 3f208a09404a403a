import { describe, expect, it } from 'vitest';
import { quotaOption, readQuotas } from '../../../../src/cli/options/limit-options.ts';
import { DEFAULT_QUOTAS } from '../../../../src/control/limits/quotas.ts';

describe('--quota', () => {
  it('has the platform’s default', () => {
    expect(readQuotas(quotaOption.fallback ?? '')).toEqual(DEFAULT_QUOTAS);
  });

  it.each([
    ['pods=0', { ...DEFAULT_QUOTAS, pods: 0 }],
    ['keys=7, workersMax=1000', { ...DEFAULT_QUOTAS, keys: 7, workersMax: 1_000 }],
    ['recordKb=1024', { ...DEFAULT_QUOTAS, recordBytes: 1_048_576 }],
  ])('%s means %j', (given, quotas) => {
    expect(readQuotas(given)).toEqual(quotas);
  });

  it.each([
    ...['', '10', 'nothing=1', 'constructor=1', 'pods', 'pods=', 'pods=-1', 'pods=1.5'],
    ...['pods=1000001', 'recordKb=0', 'recordKb=1025', 'workersMax=1001', 'pods=1,'],
  ])('%j is refused', (given) => {
    expect(() => readQuotas(given)).toThrow(
      /^--quota: .* is invalid; write one or more of endpoints=0\.\.1000000/,
    );
  });
});
