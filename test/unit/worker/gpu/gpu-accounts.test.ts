import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type GpuFigures,
  MemoryReturn,
  UsageMeter,
} from '../../../../src/worker/gpu/gpu-accounts.ts';

const GB = 1e9;
const MIB = 2 ** 20;

/** An event at a time in seconds. */
type Event =
  | [at: number, what: 'begin' | 'end', attempt: string]
  | [at: number, what: 'sample', figures: Partial<GpuFigures>];

function measure(events: readonly Event[], devices = 1) {
  const meter = new UsageMeter<string>({ devices });
  const usages: Record<string, unknown> = {};
  for (const [at, what, value] of events) {
    const now = 1_700_000_000_000 + at * 1_000;
    if (what === 'sample') meter.sample({ vramScope: 'process', ...value }, now);
    else if (what === 'begin') meter.begin(value, now);
    else usages[value] = meter.end(value, now);
  }
  return usages;
}

describe('the usage of an attempt', () => {
  it('has its seconds on all devices, without any sample', () => {
    const usages = measure(
      [
        [0, 'begin', 'a'],
        [2.5, 'end', 'a'],
      ],
      4,
    );
    expect(usages).toEqual({ a: { seconds: 10, shared: false } });
  });

  it('has means by time, the peak, and power × time', () => {
    const usages = measure([
      [0, 'begin', 'a'],
      [1, 'sample', { vramBytes: 10 * GB, utilization: 0.2, powerWatts: 100 }],
      [3, 'sample', { vramBytes: 40 * GB, utilization: 0.8, powerWatts: 400 }],
      // The last second has no sample of its own yet.
      [4, 'end', 'a'],
    ]);
    expect(usages['a']).toEqual({
      seconds: 4,
      vramPeakBytes: 40 * GB,
      vramMeanBytes: 32.5 * GB,
      vramScope: 'process',
      utilizationMean: 0.65,
      energyJoules: 1_300,
      shared: false,
    });
  });

  it('has the figures of the sample before it if it is shorter than the interval', () => {
    const usages = measure([
      [0, 'sample', { vramBytes: GB, powerWatts: 200 }],
      [0.25, 'begin', 'a'],
      [0.75, 'end', 'a'],
    ]);
    expect(usages['a']).toMatchObject({ seconds: 0.5, vramPeakBytes: GB, energyJoules: 100 });
  });

  it('begins with the sample after its begin, not with the one before', () => {
    const usages = measure([
      [0, 'sample', { utilization: 0 }],
      [0.5, 'begin', 'a'],
      [1, 'sample', { utilization: 1 }],
      [1, 'end', 'a'],
    ]);
    expect(usages['a']).toMatchObject({ utilizationMean: 1 });
  });

  it.each<[string, Partial<GpuFigures>, object]>([
    ['no power', { vramBytes: GB }, { vramPeakBytes: GB }],
    ['no memory', { powerWatts: 50 }, { energyJoules: 50 }],
    ['nothing', {}, { seconds: 1 }],
  ])('lacks the figures of devices that tell %s', (_, figures, some) => {
    const { a } = measure([
      [0, 'begin', 'a'],
      [1, 'sample', figures],
      [1, 'end', 'a'],
    ]);
    expect(a).toMatchObject(some);
    expect(JSON.stringify(a)).not.toMatch(/null|NaN/);
    if (figures.vramBytes === undefined) expect(a).not.toHaveProperty('vramScope');
    if (figures.powerWatts === undefined) expect(a).not.toHaveProperty('energyJoules');
  });

  it('counts nothing while it is paused', () => {
    const meter = new UsageMeter<string>({ devices: 1 });
    meter.begin('a', 0);
    meter.begin('b', 0);
    meter.pause('a', 1_000);
    meter.sample({ vramScope: 'process', vramBytes: GB, powerWatts: 100 }, 2_000);
    meter.resume('a', 5_000);
    expect(meter.end('a', 6_000)).toMatchObject({ seconds: 1 });
    expect(meter.end('b', 6_000)).toMatchObject({ seconds: 5 });
  });

  it('names the devices as the scope if one of its samples had only their memory', () => {
    const { a } = measure([
      [0, 'begin', 'a'],
      [1, 'sample', { vramBytes: GB }],
      [2, 'sample', { vramBytes: GB, vramScope: 'devices' }],
      [3, 'sample', { vramBytes: GB }],
      [3, 'end', 'a'],
    ]);
    expect(a).toMatchObject({ vramScope: 'devices' });
  });

  it('takes nothing from a sampler that has stopped: the mean holds for the rest', () => {
    const { a, b } = measure([
      [0, 'begin', 'a'],
      [1, 'sample', { powerWatts: 100 }],
      [99, 'begin', 'b'],
      [100, 'end', 'b'],
      [101, 'end', 'a'],
    ]);
    expect(b).toEqual({ seconds: 0.5, shared: true });
    expect(a).toMatchObject({ seconds: 100.5, energyJoules: 10_050 });
  });

  it('is never negative when the clock is set back', () => {
    const { a } = measure([
      [10, 'begin', 'a'],
      [5, 'sample', { powerWatts: 9 }],
      [8, 'end', 'a'],
    ]);
    expect(a).toEqual({ seconds: 0, energyJoules: 0, shared: false });
  });

  it('is undefined if the attempt never began', () => {
    expect(measure([[1, 'end', 'a']])).toEqual({ a: undefined });
  });
});

