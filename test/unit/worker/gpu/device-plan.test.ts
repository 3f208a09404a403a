// From detection to device sets, on machines that a stand-in for nvidia-smi makes up.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { detectDevices, type FoundDevice, type Vendor } from '../../../../src/worker/gpu/detect.ts';
import {
  type DevicePlanRequest,
  type Environment,
  planDevices,
  restrictDevices,
} from '../../../../src/worker/gpu/device-plan.ts';
import { DeviceChoiceError } from '../../../../src/worker/gpu/device-sets.ts';
import { type Answer, type Failure, standInFolder } from '../../../support/nvidia-smi/stand-in.ts';

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-plan-'));
});

afterAll(() => rm(folder, { recursive: true }));

afterEach(() => vi.unstubAllEnvs());

type Wish = Partial<Omit<DevicePlanRequest, 'detection'>>;

async function plan(says: Answer | Failure, wish: Wish = {}) {
  vi.stubEnv('NVIDIA_SMI_SAYS', says);
  const detection = await detectDevices({ searchPath: standInFolder, deviceFolder: folder });
  return planDevices({ detection, perWorker: 1, choice: undefined, environment: {}, ...wish });
}

async function refusal(says: Answer | Failure, wish: Wish = {}): Promise<DeviceChoiceError> {
  const error = await plan(says, wish).catch((reason: unknown) => reason);
  if (error instanceof DeviceChoiceError) return error;
  throw new Error(`not refused: ${JSON.stringify(error)}`);
}

const restricted = { environment: { CUDA_VISIBLE_DEVICES: '4,5' } };
const hiding = { environment: { CUDA_VISIBLE_DEVICES: '-1' } };

describe('the plan', () => {
  it('contains every device if none is chosen', async () => {
    expect(await plan('eight-a100', { perWorker: 2 })).toMatchObject({
      sets: { length: 4 },
      idle: [],
      notes: [],
    });
  });

  it('contains the devices that the environment allows if none is chosen', async () => {
    const { sets, notes } = await plan('eight-a100', restricted);
    expect(sets.map(({ devices }) => devices[0]?.index)).toEqual([4, 5]);
    expect(notes).toEqual([
      'CUDA_VISIBLE_DEVICES=4,5 in the environment limits this worker to 2 of 8 devices',
    ]);
  });

  it('contains the chosen devices and names the overridden variable', async () => {
    const { sets, notes } = await plan('eight-a100', { ...restricted, choice: '0' });
    expect(sets.map(({ devices }) => devices[0]?.index)).toEqual([0]);
    expect(notes).toEqual([
      'CUDA_VISIBLE_DEVICES=4,5 in the environment is overridden by --devices',
    ]);
  });

  it('contains the CPU, with the GPUs hidden, if the environment hides them', async () => {
    const { sets } = await plan('eight-a100', hiding);
    expect(sets).toMatchObject([
      { devices: [{ kind: 'cpu' }], environment: { CUDA_VISIBLE_DEVICES: '-1' } },
    ]);
  });

  it('contains seven GPUs when the eighth is lost', async () => {
    expect((await plan('eight-a100-lost')).sets).toHaveLength(7);
  });

  it.each<[Failure, Wish]>([
    ['driver-error', { choice: 'cpu' }],
    ['driver-error', { choice: ' cpu ' }],
    ['driver-error', hiding],
  ])('contains the CPU despite %s if no GPU is wanted (%j)', async (says, wish) => {
    const { sets, isNvidiaUnwanted } = await plan(says, wish);
    expect(sets).toMatchObject([{ devices: [{ kind: 'cpu' }] }]);
    expect(isNvidiaUnwanted).toBe(true);
  });
});

describe('the plan is refused', () => {
  it.each<[Answer | Failure, RegExp]>([
    ['driver-error', /NVIDIA-SMI has failed/],
    ['version-mismatch', /version mismatch/],
    ['garbage', /not its XML/],
    ['lost', /GPU is lost/],
  ])('when %s hides GPUs, with the remedy', async (says, text) => {
    const error = await refusal(says);
    expect(error.message).toMatch(text);
    expect(error.remedy).toMatch(/.; or run without GPUs \(--devices cpu\)$/);
  });

  it('when GPUs are hidden and some were chosen, with both reasons', async () => {
    const error = await refusal('driver-error', { choice: '0' });
    expect(error.message).toMatch(/device "0" not found.*: nvidia-smi says/);
    expect(error.remedy).toContain('modprobe nvidia');
  });

  it('when the environment names GPUs that a failing driver hides', async () => {
    expect((await refusal('driver-error', restricted)).message).toMatch(/has failed/);
  });

  it('when the environment allows too few devices, naming the variable', async () => {
    const error = await refusal('eight-a100', { ...restricted, perWorker: 4 });
    expect(error.message).toBe(
      'each worker needs 4 GPUs, only 2 are available; CUDA_VISIBLE_DEVICES=4,5 in the environment limits this worker to 2 of 8 devices',
    );
  });
});

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
  ])('reads %j as %j', (environment, left) => {
    expect(uuidsLeft(amd, environment)).toBe(left);
  });
});

describe('a note', () => {
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

  it('says that a device is listed twice', () => {
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

  it('says nothing if no variable restricts devices', () => {
    expect(notesOf([...four, ...amd], {})).toBe('');
    expect(notesOf([host], { CUDA_VISIBLE_DEVICES: '0' })).toBe('');
  });
});
