// `millrace worker` on a machine of eight GPUs, which a stand-in for nvidia-smi makes up: each worker
// process is really pinned, and one whose GPU is lost gives back its job. All processes are real.
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { readProcess } from '../../../src/base/process/process-table.ts';
import { standInFolder } from '../../support/nvidia-smi/stand-in.ts';
import { PlatformProcess } from '../../support/processes.ts';

const ENDPOINT = 'pinned';
const GIB = 2 ** 30;

const viewSchema = z.object({
  pid: z.number(),
  devices: z.array(
    z.object({
      kind: z.literal('gpu'),
      index: z.number(),
      uuid: z.string(),
      name: z.string(),
      memoryBytes: z.number(),
      gpuTypeId: z.string().optional(),
    }),
  ),
  native: z.string(),
  nativeOfThread: z.null(),
  child: z.string(),
  parentOfChild: z.string(),
});
const recordSchema = z.looseObject({
  status: z.string(),
  attempt: z.number(),
  usage: z
    .object({ gpu: z.looseObject({ seconds: z.number(), energyJoules: z.number() }) })
    .optional(),
});
const jobRef = z.object({ id: z.string() });

let platform: PlatformProcess | undefined;

afterEach(async () => {
  await platform?.close();
  platform = undefined;
  vi.unstubAllEnvs();
});

/** The platform, and a supervisor of workers on eight GPUs; `says` can be changed. */
async function start(...args: string[]) {
  const started = await PlatformProcess.start({ endpoints: [ENDPOINT] });
  platform = started;
  const says = join(started.folder, 'says');
  await writeFile(says, 'eight-a100');
  vi.stubEnv('PATH', [standInFolder, process.env['PATH']].join(delimiter));
  vi.stubEnv('NVIDIA_SMI_SAYS_FILE', says);
  vi.stubEnv('NVIDIA_SMI_LOOPS', join(started.folder, 'loops'));
  vi.stubEnv('CUDA_VISIBLE_DEVICES', undefined);
  const supervisor = started.startWorker(ENDPOINT, 'pinned.ts', ...args);
  const views = join(started.folder, 'views');
  await mkdir(views);
  return { platform: started, supervisor, views, says };
}

async function submit(platform: PlatformProcess, folder: string): Promise<string> {
  const answer = await platform.post(`/v2/${ENDPOINT}/run`, { input: { folder } });
  return jobRef.parse(await answer.json()).id;
}

/** What the jobs said that have begun, once there are so many. */
async function readViews(folder: string, count: number) {
  for (;;) {
    const names = (await readdir(folder)).filter((name) => name.endsWith('.json')).sort();
    if (names.length >= count) {
      const texts = await Promise.all(names.map((name) => readFile(join(folder, name), 'utf8')));
      return texts.map((text, place) => ({
        name: names[place] ?? '',
        ...viewSchema.parse(JSON.parse(text)),
      }));
    }
    await sleep(50);
  }
}

/** The variable in the environment that the process was started with. */
async function readEnvironment(pid: number, name: string): Promise<string | undefined> {
  const entries = (await readFile(`/proc/${pid}/environ`, 'utf8')).split('\0');
  return entries.find((entry) => entry.startsWith(`${name}=`))?.slice(name.length + 1);
}

async function waitFor(platform: PlatformProcess, id: string | undefined, statuses: string[]) {
  for (;;) {
    const answer = await platform.fetch(`/v2/${ENDPOINT}/status/${id}`);
    const record = recordSchema.parse(await answer.json());
    if (statuses.includes(record.status)) return record;
    await sleep(50);
  }
}

