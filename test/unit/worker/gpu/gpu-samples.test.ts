import { describe, expect, it } from 'vitest';
import { MemoryReturn } from '../../../../src/worker/gpu/gpu-accounts.ts';
import {
  type DeviceSample,
  parseDeviceSample,
  parseProcessSample,
  sumSamples,
} from '../../../../src/worker/gpu/gpu-usage-feed.ts';
import type { GpuFigures } from '../../../../src/worker/gpu/usage-meter.ts';

const MIB = 2 ** 20;
const UUID = 'GPU-6f2d41c8-9a07-5be3-8c14-d3a0b7e95f21';
const nothing = { usedBytes: undefined, utilization: undefined, powerWatts: undefined };

describe('a line about a device', () => {
  it.each<[string, Partial<DeviceSample>]>([
    [
      `${UUID}, 80123, 97, 612.34`,
      { usedBytes: 80_123 * MIB, utilization: 0.97, powerWatts: 612.34 },
    ],
    [`${UUID}, 0, 0, 0.00`, { usedBytes: 0, utilization: 0, powerWatts: 0 }],
    // GeForce cards, MIG, drivers without the permission.
    [`${UUID}, 512, [N/A], [N/A]`, { usedBytes: 512 * MIB }],
    [`${UUID}, [Unknown Error], 5, [Not Supported]`, { utilization: 0.05 }],
    // A driver that reports the largest number of its type.
    [`${UUID}, 17592186044416, 4294967295, 99999.99`, {}],
    [`${UUID}, -1, 1e3, NaN`, {}],
  ])('%s', (line, figures) => {
    expect(parseDeviceSample(line)).toEqual({ uuid: UUID, ...nothing, ...figures });
  });

  it.each([
    '',
    'uuid, memory.used [MiB], utilization.gpu [%], power.draw [W]',
    'Unable to determine the device handle for GPU0000:53:00.0: GPU is lost.',
    `${UUID}, 1, 2`,
    `${UUID}, 1, 2, 3, 4`,
    `GPU-${'f'.repeat(500)}, 1, 2, 3`,
    '[N/A], 1, 2, 3',
  ])('is no sample: %s', (line) => {
    expect(parseDeviceSample(line)).toBe(undefined);
  });
});

describe('a line about a process', () => {
  it('has its memory', () => {
    const sample = { uuid: UUID, pid: 4711, usedBytes: 70_000 * MIB };
    expect(parseProcessSample(`${UUID}, 4711, 70000`)).toEqual(sample);
  });

  it.each([
    `${UUID}, 4711, [N/A]`,
    `${UUID}, [Insufficient Permissions], 5`,
    `${UUID}, 1.5, 5`,
    `${UUID}, 99999999999, 5`,
    'No running processes found',
  ])('is no sample: %s', (line) => {
    expect(parseProcessSample(line)).toBe(undefined);
  });
});

describe('the figures of a worker', () => {
  const sample: DeviceSample = {
    ...{ uuid: UUID, usedBytes: 10 * MIB, utilization: 0.5, powerWatts: 300 },
  };
  const worker = { devices: 2, samples: [sample, sample], processBytes: undefined, validMs: 1 };

  it('add up memory and power over its devices, and have the mean utilization', () => {
    expect(sumSamples(worker)).toEqual({
      ...{ vramBytes: 20 * MIB, vramScope: 'devices', utilization: 0.5, powerWatts: 600 },
      validMs: 1,
    });
  });

  it('have the memory of its process, if that is known', () => {
    expect(sumSamples({ ...worker, processBytes: 7 })).toMatchObject({
      ...{ vramBytes: 7, vramScope: 'process', powerWatts: 600 },
    });
  });

  it.each([
    ['a device has no sample', [sample]],
    ['a device does not tell', [sample, { uuid: UUID, ...nothing }]],
    ['it has MIG instances', []],
  ])('lack sums if %s', (_, samples) => {
    const figures = sumSamples({ ...worker, samples, processBytes: 7 });
    expect(figures).toMatchObject({ vramBytes: 7, utilization: undefined, powerWatts: undefined });
    expect(sumSamples({ ...worker, samples })).toMatchObject({ vramBytes: undefined });
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
  ])('memory in use is judged: %s', (_, mib, kind) => {
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
  ])('nothing is judged %s, and the next sample is', (_, sample, now) => {
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

  it('the check ends after 10 s', () => {
    const { memory } = runOut(figures(20_000));
    expect(memory.isPending(10_999)).toBe(true);
    expect(memory.isPending(11_000)).toBe(false);
    expect(memory.judge(figures(90_000), 11_000).kind).toBe('unknown');
  });

  it('memory that an earlier one has kept counts too', () => {
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
])('there is no check if %s', (_, { isChecked, memory }) => {
  expect(isChecked).toBe(false);
  expect(memory.isPending(1_000)).toBe(false);
  expect(memory.judge(figures(90_000), 3_000).kind).toBe('unknown');
});
