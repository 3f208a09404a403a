import { describe, expect, it } from 'vitest';
import { MemoryReturn } from '../../../../src/worker/gpu/gpu-accounts.ts';
import type { GpuFigures } from '../../../../src/worker/gpu/usage-meter.ts';

const MIB = 2 ** 20;

function figures(mib: number | undefined, scope: GpuFigures['vramScope'] = 'process'): GpuFigures {
  return { vramBytes: mib === undefined ? undefined : mib * MIB, vramScope: scope };
}

/** An attempt ran out of memory at 1,000 ms; `before` was sampled before its begin. */
function runOut(before: GpuFigures | undefined, isOutOfMemory = true) {
  const memory = new MemoryReturn<string>();
  if (before) memory.judge(before, { isIdle: true, now: 0 });
  memory.begin('a');
  memory.judge(figures(140_000), { isIdle: false, now: 900 });
  const isChecked = memory.end('a', { isOutOfMemory, now: 1_000 });
  return { memory, isChecked };
}

describe('after an attempt that ran out of device memory', () => {
  it.each([
    ['as before', 20_000, 'returned'],
    ['within the margin', 20_512, 'returned'],
    ['beyond the margin', 20_513, 'kept'],
    ['less than before', 100, 'returned'],
  ])('memory in use is judged: %s', (_, mib, kind) => {
    const { memory } = runOut(figures(20_000));
    expect(memory.isPending(2_000)).toBe(true);
    const verdict = memory.judge(figures(mib), { isIdle: true, now: 2_000 });
    expect(verdict).toEqual({ kind, ...(kind === 'kept' && { excessBytes: 513 * MIB }) });
    expect(memory.isPending(2_001)).toBe(false);
    expect(memory.judge(figures(90_000), { isIdle: true, now: 3_000 }).kind).toBe('unknown');
  });

  it.each([
    ['too early', figures(90_000), { isIdle: true, now: 1_999 }],
    ['while another attempt runs', figures(90_000), { isIdle: false, now: 3_000 }],
    ['without a figure', figures(undefined), { isIdle: true, now: 3_000 }],
    ['of other processes too', figures(90_000, 'devices'), { isIdle: true, now: 3_000 }],
  ])('nothing is judged %s, and the next sample is', (_, sample, when) => {
    const { memory } = runOut(figures(20_000));
    expect(memory.judge(sample, when).kind).toBe('unknown');
    expect(memory.isPending(when.now)).toBe(true);
    expect(memory.judge(figures(90_000), { isIdle: true, now: 4_000 }).kind).toBe('kept');
  });

  it('the check ends after 10 s', () => {
    const { memory } = runOut(figures(20_000));
    expect(memory.isPending(10_999)).toBe(true);
    expect(memory.isPending(11_000)).toBe(false);
    expect(memory.judge(figures(90_000), { isIdle: true, now: 11_000 }).kind).toBe('unknown');
  });

  it('memory that an earlier one has kept counts too', () => {
    const { memory } = runOut(figures(20_000));
    memory.begin('b');
    memory.judge(figures(60_000), { isIdle: false, now: 1_500 });
    memory.begin('c');
    memory.end('c', { isOutOfMemory: true, now: 1_600 });
    const verdict = memory.judge(figures(60_000), { isIdle: true, now: 3_000 });
    expect(verdict).toEqual({ kind: 'kept', excessBytes: 40_000 * MIB });
  });
});

it.each([
  ['no attempt ran out of memory', runOut(figures(20_000), false)],
  ['nothing was sampled before', runOut(undefined)],
])('there is no check if %s', (_, { isChecked, memory }) => {
  expect(isChecked).toBe(false);
  expect(memory.isPending(1_000)).toBe(false);
  expect(memory.judge(figures(90_000), { isIdle: true, now: 3_000 }).kind).toBe('unknown');
});