describe('attempts that run at once', () => {
  it('share the time of their overlap equally, and say so', () => {
    const { a, b, c } = measure([
      [0, 'begin', 'a'],
      [2, 'begin', 'b'],
      [4, 'sample', { powerWatts: 100, utilization: 0.5, vramBytes: 8 * GB }],
      [6, 'end', 'a'],
      [7, 'end', 'b'],
      [7, 'begin', 'c'],
      [8, 'end', 'c'],
    ]);
    expect(a).toMatchObject({ seconds: 4, energyJoules: 400, shared: true });
    expect(b).toMatchObject({ seconds: 3, energyJoules: 300, shared: true });
    expect(c).toMatchObject({ seconds: 1, energyJoules: 100, shared: false });
    // Memory and utilization are those of the process.
    for (const usage of [a, b]) {
      expect(usage).toMatchObject({ vramPeakBytes: 8 * GB, utilizationMean: 0.5 });
    }
  });

  it('have equal parts of one batch', () => {
    const jobs = Array.from({ length: 32 }, (_, place) => `job-${place}`);
    const usages = measure([
      ...jobs.map((job): Event => [0, 'begin', job]),
      [1, 'sample', { powerWatts: 320 }],
      ...jobs.map((job): Event => [1, 'end', job]),
    ]);
    for (const job of jobs) {
      expect(usages[job]).toEqual({ seconds: 0.031, energyJoules: 10, shared: true });
    }
  });

  const step = fc.record({
    after: fc.integer({ min: 0, max: 3_000 }),
    what: fc.constantFrom('begin', 'end', 'sample'),
    attempt: fc.constantFrom('a', 'b', 'c', 'd'),
    powerWatts: fc.integer({ min: 0, max: 700 }),
  });

  it('have together what the process used while any of them ran', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const meter = new UsageMeter<string>({ devices: 2 });
        const running = new Set<string>();
        let [now, busyMs, seconds] = [0, 0, 0];
        const end = (attempt: string) => {
          running.delete(attempt);
          const usage = meter.end(attempt, now);
          seconds += usage?.seconds ?? 0;
          const mostJoules = 700 * ((usage?.seconds ?? 0) / 2);
          expect(usage?.energyJoules ?? 0).toBeLessThanOrEqual(mostJoules + 1);
        };
        for (const { after, attempt, powerWatts, what } of steps) {
          now += after;
          if (running.size > 0) busyMs += after;
          if (what === 'sample')
            meter.sample({ vramScope: 'process', powerWatts, validMs: 1e9 }, now);
          else if (running.has(attempt)) end(attempt);
          else {
            running.add(attempt);
            meter.begin(attempt, now);
          }
        }
        for (const attempt of [...running]) end(attempt);
        expect(meter.running).toBe(0);
        expect(seconds).toBeCloseTo((2 * busyMs) / 1_000, 1);
      }),
    );
  });
});

