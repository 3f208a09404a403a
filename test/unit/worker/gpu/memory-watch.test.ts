// Device memory that nobody gives back: tables.
import { describe, expect, it } from 'vitest';
import {
  DEFAULT_GROWTH_POLICY,
  findHeldBytes,
  type GrowthPolicy,
  type HeldMemory,
  judgeGrowth,
  NO_GROWTH,
  noteJobMemory,
} from '../../../../src/worker/gpu/memory-watch.ts';

const GIB = 2 ** 30;
const MIB = 2 ** 20;

describe('memory held by nobody', () => {
  it.each<[string, HeldMemory, number]>([
    [
      'is what is over the baseline',
      { usedBytes: 3 * GIB, baselineBytes: GIB, ownProcesses: 0 },
      2 * GIB,
    ],
    [
      'is none while a process runs',
      { usedBytes: 3 * GIB, baselineBytes: GIB, ownProcesses: 1 },
      0,
    ],
    [
      'is none within the tolerance',
      { usedBytes: GIB + 256 * MIB, baselineBytes: GIB, ownProcesses: 0 },
      0,
    ],
    ['is none below the baseline', { usedBytes: 0, baselineBytes: GIB, ownProcesses: 0 }, 0],
    [
      'is none where it is not told',
      { usedBytes: undefined, baselineBytes: 0, ownProcesses: 0 },
      0,
    ],
    [
      'keeps to a tolerance that is set',
      { usedBytes: 10, baselineBytes: 0, ownProcesses: 0, toleranceBytes: 9 },
      10,
    ],
  ])('%s', (_, memory, held) => {
    expect(findHeldBytes(memory)).toBe(held);
  });
});

describe('memory from job to job', () => {
  const judge = (mib: readonly number[], changes: Partial<GrowthPolicy> = {}) => {
    const policy = { ...DEFAULT_GROWTH_POLICY, ...changes };
    const growth = mib.reduce((seen, each) => noteJobMemory(seen, each * MIB, policy), NO_GROWTH);
    return judgeGrowth(growth, policy);
  };

  it.each<[string, number[], string]>([
    ['before any job', [], 'steady'],
    ['that stays', [900, 900, 900, 900, 900, 900, 900], 'steady'],
    ['that grows too few times', [900, 910, 920, 930, 940], 'steady'],
    ['that grows with every job', [900, 910, 920, 930, 940, 950], 'growing'],
    ['that fell once', [900, 910, 920, 915, 940, 950], 'steady'],
    ['that begins to grow later', [900, 900, 900, 910, 920, 930, 940, 950], 'growing'],
    ['that grows by less than counts', [900, 900.5, 901, 901.5, 902, 902.5], 'steady'],
  ])('%s', (_, mib, name) => {
    expect(judge(mib).name).toBe(name);
  });

  it('is told with its pace and its whole', () => {
    const verdict = judge([500, 900, 910, 920, 930, 940, 950]);
    expect(verdict).toEqual({ name: 'growing', bytesPerJob: 10 * MIB, grownBytes: 450 * MIB });
  });

  it('leads to a new process past the limit, however it came about', () => {
    const limit = { recycleAtBytes: 400 * MIB };
    expect(judge([500, 899], limit)).toEqual({ name: 'steady' });
    expect(judge([500, 400, 900], limit)).toEqual({ name: 'recycle', grownBytes: 400 * MIB });
  });
});