describe('four worker processes of two GPUs each', () => {
  it('are pinned for native code, for their children and for handlers', async () => {
    const { platform, views } = await start(
      ...['--gpus-per-worker', '2', '--gpu-sample-ms', '100', '--gpu-type', 'a100'],
    );
    const ids = await Promise.all(Array.from({ length: 4 }, () => submit(platform, views)));
    // Each worker holds one job until all four have begun.
    const seen = await readViews(views, 4);
    seen.sort((one, other) => (one.devices[0]?.index ?? 0) - (other.devices[0]?.index ?? 0));

    expect(new Set(seen.map(({ pid }) => pid)).size).toBe(4);
    expect(seen.map(({ devices }) => devices.map(({ index }) => index))).toEqual([
      [0, 1],
      [2, 3],
      [4, 5],
      [6, 7],
    ]);
    for (const { pid, devices, native, child, parentOfChild } of seen) {
      const uuids = devices.map(({ uuid }) => uuid).join(',');
      expect(uuids).toMatch(/^GPU-a100000\d-\S+,GPU-a100000\d-\S+$/);
      expect({ native, child, parentOfChild }).toEqual({
        native: uuids,
        child: uuids,
        parentOfChild: uuids,
      });
      expect(await readEnvironment(pid, 'CUDA_VISIBLE_DEVICES')).toBe(uuids);
      expect(await readEnvironment(pid, 'NVIDIA_VISIBLE_DEVICES')).toBe(uuids);
      expect(await readEnvironment(pid, 'CUDA_DEVICE_ORDER')).toBe('PCI_BUS_ID');
      for (const device of devices) {
        expect(device).toMatchObject({
          ...{ name: 'NVIDIA A100-SXM4-80GB', memoryBytes: 80 * GIB, gpuTypeId: 'a100' },
        });
      }
    }

    // Until each process has had a sample.
    await sleep(3_000);
    await writeFile(join(views, 'go'), '');
    for (const id of ids) {
      const { usage } = await waitFor(platform, id, ['COMPLETED']);
      expect(usage).toEqual({
        gpu: {
          seconds: expect.any(Number),
          ...{ vramPeakBytes: 2_000 * 2 ** 20, vramMeanBytes: 2_000 * 2 ** 20 },
          ...{ vramScope: 'devices', utilizationMean: 0.5, shared: false },
          energyJoules: expect.any(Number),
        },
      });
      // Two devices of 300 W each.
      expect(usage?.gpu.energyJoules).toBeCloseTo(300 * (usage?.gpu.seconds ?? 0), 0);
    }
  });
});

describe('a worker without a supervisor', () => {
  it('samples its GPUs itself, until it exits', async () => {
    const {
      platform,
      supervisor: worker,
      views,
    } = await start(...['--unsupervised', '--gpu-sample-ms', '100']);
    const loops = join(platform.folder, 'loops');
    const id = await submit(platform, views);
    await expect.poll(() => readdir(views), { timeout: 30_000 }).toHaveLength(1);
    // Until it has had a sample.
    await sleep(3_000);
    await writeFile(join(views, 'go'), '');
    const { usage } = await waitFor(platform, id, ['COMPLETED']);
    expect(usage?.gpu).toMatchObject({ vramPeakBytes: 8_000 * 2 ** 20, utilizationMean: 0.5 });
    expect(usage?.gpu.energyJoules).toBeCloseTo(300 * (usage?.gpu.seconds ?? 0), 0);
    const pids = (await readFile(loops, 'utf8')).trim().split('\n').map(Number.parseFloat);
    expect(pids).toHaveLength(2);
    expect(await worker.end('SIGTERM')).toBe(0);
    for (const pid of pids) await expect.poll(() => readProcess(pid)?.isDead ?? true).toBe(true);
  });
});

describe('a worker process whose GPU is lost', () => {
  it('releases its job, which runs on the other GPU, and the supervisor continues', async () => {
    const { platform, supervisor, views, says } = await start(
      ...['--devices', '3,4', '--worker-id', 'gpu', '--health-port', '0'],
    );
    const ids = [await submit(platform, views), await submit(platform, views)];
    const before = await readViews(views, 2);
    const bereaved = before.find(({ devices }) => devices[0]?.index === 3);
    const lostJob = ids.find((id) => bereaved?.name === `${id}-1.json`);
    await writeFile(says, 'eight-a100-lost');
    await supervisor.find(/device quarantined/);
    await waitFor(platform, lostJob, ['IN_QUEUE']);
    const port = await supervisor.find(/"port":(\d+),"msg":"health port listening"/);
    const readiness = await fetch(`http://127.0.0.1:${port}/readyz`);
    expect(readiness.status).toBe(200);
    expect(await readiness.json()).toMatchObject({ degraded: expect.stringMatching(/^gpu-0: /) });
    await writeFile(join(views, 'go'), '');
    for (const id of ids) await waitFor(platform, id, ['COMPLETED']);
    const after = await readViews(views, 3);
    const again = after.find(({ name }) => name === `${lostJob}-2.json`);
    expect(again?.devices.map(({ index }) => index)).toEqual([4]);
    expect(await supervisor.end('SIGTERM')).toBe(0);
  });
});
