import { describe, expect, it } from 'vitest';
import {
  checkVendor,
  chooseMeans,
  hasGpus,
  pinVariables,
  requestGpus,
} from '../../../../src/engine/docker/gpu-requests.ts';

const gpus = ['GPU-a', 'GPU-b'];

describe('a request for GPUs', () => {
  it('uses CDI if the engine supports it', () => {
    expect(chooseMeans({ CDISpecDirs: ['/etc/cdi', '/var/run/cdi'] })).toBe('cdi');
    expect(chooseMeans({ CDISpecDirs: [] })).toBe('nvidia');
    expect(chooseMeans({})).toBe('nvidia');
  });

  it('names each GPU', () => {
    expect(requestGpus(gpus, 'cdi')).toEqual([
      { Driver: 'cdi', DeviceIDs: ['nvidia.com/gpu=GPU-a', 'nvidia.com/gpu=GPU-b'] },
    ]);
    expect(requestGpus(gpus, 'nvidia')).toEqual([
      { Driver: 'nvidia', DeviceIDs: gpus, Capabilities: [['gpu']] },
    ]);
  });

  it('is empty without GPUs', () => {
    expect(requestGpus([], 'cdi')).toEqual([]);
    expect(requestGpus([], 'nvidia')).toEqual([]);
  });

  it('removes variables by which a pod could take other GPUs', () => {
    expect(pinVariables([], 'nvidia')).toEqual({ NVIDIA_VISIBLE_DEVICES: 'void' });
    expect(pinVariables(gpus, 'cdi')).toEqual({ NVIDIA_VISIBLE_DEVICES: 'void' });
    expect(pinVariables(gpus, 'nvidia')).toEqual({ NVIDIA_VISIBLE_DEVICES: 'GPU-a,GPU-b' });
  });

  it('is for NVIDIA GPUs only', () => {
    expect(() => checkVendor(['GPU-a', 'MIG-b'])).not.toThrow();
    expect(() => checkVendor(['GPU-a', 'amd-0'])).toThrow(/amd-0/);
  });
});

describe('a container', () => {
  it.each([
    ['as a request by UUID', { DeviceRequests: [{ DeviceIDs: gpus }] }],
    ['as a request by CDI', { DeviceRequests: requestGpus(gpus, 'cdi') }],
    ['as devices', { Devices: gpus.map((uuid) => ({ PathOnHost: `nvidia.com/gpu=${uuid}` })) }],
  ])('requests its GPUs %s', (_how, given) => {
    expect(hasGpus(given, gpus)).toBe(true);
  });

  it('does not have its GPUs if one is missing', () => {
    expect(hasGpus({ DeviceRequests: [{ DeviceIDs: ['GPU-a'] }] }, gpus)).toBe(false);
    expect(hasGpus({ DeviceRequests: null, Devices: null }, gpus)).toBe(false);
    expect(hasGpus({}, gpus)).toBe(false);
  });

  it('needs no GPU if it requests none', () => {
    expect(hasGpus({}, [])).toBe(true);
  });
});
