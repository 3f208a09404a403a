import { describe, expect, it } from 'vitest';
import { measureUsage, type StatsAnswer } from '../../../../src/engine/docker/usage.ts';

const startedAt = Date.parse('2026-01-01T00:00:00Z');
const before = { at: startedAt, cpuNs: 1_000_000_000 };

function answer(fields: Partial<StatsAnswer['memory_stats']> = {}): StatsAnswer {
  return {
    read: '2026-01-01T00:00:02.000000001Z',
    cpu_stats: { cpu_usage: { total_usage: 2_000_000_000 }, online_cpus: 4 },
    memory_stats: { usage: 600, limit: 1_000, ...fields },
  };
}

describe('the usage of a container', () => {
  it('is relative to its limit: one second of CPU time in two, of two CPUs', () => {
    expect(measureUsage(answer(), before, 2).cpu).toBe(25);
  });

  it('is relative to the machine without a limit', () => {
    expect(measureUsage(answer(), before, null).cpu).toBe(12.5);
  });

  it('is never more than 100 %', () => {
    expect(measureUsage(answer(), { ...before, at: startedAt + 2_000 }, 1).cpu).toBe(100);
    expect(measureUsage(answer(), { ...before, cpuNs: 3_000_000_000 }, 1).cpu).toBe(0);
  });

  it.each([
    ['of cgroup v1', { total_inactive_file: 200, inactive_file: 1 }],
    ['of cgroup v2', { inactive_file: 200 }],
  ])('excludes the file cache from memory: %s', (_what, stats) => {
    expect(measureUsage(answer({ stats }), before, 1).memory).toBe(40);
  });

  it('includes memory without a memory limit', () => {
    expect(measureUsage(answer({ limit: 0 }), before, 1).memory).toBe(0);
  });
});
