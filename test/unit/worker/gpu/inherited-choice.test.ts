// What the variables of CUDA and ROCm leave of the devices: tables.
import { describe, expect, it } from 'vitest';
import type { FoundDevice, Vendor } from '../../../../src/worker/gpu/found-device.ts';
import { type Environment, restrictDevices } from '../../../../src/worker/gpu/inherited-choice.ts';

function found(vendor: Vendor, index: number, uuid: string, name = 'A100'): FoundDevice {
  const kind = vendor === 'host' ? 'cpu' : 'gpu';
  return { device: { kind, index, uuid, name, memoryBytes: 2 ** 30 }, vendor, pciBusId: '' };
}

function part(parent: number, place: number): FoundDevice {
  const parentUuid = `GPU-${parent}par`;
  const mig = { parentUuid, index: place, gpuInstanceId: place + 3, computeInstanceId: 0 };
  const name = `A100 MIG ${place}`;
  return { ...found('nvidia', parent, `MIG-${parent}${place}-uuid`, name), mig };
}

const host = found('host', 0, 'cpu-0');
const four = [0, 1, 2, 3].map((index) => found('nvidia', index, `GPU-${index}aaa`));
const divided = [part(0, 0), part(0, 1), found('nvidia', 1, 'GPU-1aaa')];
const alike = [found('nvidia', 0, 'GPU-0abc'), found('nvidia', 1, 'GPU-0abd')];
const amd = [0, 1, 2].map((index) => found('amd', index, `amd-${index}`));

function uuidsLeft(devices: FoundDevice[], environment: Environment): string {
  return restrictDevices(devices, environment)
    .devices.map(({ device }) => device.uuid)
    .join(' ');
}

describe('CUDA_VISIBLE_DEVICES leaves', () => {
  it.each<[string | undefined, FoundDevice[], string]>([
    [undefined, four, 'GPU-0aaa GPU-1aaa GPU-2aaa GPU-3aaa'],
    ['2,0', four, 'GPU-2aaa GPU-0aaa'],
    [' 1 , 3 ', four, 'GPU-1aaa GPU-3aaa'],
    ['GPU-3aaa,GPU-0aaa', four, 'GPU-3aaa GPU-0aaa'],
    ['GPU-2', four, 'GPU-2aaa'],
    ['GPU-1aaa,0', four, 'GPU-1aaa GPU-0aaa'],
    ['', four, ''],
    ['-1', four, ''],
    ['NoDevFiles', four, ''],
    ['none', four, ''],
    ['0,2,-1,1', four, 'GPU-0aaa GPU-2aaa'],
    ['1,9,0', four, 'GPU-1aaa'],
    ['GPU-9aaa,0', four, ''],
    ['0,,1', four, 'GPU-0aaa'],
    ['1,1', four, ''],
    ['GPU-0ab', alike, ''],
    ['GPU-0abd', alike, 'GPU-0abd'],
    ['MIG-01-uuid', divided, 'MIG-01-uuid'],
    ['MIG-01', divided, 'MIG-01-uuid'],
    ['MIG-01-uuid,MIG-00-uuid', divided, 'MIG-01-uuid MIG-00-uuid'],
    ['MIG-0', divided, ''],
    ['MIG-GPU-0par/4/0', divided, 'MIG-01-uuid'],
    ['MIG-GPU-0par/9/0', divided, ''],
    ['0', divided, 'MIG-00-uuid'],
    ['GPU-0par,1', divided, 'MIG-00-uuid GPU-1aaa'],
    ['-1', [host], 'cpu-0'],
    ['0', [...four.slice(0, 1), ...amd], 'GPU-0aaa amd-0 amd-1 amd-2'],
  ])('of %j', (value, devices, left) => {
    expect(uuidsLeft(devices, { CUDA_VISIBLE_DEVICES: value })).toBe(left);
  });

  it.each<[string | undefined, boolean]>([
    [undefined, false],
    ['', true],
    ['-1', true],
    ['NoDevFiles', true],
    ['-1,0', true],
    ['0', false],
    ['9', false],
    ['GPU-x', false],
    ['MIG-GPU-x/1/0', false],
  ])('of %j no NVIDIA GPU, with any device: %j', (value, hides) => {
    expect(restrictDevices(four, { CUDA_VISIBLE_DEVICES: value }).hidesNvidia).toBe(hides);
  });
});

