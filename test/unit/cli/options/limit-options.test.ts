// The options of `serve` that name several limits at once.
import { tmpdir } from 'node:os';
import { describe, expect, it } from 'vitest';
import { DEFAULT_RATE_LIMITS } from '../../../../src/api/limits/rate-limit.ts';
import { parseOptions } from '../../../../src/cli/option-parser.ts';
import {
  limitOptions,
  readQuotas,
  readRateLimits,
} from '../../../../src/cli/options/limit-options.ts';
import { composeMembers } from '../../../../src/cli/options/platform-option.ts';
import { serveOptions } from '../../../../src/cli/options/serve-options.ts';
import { DEFAULT_QUOTAS } from '../../../../src/control/limits/quotas.ts';
import { measureLimits } from '../../../../src/platform/machine.ts';
import { MAX_WAIT_MS } from '../../../../src/wire/link/worker-link.ts';

it.each(['--take-wait-ms', '--renew-every-ms'])(
  '%s is at most as long as a worker may wait in one call',
  (name) => {
    expect(() => parseOptions(serveOptions, [name, `${MAX_WAIT_MS}`])).not.toThrow();
    expect(() => parseOptions(serveOptions, [name, `${MAX_WAIT_MS + 1}`])).toThrow(name);
  },
);

describe('--rate-limit', () => {
  it('has the platform’s default', () => {
    expect(readRateLimits(limitOptions.rateLimit.fallback ?? '')).toEqual(DEFAULT_RATE_LIMITS);
  });

  it.each([
    ['minute=10', { ...DEFAULT_RATE_LIMITS, minute: 10 }],
    ['day=7, minute=10', { ...DEFAULT_RATE_LIMITS, day: 7, minute: 10 }],
    ['minute=10,hour=0,day=0', { minute: 10 }],
    ['minute=0,hour=0,day=0', undefined],
    ['none', undefined],
    ['0', undefined],
  ])('takes %s for %j', (given, limits) => {
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
  ])('refuses %j', (given) => {
    expect(() => readRateLimits(given)).toThrow(
      /^--rate-limit: .* is invalid; write none, or one or more of minute=0/,
    );
  });
});

describe('--quota', () => {
  it('has the platform’s default', () => {
    expect(readQuotas(limitOptions.quota.fallback ?? '')).toEqual(DEFAULT_QUOTAS);
  });

  it.each([
    ['pods=0', { ...DEFAULT_QUOTAS, pods: 0 }],
    ['keys=7, workersMax=1000', { ...DEFAULT_QUOTAS, keys: 7, workersMax: 1_000 }],
    ['recordKb=1024', { ...DEFAULT_QUOTAS, recordBytes: 1_048_576 }],
  ])('takes %s for %j', (given, quotas) => {
    expect(readQuotas(given)).toEqual(quotas);
  });

  it.each([
    ...['', '10', 'nothing=1', 'constructor=1', 'pods', 'pods=', 'pods=-1', 'pods=1.5'],
    ...['pods=1000001', 'recordKb=0', 'recordKb=1025', 'workersMax=1001', 'pods=1,'],
  ])('refuses %j', (given) => {
    expect(() => readQuotas(given)).toThrow(
      /^--quota: .* is invalid; write one or more of endpoints=0\.\.1000000/,
    );
  });
});

function readCapacity(...args: string[]) {
  return composeMembers(limitOptions, parseOptions(limitOptions, args).values).compute?.capacity;
}

const process = { engine: 'process', dataFolder: tmpdir() } as const;

describe('--overcommit and --machine', () => {
  it('are by default 8 times the vCPUs and 4 times the disk of this machine', () => {
    const choice = { overcommit: { vcpus: 8, disk: 4 }, machine: {} };
    expect(readCapacity()).toEqual(choice);
    const limits = measureLimits(choice, process);
    expect(limits.memoryGb).toBeGreaterThanOrEqual(1);
    expect(limits.vcpus % 8).toBe(0);
    expect(limits.diskGb % 4).toBe(0);
  });

  it('set the resources that pods share', () => {
    const choice = {
      overcommit: { vcpus: 8, disk: 2 },
      machine: { memoryGb: 64, vcpus: 10, diskGb: 500 },
    };
    const machine = '--machine=memory=64, vcpus=10,disk=500';
    expect(readCapacity('--overcommit=disk=2', machine)).toEqual(choice);
    expect(measureLimits(choice, process)).toEqual({ memoryGb: 64, vcpus: 80, diskGb: 1_000 });
  });

  it.each([' ', 'memory=2', 'vcpus=0', 'vcpus=1.5', 'disk=1001'])(
    'refuse --overcommit %j',
    (given) => {
      expect(() => readCapacity(`--overcommit=${given}`)).toThrow(
        /^--overcommit: .* is invalid; write one or more of vcpus=1\.\.1000, disk=1\.\.1000$/,
      );
    },
  );

  it.each([' ', 'memory=0', 'cpus=4', 'disk=-1'])('refuse --machine %j', (machine) => {
    expect(() => readCapacity(`--machine=${machine}`)).toThrow(
      /^--machine: .* is invalid; write one or more of memory=1\.\./,
    );
  });
});
