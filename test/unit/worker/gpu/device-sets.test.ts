// Which devices each worker gets, and the variables that pin it: tables.
import { describe, expect, it } from 'vitest';
import type { FoundDevice, Vendor } from '../../../../src/worker/gpu/detect.ts';
import {
  type DeviceSetRequest,
  makeDeviceSets,
  parseGpusPerWorker,
} from '../../../../src/worker/gpu/device-sets.ts';

const host = found('host', 0, 'cpu-0');

function found(vendor: Vendor, index: number, uuid: string): FoundDevice {
  const kind = vendor === 'host' ? 'cpu' : 'gpu';
  return { device: { kind, index, uuid, name: uuid, memoryBytes: 2 ** 30 }, vendor, pciBusId: '' };
}

function part(parent: number, place: number): FoundDevice {
  const mig = {
    parentUuid: `GPU-parent${parent}`,
    index: place,
    gpuInstanceId: place + 1,
    computeInstanceId: 0,
  };
  return { ...found('nvidia', parent, `MIG-${parent}${place}`), mig };
}

const four = [0, 1, 2, 3].map((index) => found('nvidia', index, `GPU-${index}aaa`));
const divided = [part(0, 0), part(0, 1), found('nvidia', 1, 'GPU-1aaa')];
const mixed = [found('nvidia', 0, 'GPU-0aaa'), found('amd', 0, 'amd-x'), found('amd', 1, 'amd-y')];

type Row = [wish: Omit<DeviceSetRequest, 'host'>, sets: string[][], idle?: string[]];

function plan(request: Omit<DeviceSetRequest, 'host'>) {
  return makeDeviceSets({ ...request, host });
}

describe('the sets', () => {
  it.each<Row>([
    [{ devices: four, perWorker: 1 }, [['GPU-0aaa'], ['GPU-1aaa'], ['GPU-2aaa'], ['GPU-3aaa']]],
    [
      { devices: four, perWorker: 2 },
      [
        ['GPU-0aaa', 'GPU-1aaa'],
        ['GPU-2aaa', 'GPU-3aaa'],
      ],
    ],
    [{ devices: four, perWorker: 3 }, [['GPU-0aaa', 'GPU-1aaa', 'GPU-2aaa']], ['GPU-3aaa']],
    [{ devices: four, perWorker: 'all' }, [['GPU-0aaa', 'GPU-1aaa', 'GPU-2aaa', 'GPU-3aaa']]],
    [{ devices: four, perWorker: 1, choice: '2, 0' }, [['GPU-2aaa'], ['GPU-0aaa']]],
    [{ devices: four, perWorker: 'all', choice: '3,1' }, [['GPU-3aaa', 'GPU-1aaa']]],
    [{ devices: four, perWorker: 1, choice: 'GPU-1aaa' }, [['GPU-1aaa']]],
    [{ devices: four, perWorker: 1, choice: 'GPU-1' }, [['GPU-1aaa']]],
    [{ devices: divided, perWorker: 1 }, [['MIG-00'], ['MIG-01'], ['GPU-1aaa']]],
    [{ devices: divided, perWorker: 1, choice: '0' }, [['MIG-00'], ['MIG-01']]],
    [{ devices: divided, perWorker: 1, choice: '0:1' }, [['MIG-01']]],
    [{ devices: divided, perWorker: 1, choice: 'GPU-parent0' }, [['MIG-00'], ['MIG-01']]],
    [{ devices: divided, perWorker: 'all', choice: 'MIG-01' }, [['MIG-01']]],
    [{ devices: mixed, perWorker: 'all' }, [['GPU-0aaa'], ['amd-x', 'amd-y']]],
    [{ devices: mixed, perWorker: 1, choice: '0' }, [['GPU-0aaa']]],
    [{ devices: mixed, perWorker: 1, choice: 'amd:1' }, [['amd-y']]],
    [{ devices: mixed, perWorker: 2 }, [['amd-x', 'amd-y']], ['GPU-0aaa']],
    [{ devices: [host], perWorker: 1 }, [['cpu-0']]],
    [{ devices: [host], perWorker: 'all' }, [['cpu-0']]],
    [{ devices: four, perWorker: 2, choice: 'cpu' }, [['cpu-0']]],
  ])('of %j', (wish, sets, idle = []) => {
    const made = plan(wish);
    expect(made.sets.map(({ devices }) => devices.map(({ uuid }) => uuid))).toEqual(sets);
    expect(made.idle.map(({ uuid }) => uuid)).toEqual(idle);
  });
});

