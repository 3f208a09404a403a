import { describe, expect, it } from 'vitest';
import {
  type DeviceSample,
  parseDeviceSample,
  parseProcessSample,
  sumSamples,
} from '../../../../src/worker/gpu/gpu-usage-feed.ts';

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
