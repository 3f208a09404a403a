// The conformance suite for GPU detection, for real machines and for machines simulated by the nvidia-smi
// stand-in.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { Registry } from 'prom-client';
import { beforeAll, describe, expect, it } from 'vitest';
import { silentLog } from '../../src/base/log.ts';
import { type Detection, detectDevices, type FoundDevice } from '../../src/worker/gpu/detect.ts';
import { type Environment, planDevices } from '../../src/worker/gpu/device-plan.ts';
import type { DeviceSet } from '../../src/worker/gpu/device-sets.ts';
import { DeviceWatch } from '../../src/worker/supervisor/device-watch.ts';
import { registerDeviceMetrics } from '../../src/worker/supervisor/fleet-metrics.ts';

export interface Machine {
  /** The PATH that contains nvidia-smi. */
  searchPath: string;
}

const run = promisify(execFile);

export function describeDevices(name: string, openMachine: () => Machine): void {
  describe(`the devices of ${name}`, () => {
    let searchPath: string;
    let detection: Detection;
    let gpus: FoundDevice[];

    beforeAll(async () => {
      searchPath = openMachine().searchPath;
      detection = await detectDevices({ searchPath });
      gpus = detection.devices.filter(({ vendor }) => vendor === 'nvidia');
    });

    const plan = (environment: Environment = {}) => {
      const only = { ...detection, devices: gpus };
      return planDevices({ detection: only, perWorker: 1, choice: undefined, environment });
    };

    it('are found, each with its UUID, name and memory', () => {
      expect(detection.nvidia).toMatchObject({
        kind: 'working',
        driverVersion: expect.stringMatching(/^\d+\.\d+/),
      });
      expect(gpus.length).toBeGreaterThan(0);
      for (const { device } of gpus) {
        expect(device.uuid).toMatch(/^(?:GPU|MIG)-[0-9a-f-]{36}$/);
        expect(device.name).not.toBe('');
        expect(device.memoryBytes).toBeGreaterThan(2 ** 30);
      }
      const uuids = gpus.map(({ device }) => device.uuid);
      expect(new Set(uuids).size).toBe(gpus.length);
    });

    it('are those that nvidia-smi lists in its other form, under the same numbers', async () => {
      const { nvidia } = detection;
      if (nvidia.kind !== 'working') throw new Error('nvidia-smi does not work');
      const { stdout } = await run(nvidia.command, ['-L']);
      const listed = [...stdout.matchAll(/^GPU (\d+): .*\(UUID: (GPU-[^)]+)\)/gm)];
      const indices = new Map(listed.map(([, index, uuid = '']) => [uuid, Number(index)]));
      const parents = gpus.map(({ device, mig }) => mig?.parentUuid ?? device.uuid);
      expect(parents.map((uuid) => indices.get(uuid))).toEqual(
        gpus.map(({ device }) => device.index),
      );
      expect([...indices.keys()].sort()).toEqual([...new Set(parents)].sort());
    });

    it('are each one worker’s, and really in the environment of its process', async () => {
      const { sets } = plan();
      expect(sets.map(({ devices }) => devices.map(({ uuid }) => uuid))).toEqual(
        gpus.map(({ device }) => [device.uuid]),
      );
      for (const set of sets) {
        const entries = await readEnvironment(set);
        expect(entries).toContain(`CUDA_VISIBLE_DEVICES=${set.devices[0]?.uuid}`);
        expect(entries).toContain(`NVIDIA_VISIBLE_DEVICES=${set.devices[0]?.uuid}`);
        expect(entries).toContain('CUDA_DEVICE_ORDER=PCI_BUS_ID');
      }
    });

    it('can be restricted by the environment, and hidden by it', () => {
      const uuid = gpus.at(-1)?.device.uuid;
      const { sets } = plan({ CUDA_VISIBLE_DEVICES: uuid });
      expect(sets.map(({ devices }) => devices[0]?.uuid)).toEqual([uuid]);
      const hidden = plan({ CUDA_VISIBLE_DEVICES: '-1' });
      expect(hidden.sets).toMatchObject([
        { devices: [{ kind: 'cpu' }], environment: { CUDA_VISIBLE_DEVICES: '-1' } },
      ]);
    });

    it('are read again and again, with figures that can be, and none is out of service', async () => {
      const told: string[] = [];
      const workers = plan().sets.map((set) => ({
        set,
        activity: undefined,
        quarantine: (reason: string) => told.push(reason),
        readmit: () => told.push('readmitted'),
        recycle: (reason: string) => told.push(reason),
      }));
      const watch = new DeviceWatch({ detection, workers, log: silentLog });
      watch.start();
      await watch.readNow();
      await watch.readNow();
      watch.stop();
      expect(told).toEqual([]);
      expect(watch.statuses).toHaveLength(gpus.length);
      for (const {
        isCurrent,
        found,
        memory,
        utilization = 0,
        temperatureC = 20,
      } of watch.statuses) {
        expect(isCurrent).toBe(true);
        expect(memory.totalBytes).toBe(found.device.memoryBytes);
        expect(memory.usedBytes).toBeGreaterThanOrEqual(0);
        expect(memory.usedBytes).toBeLessThanOrEqual(found.device.memoryBytes);
        expect(utilization >= 0 && utilization <= 100).toBe(true);
        expect(temperatureC > 0 && temperatureC < 120).toBe(true);
      }
      const registry = new Registry();
      registerDeviceMetrics(registry)(watch.statuses);
      const text = await registry.metrics();
      for (const { device } of gpus) {
        expect(text).toMatch(
          new RegExp(`millrace_device_memory_used_bytes\\{.*uuid="${device.uuid}".*\\} \\d+`),
        );
      }
    });
  });
}

/** Reads the environment from /proc of a process started with the environment of this set. */
async function readEnvironment({ environment }: DeviceSet): Promise<string[]> {
  const env = { ...process.env, ...environment };
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1e9)'], { env });
  try {
    await once(child, 'spawn');
    return (await readFile(`/proc/${child.pid}/environ`, 'utf8')).split('\0');
  } finally {
    const exited = once(child, 'exit');
    child.kill('SIGKILL');
    await exited;
  }
}