describe('a choice is refused', () => {
  it.each<[Omit<DeviceSetRequest, 'host'>, string]>([
    [
      { devices: four, perWorker: 1, choice: '7' },
      'device "7" not found; choose from 0 (GPU-0aaa)',
    ],
    [{ devices: four, perWorker: 1, choice: '0:1' }, 'device "0:1" not found'],
    [{ devices: four, perWorker: 1, choice: 'amd:0' }, 'device "amd:0" not found'],
    [{ devices: four, perWorker: 1, choice: 'GPU-' }, 'device "GPU-" not found'],
    [{ devices: four, perWorker: 1, choice: '' }, 'device "" not found'],
    [{ devices: [host], perWorker: 1, choice: '0' }, 'this machine has no GPU; choose cpu'],
    [{ devices: four, perWorker: 1, choice: '1,GPU-1aaa' }, 'GPU-1aaa is named twice'],
    [{ devices: four, perWorker: 1, choice: 'cpu,0' }, 'cpu cannot be combined with GPUs'],
    [{ devices: four, perWorker: 5 }, 'each worker needs 5 GPUs, only 4 are available'],
    [{ devices: divided, perWorker: 2 }, 'MIG-00 is a MIG instance'],
    [{ devices: divided, perWorker: 'all' }, 'MIG-00 is a MIG instance'],
    [
      {
        devices: [found('nvidia', 0, 'GPU-ab1'), found('nvidia', 1, 'GPU-ab2')],
        perWorker: 1,
        choice: 'GPU-ab',
      },
      'GPU-ab matches the UUIDs of 2',
    ],
  ])('%j', (wish, message) => {
    expect(() => plan(wish)).toThrow(message);
  });

  it.each(['0', '-1', '1.5', 'two', '', '99999'])('of %j GPUs a worker', (text) => {
    expect(() => parseGpusPerWorker(text)).toThrow('must be a number from 1, or all');
  });

  it.each([
    ['1', 1],
    ['16', 16],
    ['all', 'all'],
  ])('but not of %s GPUs a worker', (text, value) => {
    expect(parseGpusPerWorker(text)).toBe(value);
  });
});

describe('the environment', () => {
  const environmentOf = (wish: Omit<DeviceSetRequest, 'host'>) => plan(wish).sets[0]?.environment;

  it('lists UUIDs of NVIDIA GPUs in PCI bus order', () => {
    expect(environmentOf({ devices: four, perWorker: 2, choice: '3,1' })).toEqual({
      CUDA_DEVICE_ORDER: 'PCI_BUS_ID',
      CUDA_VISIBLE_DEVICES: 'GPU-3aaa,GPU-1aaa',
      NVIDIA_VISIBLE_DEVICES: 'GPU-3aaa,GPU-1aaa',
    });
  });

  it('lists a MIG instance, not its GPU', () => {
    expect(environmentOf({ devices: divided, perWorker: 1, choice: '0:1' })).toMatchObject({
      CUDA_VISIBLE_DEVICES: 'MIG-01',
      NVIDIA_VISIBLE_DEVICES: 'MIG-01',
    });
  });

  it('lists numbers of AMD GPUs, counts the remaining GPUs from 0, and unsets CUDA_VISIBLE_DEVICES', () => {
    expect(environmentOf({ devices: mixed, perWorker: 1, choice: 'amd:1' })).toEqual({
      ROCR_VISIBLE_DEVICES: '1',
      HIP_VISIBLE_DEVICES: '0',
      CUDA_VISIBLE_DEVICES: undefined,
    });
  });

  it('masks Intel GPUs by numbers', () => {
    const devices = [found('intel', 0, 'intel-x'), found('intel', 1, 'intel-y')];
    expect(environmentOf({ devices, perWorker: 'all' })).toEqual({ ZE_AFFINITY_MASK: '0,1' });
  });

  it('hides the GPUs from a chosen CPU', () => {
    expect(environmentOf({ devices: four, perWorker: 1, choice: 'cpu' })).toEqual({
      CUDA_VISIBLE_DEVICES: '-1',
      NVIDIA_VISIBLE_DEVICES: 'void',
      HIP_VISIBLE_DEVICES: '-1',
    });
  });

  it('is unchanged for a CPU without GPUs', () => {
    expect(environmentOf({ devices: [host], perWorker: 1 })).toEqual({});
  });
});
