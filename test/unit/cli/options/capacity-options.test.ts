import { tmpdir } from 'node:os';
import { describe, expect, it } from 'vitest';
import { capacityOptions, readCapacity } from '../../../../src/cli/options/limit-options.ts';
import { measureLimits } from '../../../../src/platform/machine-limits.ts';

const overcommit = String(capacityOptions.overcommit.fallback);
const process = { engine: 'process', dataFolder: tmpdir() } as const;

describe('--overcommit and --machine', () => {
  it('are by default 8 times the vCPUs and 4 times the disk of this machine', () => {
    const choice = readCapacity({ overcommit, machine: undefined });
    expect(choice).toEqual({ overcommit: { vcpus: 8, disk: 4 }, machine: {} });
    const limits = measureLimits(choice, process);
    expect(limits.memoryGb).toBeGreaterThanOrEqual(1);
    expect(limits.vcpus % 8).toBe(0);
    expect(limits.diskGb % 4).toBe(0);
  });

  it('set the resources that pods share', () => {
    const machine = 'memory=64, vcpus=10,disk=500';
    const choice = readCapacity({ overcommit: 'disk=2', machine });
    expect(measureLimits(choice, process)).toEqual({ memoryGb: 64, vcpus: 80, diskGb: 1_000 });
  });

  it.each(['', 'memory=2', 'vcpus=0', 'vcpus=1.5', 'disk=1001'])(
    'refuse --overcommit %j',
    (given) => {
      expect(() => readCapacity({ overcommit: given, machine: undefined })).toThrow(
        /^--overcommit: .* is invalid; write one or more of vcpus=1\.\.1000, disk=1\.\.1000$/,
      );
    },
  );

  it.each(['', 'memory=0', 'cpus=4', 'disk=-1'])('refuse --machine %j', (machine) => {
    expect(() => readCapacity({ overcommit, machine })).toThrow(
      /^--machine: .* is invalid; write one or more of memory=1\.\./,
    );
  });
});
