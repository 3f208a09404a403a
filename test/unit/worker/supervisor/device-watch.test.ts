// The watch over devices: a clock of the test's, workers that note what they are told, and the
// stand-in for nvidia-smi as a real program.

import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { createLog } from '../../../../src/base/log.ts';
import { type Detection, detectDevices } from '../../../../src/worker/gpu/detect.ts';
import { type DeviceSet, makeDeviceSets } from '../../../../src/worker/gpu/device-sets.ts';
import type { JobActivity } from '../../../../src/worker/gpu/memory-watch.ts';
import type { SmiReading } from '../../../../src/worker/gpu/nvidia-smi.ts';
import {
  DeviceWatch,
  type DeviceWatchOptions,
  type WatchedWorker,
} from '../../../../src/worker/supervisor/device-watch.ts';
import { type Answer, type Failure, standInFolder } from '../../../support/nvidia-smi/stand-in.ts';

const MIB = 2 ** 20;
/** Looks are the test's own, unless it is about the interval. */
const NEVER_MS = 2 ** 40;

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-watch-'));
  vi.stubEnv('NVIDIA_SMI_SAYS_FILE', join(folder, 'says'));
  vi.stubEnv('NVIDIA_SMI_PID', join(folder, 'pid'));
  vi.stubEnv('NVIDIA_SMI_CALLS', join(folder, 'calls'));
});

afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(folder, { recursive: true });
});

function say(words: Answer | Failure): Promise<void> {
  return writeFile(join(folder, 'says'), words);
}

class NotedWorker implements WatchedWorker {
  readonly set: DeviceSet;
  activity: JobActivity | undefined;
  readonly told: string[] = [];

  constructor(set: DeviceSet) {
    this.set = set;
  }

  quarantine(reason: string): void {
    this.told.push(`quarantine: ${reason}`);
  }

  readmit(): void {
    this.told.push('readmit');
  }

  recycle(reason: string): void {
    this.told.push(`recycle: ${reason}`);
  }
}

interface Scene extends Partial<DeviceWatchOptions> {
  perWorker?: number;
  choice?: string;
}

/** Workers on what the stand-in lists now, and the watch over them, not started. */
async function setUp(words: Answer | Failure, { perWorker = 1, choice, ...options }: Scene = {}) {
  await say(words);
  const detection: Detection = await detectDevices({
    searchPath: standInFolder,
    deviceFolder: folder,
  });
  const { devices, host } = detection;
  const { sets } = makeDeviceSets({ devices, host, perWorker, choice });
  const workers = sets.map((set) => new NotedWorker(set));
  const lines: Record<string, unknown>[] = [];
  const destination = new Writable({
    write(line, _, done) {
      lines.push(JSON.parse(String(line)));
      done();
    },
  });
  const clock = new ManualClock();
  const log = createLog({ level: 'info', destination });
  const policy = { probe: { baseMs: 30_000, maxMs: 60_000, jitter: 0 } };
  const base = { detection, workers, log, clock, policy, intervalMs: NEVER_MS };
  const watch = new DeviceWatch({ ...base, ...options });
  await rm(join(folder, 'pid'), { force: true });
  const told = () => workers.map((worker) => worker.told.map((each) => each.split(':')[0]).join());
  return { watch, workers, clock, lines, told, detection };
}

describe('a quarantine', () => {
  it('reaches only the worker whose GPU is lost', async () => {
    const { watch, workers, told } = await setUp('eight-a100', { perWorker: 2 });
    watch.start();
    await say('lost-beside');
    await watch.readNow();
    expect(told()).toEqual(['', 'quarantine', '', '']);
    expect(workers[1]?.told[0]).toBe(
      'quarantine: device 3: the driver has lost the GPU at 00000000:53:00.0',
    );
    watch.stop();
  });

  it('ends when every GPU of the set is readmitted', async () => {
    const { watch, clock, told } = await setUp('eight-a100', { perWorker: 4 });
    watch.start();
    await say('eight-a100-lost');
    await watch.readNow();
    await watch.readNow();
    expect(told()).toEqual(['quarantine', '']);
    await clock.advance(30_000);
    await say('eight-a100');
    await watch.readNow();
    expect(told()).toEqual(['quarantine,readmit', '']);
    watch.stop();
  });

  it('applies to all workers for a failing driver, and ends for all', async () => {
    const { watch, clock, told } = await setUp('eight-a100', { perWorker: 4 });
    watch.start();
    await say('driver-error');
    await watch.readNow();
    await watch.readNow();
    expect(told()).toEqual(['', '']);
    await watch.readNow();
    expect(told()).toEqual(['quarantine', 'quarantine']);
    await say('eight-a100');
    await clock.advance(30_000);
    await watch.readNow();
    expect(told()).toEqual(['quarantine,readmit', 'quarantine,readmit']);
    watch.stop();
  });

  it('starts before the first reading for a detected fault', async () => {
    const { watch, told } = await setUp('one-h200-ecc');
    expect(told()).toEqual(['']);
    watch.start();
    expect(told()).toEqual(['quarantine']);
    watch.stop();
    expect(await readFile(join(folder, 'calls'), 'utf8')).toBe('-q -x\n');
  });

  it.each<[Failure, string]>([
    ['garbage', 'quarantine'],
    ['killed', 'quarantine'],
    ['version-mismatch', ''],
  ])('for an nvidia-smi that returns "%s" for a long time: "%s"', async (words, expected) => {
    const { watch, told } = await setUp('one-h200');
    watch.start();
    await say(words);
    for (let look = 0; look < 4; look++) await watch.readNow();
    expect(told()).toEqual([expected]);
    watch.stop();
  });

  it('starts after the deadlines of an nvidia-smi that hangs', async () => {
    const { watch, clock, told } = await setUp('one-h200');
    watch.start();
    await say('hang');
    for (let look = 0; look < 3; look++) {
      const looking = watch.readNow();
      await waitForPid();
      await clock.advance(10_000);
      await looking;
    }
    expect(told()).toEqual(['quarantine']);
    watch.stop();
  });

  it('is logged with the device and the reason, as is its end', async () => {
    const { watch, clock, lines } = await setUp('one-h200');
    watch.start();
    await say('one-h200-ecc');
    await watch.readNow();
    await say('one-h200');
    await clock.advance(30_000);
    await watch.readNow();
    expect(lines).toMatchObject([
      {
        level: 40,
        device: '0',
        uuid: 'GPU-6f2d41c8-9a07-5be3-8c14-d3a0b7e95f21',
        from: 'healthy',
        to: 'quarantined',
        reason: expect.stringMatching(/\w/),
        probeAt: new Date(clock.now()).toISOString(),
      },
      { level: 30, from: 'quarantined', to: 'healthy' },
    ]);
    watch.stop();
  });

  it('affects no worker if its device has none', async () => {
    const { watch, lines, told } = await setUp('eight-a100', { choice: '0,1' });
    watch.start();
    await say('eight-a100-lost');
    await watch.readNow();
    expect(told()).toEqual(['', '']);
    expect(lines).toEqual([]);
    expect(watch.statuses).toHaveLength(2);
    watch.stop();
  });
});