describe('ROCm', () => {
  it.each<[Environment, string]>([
    [{ ROCR_VISIBLE_DEVICES: '2,1' }, 'amd-2 amd-1'],
    [{ ROCR_VISIBLE_DEVICES: '2,1', HIP_VISIBLE_DEVICES: '1' }, 'amd-1'],
    [{ HIP_VISIBLE_DEVICES: '1' }, 'amd-1'],
    [{ HIP_VISIBLE_DEVICES: '0,7,1' }, 'amd-0'],
    [{ CUDA_VISIBLE_DEVICES: '1' }, 'amd-1'],
    [{ CUDA_VISIBLE_DEVICES: '1', HIP_VISIBLE_DEVICES: '2' }, 'amd-2'],
    [{ HIP_VISIBLE_DEVICES: '-1' }, ''],
    [{ ROCR_VISIBLE_DEVICES: '' }, ''],
    [{ ROCR_VISIBLE_DEVICES: '0,GPU-4b2c1a9f' }, 'amd-0'],
  ])('under %j leaves %j', (environment, left) => {
    expect(uuidsLeft(amd, environment)).toBe(left);
  });
});

describe('a note says', () => {
  const unlike = [found('nvidia', 0, 'GPU-0aaa', 'T4'), found('nvidia', 1, 'GPU-1aaa', 'A100')];
  const notesOf = (devices: FoundDevice[], environment: Environment) =>
    restrictDevices(devices, environment).notes.join('\n');

  it('how many devices a variable allows', () => {
    expect(notesOf(four, { CUDA_VISIBLE_DEVICES: '0,1' })).toBe(
      'CUDA_VISIBLE_DEVICES=0,1 in the environment limits this worker to 2 of 4 devices',
    );
  });

  it('which entry ends the list', () => {
    expect(notesOf(four, { CUDA_VISIBLE_DEVICES: '1,9,0' })).toContain(
      '"9" in CUDA_VISIBLE_DEVICES matches no device of this machine; it and all after it are ignored',
    );
  });

  it('that a device is listed twice', () => {
    expect(notesOf(four, { CUDA_VISIBLE_DEVICES: '1,1' })).toContain('names 1 (GPU-1aaa) twice');
  });

  it.each<[string, FoundDevice[], Environment, boolean]>([
    ['models differ', unlike, { CUDA_VISIBLE_DEVICES: '0' }, true],
    ['models differ, a UUID', unlike, { CUDA_VISIBLE_DEVICES: 'GPU-0aaa' }, false],
    [
      'models differ, the order is set',
      unlike,
      { CUDA_VISIBLE_DEVICES: '0', CUDA_DEVICE_ORDER: 'PCI_BUS_ID' },
      false,
    ],
    [
      'models differ, another order is set',
      unlike,
      { CUDA_VISIBLE_DEVICES: '0', CUDA_DEVICE_ORDER: 'FASTEST_FIRST' },
      true,
    ],
    ['one model', four, { CUDA_VISIBLE_DEVICES: '0' }, false],
    ['one model, in instances too', divided, { CUDA_VISIBLE_DEVICES: '1' }, false],
    ['not restricted', unlike, {}, false],
  ])('whether CUDA may number the GPUs in another order: %s', (_, devices, environment, doubts) => {
    const notes = notesOf(devices, environment);
    expect(notes.includes('CUDA puts the fastest GPU first')).toBe(doubts);
  });

  it('nothing if no variable restricts devices', () => {
    expect(notesOf([...four, ...amd], {})).toBe('');
    expect(notesOf([host], { CUDA_VISIBLE_DEVICES: '0' })).toBe('');
  });
});
