import { tmpdir } from 'node:os';
import { describe, expect, it } from 'vitest';
import {
  judgeSystem,
  measureSystem,
  type SystemFacts,
} from '../../../../src/worker/health/system-checks.ts';

const GB = 2 ** 30;
const nvidia = {
  kind: 'working',
  command: 'nvidia-smi',
  driverVersion: '550.1',
  cudaVersion: '12.4',
  gpus: 1,
} as const;
const facts: SystemFacts = { memoryBytes: 8 * GB, diskPercent: 50, nvidia };

describe('a machine', () => {
  it('is fit if each limit is met exactly', () => {
    const limits = {
      minMemoryBytes: 8 * GB,
      minDiskPercent: 50,
      minCudaVersion: '12.4',
      needsGpus: true,
    };
    expect(judgeSystem(facts, limits)).toBeUndefined();
  });

  it.each([
    ['memory', { minMemoryBytes: 9 * GB }, {}, '8.00 GB of memory available, 9.00 GB required'],
    ['disk', { minDiskPercent: 51 }, {}, '50.0 % of the disk free, 51 % required'],
    ['gpu', { needsGpus: true }, { nvidia: { ...nvidia, gpus: 0 } }, 'nvidia-smi shows no GPU'],
    ['gpu', { needsGpus: true }, { nvidia: { kind: 'failing', command: 'x' } }, 'nvidia-smi fails'],
    ['cuda', { minCudaVersion: '12.10' }, {}, 'the driver supports CUDA 12.4, 12.10 required'],
    ['cuda', { minCudaVersion: '13' }, {}, 'the driver supports CUDA 12.4, 13 required'],
  ] as const)('is unfit for its %s: %j', (check, limits, changes, reason) => {
    const failed = judgeSystem({ ...facts, ...changes }, limits);
    expect(failed).toMatchObject({ check, reason: expect.stringContaining(reason) });
  });

  it('may have no GPUs and a driver that does not report its version', () => {
    const limits = { needsGpus: true, minCudaVersion: '12.0' };
    expect(judgeSystem({ ...facts, nvidia: { kind: 'absent' } }, limits)).toBeUndefined();
    const silent = { ...nvidia, cudaVersion: undefined };
    expect(judgeSystem({ ...facts, nvidia: silent }, limits)).toBeUndefined();
  });

  it('is not checked without a limit', () => {
    expect(judgeSystem({ ...facts, memoryBytes: 0, diskPercent: 0 }, {})).toBeUndefined();
  });

  it('is measured', async () => {
    const measured = await measureSystem(tmpdir(), nvidia);
    expect(measured.memoryBytes).toBeGreaterThan(0);
    expect(measured.diskPercent).toBeGreaterThan(0);
    expect(measured.diskPercent).toBeLessThanOrEqual(100);
  });
});