describe('the watch', () => {
  it('reads at its interval, but not without nvidia-smi', async () => {
    const { watch, clock } = await setUp('one-h200', { intervalMs: 5_000 });
    watch.start();
    const countCalls = async () =>
      (await readFile(join(folder, 'calls'), 'utf8')).split('\n').length;
    const before = await countCalls();
    await clock.advance(5_000);
    await expect.poll(countCalls).toBe(before + 1);
    watch.stop();

    const bare = await setUp('driver-error');
    bare.watch.start();
    await bare.clock.advance(60_000);
    expect(bare.watch.statuses).toEqual([]);
    expect(bare.told()).toEqual(['']);
    bare.watch.stop();
  });

  it('kills a hanging nvidia-smi when it stops, and reports nothing', async () => {
    const { watch, clock, told, lines } = await setUp('one-h200');
    watch.start();
    await say('hang');
    const looking = watch.readNow();
    const pid = await waitForPid();
    expect(isAlive(pid)).toBe(true);
    watch.stop();
    await looking;
    await expect.poll(() => isAlive(pid)).toBe(false);
    await clock.advance(600_000);
    expect([told(), lines]).toEqual([[''], []]);
  });
});

describe('device memory', () => {
  /** One H200 whose use of memory the test sets; NaN: the reading fails. */
  async function watchMemory(options: Scene = {}) {
    const scene = { usedMib: 512 };
    let said: SmiReading | undefined;
    const read = async (): Promise<SmiReading> => {
      if (said?.kind !== 'report' || Number.isNaN(scene.usedMib)) throw new Error('no report');
      const [gpu] = said.report.gpus;
      const memory = { totalBytes: gpu?.memory.totalBytes, usedBytes: scene.usedMib * MIB };
      const gpus = said.report.gpus.map((each) => ({ ...each, memory }));
      return { ...said, report: { ...said.report, gpus } };
    };
    const built = await setUp('one-h200', { read, ...options });
    said = built.detection.reading;
    const [worker] = built.workers;
    if (!worker) throw new Error('no worker');
    built.watch.start();
    const look = async (usedMib: number, activity: JobActivity | undefined) => {
      scene.usedMib = usedMib;
      worker.activity = activity;
      await built.watch.readNow();
    };
    return { ...built, worker, look };
  }

  it('is logged as a warning with its bytes above the first reading, if no known process holds it', async () => {
    const { look, lines, watch } = await watchMemory();
    await look(4_608, undefined);
    await look(4_608, undefined);
    await look(600, undefined);
    expect(lines).toMatchObject([
      { level: 40, device: '0', heldBytes: 4_096 * MIB },
      { level: 30, msg: expect.stringContaining('free again') },
    ]);
    watch.stop();
  });

  it('is logged as one warning with figures if it grows from job to job', async () => {
    const { look, lines, worker, watch } = await watchMemory();
    for (let ended = 1; ended <= 8; ended++) {
      await look(1_000 + ended * 100, { incarnation: 7, running: 0, ended });
    }
    expect(lines).toMatchObject([
      { level: 40, jobs: 5, bytesPerJob: 100 * MIB, grownBytes: 500 * MIB },
    ]);
    expect(worker.told).toEqual([]);
    watch.stop();
  });

  it('replaces the process once if it grows above a limit', async () => {
    const { look, worker, watch } = await watchMemory({ vramGrowthLimitBytes: 250 * MIB });
    for (let ended = 1; ended <= 5; ended++) {
      await look(1_000 + ended * 100, { incarnation: 7, running: 0, ended });
    }
    expect(worker.told).toEqual([
      "recycle: memory in use on device 0 grew by 300 MiB since the process's first job",
    ]);
    watch.stop();
  });

  it('is not judged by an earlier reading', async () => {
    const { look, lines, watch } = await watchMemory();
    await look(4_608, { incarnation: 7, running: 1, ended: 0 });
    await look(Number.NaN, undefined);
    expect(lines).toMatchObject([{ to: 'suspect' }]);
    watch.stop();
  });
});

/** Of the nvidia-smi that was started last; the file is taken away for the next. */
async function waitForPid(): Promise<number> {
  const file = join(folder, 'pid');
  const read = () => readFile(file, 'utf8').catch(() => '');
  await expect.poll(read).toMatch(/\n$/);
  const pid = Number(await read());
  await rm(file);
  return pid;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
