// A real model leaves this machine's GPU and comes back the same, by hooks and by the driver. Needs PyTorch with CUDA, and for the
// driver's way NVIDIA's driver 570.
import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ParkHelper, tryParking } from '../../src/process/park-helper.ts';
import { detectDevices } from '../../src/worker/gpu/detect.ts';
import { openModel } from '../support/models/model-stand.ts';

const CHECK = 'import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)';
const hasTorch = spawnSync('python3', ['-c', CHECK]).status === 0;
if (!hasTorch) console.log('parking.test.ts is left out: python3 has no PyTorch with CUDA');
const MODEL = resolve(import.meta.dirname, '../support/models/torch_park.py');
const GB = 2 ** 30;
/** NVML counts the driver's own memory, and a context's that hooks leave. */
const CONTEXT_BYTES = 2 * GB;

async function chooseDevice() {
  const { devices } = await detectDevices({
    nvidiaSmi: undefined,
    searchPath: process.env['PATH'] ?? '',
  });
  const uuid = devices.find(({ vendor }) => vendor === 'nvidia')?.device.uuid ?? '';
  const env = { ...process.env, CUDA_VISIBLE_DEVICES: uuid };
  return { uuid, env, helper: new ParkHelper(env) };
}

describe.skipIf(!hasTorch)('parking', { timeout: 300_000 }, () => {
  it('moves a gigabyte of a program off the GPU and back', async () => {
    const { env, uuid } = await chooseDevice();
    const { bytes, parkMs, wakeMs } = await tryParking(env, { bytes: GB, device: uuid });
    expect(bytes).toBeGreaterThanOrEqual(GB);
    console.log(`1 GB by the driver: ${parkMs} ms off the GPU, ${wakeMs} ms back`);
  });

  it.each(['hooks', 'driver'] as const)('keeps a model of 4 GB to the bit, by %s', async (way) => {
    const { helper, uuid } = await chooseDevice();
    const env = { CUDA_VISIBLE_DEVICES: uuid, PARK_BY: way, MODEL_GB: '4' };
    const { log, model } = await openModel({ args: [MODEL], env });
    try {
      const ask = () => model.call<{ digest: string; pid: number }>('work', null);
      const before = await ask();
      const { usedBytes } = await helper.readMemory(uuid);
      for (let cycle = 0; cycle < 3; cycle += 1) {
        expect((await model.park()).way).toBe(way);
        const left = usedBytes - (await helper.readMemory(uuid)).usedBytes;
        expect(left).toBeGreaterThan(4 * GB - (way === 'hooks' ? CONTEXT_BYTES : 0));
        expect((await model.wake()).way).toBe(way);
        expect(await ask()).toEqual(before);
      }
      const times = log.entries.flatMap(({ fields }) => Object.entries(fields));
      console.log(
        `4 GB by ${way}:`,
        times.filter(([name]) => /^(park|wake)Ms$/.test(name)),
      );
    } finally {
      await model.stop();
      helper.stop();
    }
  });

  it('frees the memory of a model that dies while it is parked, and starts it anew', async () => {
    const { helper, uuid } = await chooseDevice();
    const env = { CUDA_VISIBLE_DEVICES: uuid, PARK_BY: 'driver', MODEL_GB: '1' };
    const { model } = await openModel({ args: [MODEL], env });
    try {
      const { pid } = await model.call<{ pid: number }>('work', null);
      await model.park();
      process.kill(pid, 'SIGKILL');
      expect((await model.wake()).way).toBe('cold');
      expect((await model.call<{ pid: number }>('work', null)).pid).not.toBe(pid);
    } finally {
      await model.stop();
      helper.stop();
    }
  });
});
