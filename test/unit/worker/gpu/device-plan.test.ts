// From detection to device sets, on machines that a stand-in for nvidia-smi makes up.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { detectDevices } from '../../../../src/worker/gpu/detect.ts';
import { type DevicePlanRequest, planDevices } from '../../../../src/worker/gpu/device-plan.ts';
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