function figures(mib: number | undefined, scope: GpuFigures['vramScope'] = 'process'): GpuFigures {
  return { vramBytes: mib === undefined ? undefined : mib * MIB, vramScope: scope };
}

/** An attempt ran out of memory at 1,000 ms; `before` was sampled before its begin. */
function runOut(before: GpuFigures | undefined, isOutOfMemory = true) {
  const memory = new MemoryReturn<string>();
  if (before) memory.judge(before, 0);
  memory.begin('a');
  memory.judge(figures(140_000), 900);
  const isChecked = memory.end('a', { isOutOfMemory, now: 1_000 });
  return { memory, isChecked };
}

describe('after an attempt that ran out of device memory', () => {
  it.each([
    ['as before', 20_000, 'returned'],
    ['within the margin', 20_512, 'returned'],
    ['beyond the margin', 20_513, 'kept'],
    ['less than before', 100, 'returned'],
  ])('judges the memory in use: %s', (_, mib, kind) => {
    const { memory } = runOut(figures(20_000));
    expect(memory.isPending(2_000)).toBe(true);
    const verdict = memory.judge(figures(mib), 2_000);
    expect(verdict).toEqual({ kind, ...(kind === 'kept' && { excessBytes: 513 * MIB }) });
    expect(memory.isPending(2_001)).toBe(false);
    expect(memory.judge(figures(90_000), 3_000).kind).toBe('unknown');
  });

  it.each([
    ['too early', figures(90_000), 1_999],
    ['without a figure', figures(undefined), 3_000],
    ['of other processes too', figures(90_000, 'devices'), 3_000],
  ])('judges nothing %s, but the next sample', (_, sample, now) => {
    const { memory } = runOut(figures(20_000));
    expect(memory.judge(sample, now).kind).toBe('unknown');
    expect(memory.isPending(now)).toBe(true);
    expect(memory.judge(figures(90_000), 4_000).kind).toBe('kept');
  });

  it('judges nothing while another attempt runs', () => {
    const { memory } = runOut(figures(20_000));
    memory.begin('b');
    expect(memory.judge(figures(90_000), 3_000).kind).toBe('unknown');
    memory.end('b', { isOutOfMemory: false, now: 3_500 });
    expect(memory.judge(figures(90_000), 4_000).kind).toBe('kept');
  });

  it('ends the check after 10 s', () => {
    const { memory } = runOut(figures(20_000));
    expect(memory.isPending(10_999)).toBe(true);
    expect(memory.isPending(11_000)).toBe(false);
    expect(memory.judge(figures(90_000), 11_000).kind).toBe('unknown');
  });

  it('counts memory that an earlier one has kept, too', () => {
    const { memory } = runOut(figures(20_000));
    memory.begin('b');
    memory.judge(figures(60_000), 1_500);
    memory.begin('c');
    memory.end('c', { isOutOfMemory: true, now: 1_600 });
    memory.end('b', { isOutOfMemory: false, now: 1_700 });
    const verdict = memory.judge(figures(60_000), 3_000);
    expect(verdict).toEqual({ kind: 'kept', excessBytes: 40_000 * MIB });
  });
});

it.each([
  ['no attempt ran out of memory', runOut(figures(20_000), false)],
  ['nothing was sampled before', runOut(undefined)],
])('makes no check if %s', (_, { isChecked, memory }) => {
  expect(isChecked).toBe(false);
  expect(memory.isPending(1_000)).toBe(false);
  expect(memory.judge(figures(90_000), 3_000).kind).toBe('unknown');
});
