// Two `millrace worker` take turns on one GPU, which a stand-in for the driver makes up: a platform that this test plays parks
// and wakes them. All processes are real.
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { readProcess } from '../../../src/base/process/process-table.ts';
import {
  compileDriver,
  leaveOutWithoutCompiler,
  removeDriver,
  StandInDevice,
} from '../../support/cuda/stand-in.ts';
import { sayingOf, standIn } from '../../support/nvidia-smi/stand-in.ts';
import { fixture, Process } from '../../support/processes.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';

const isLeftOut =
  leaveOutWithoutCompiler('parked-workers') || leaveOutWithoutPython('parked-workers');

const renewSchema = z.object({
  workerId: z.string(),
  incarnation: z.number(),
  waitMs: z.number(),
  parking: z.object({ state: z.string(), change: z.number(), vramBytes: z.number() }).optional(),
});
type Parking = NonNullable<z.infer<typeof renewSchema>['parking']>;

/** The memory in use of the stand-in device; everything else as the stand-in says. */
const NVIDIA_SMI = `#!/usr/bin/env python3
import ctypes, os, sys
if not sys.argv[1].startswith("--query-gpu=uuid,memory.total") or any("loop" in each for each in sys.argv):
    os.execv("${standIn}", ["nvidia-smi", *sys.argv[1:]])
class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]
memory, device = Memory(), ctypes.c_void_p()
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.nvmlDeviceGetHandleByUUID(b"GPU-1", ctypes.byref(device))
nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))
print(f"{os.environ['CUDA_VISIBLE_DEVICES']}, {memory.total // 2**20}, {memory.used // 2**20}")
`;

/** Answers workers' calls; there are no jobs. */
class PlayedPlatform {
  readonly wishes = new Map<string, 'parked' | 'ready'>();
  readonly incarnations = new Map<string, number>();
  /** State that each worker has last said, since its last hello. */
  readonly parking = new Map<string, Parking>();
  readonly #server = createServer((request, response) => {
    let text = '';
    request.on('data', (bytes) => {
      text += bytes;
    });
    request.on('end', () => {
      const answer = this.#answer(request.url ?? '', text);
      const send = () => {
        response.writeHead(answer ? 200 : 204, { 'content-type': 'application/json' });
        response.end(answer && JSON.stringify(answer.body));
      };
      setTimeout(send, answer?.afterMs ?? 200);
    });
  });

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    const { port } = this.#server.address() as AddressInfo;
    return `http://127.0.0.1:${port}`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #answer(url: string, text: string): { body: object; afterMs: number } | undefined {
    if (url.endsWith('/hello')) {
      const terms = { leaseMs: 15_000, renewEveryMs: 1_000, takeWaitMs: 1_000 };
      return { body: { protocol: 1, capabilities: [], ...terms }, afterMs: 0 };
    }
    if (url.endsWith('/bye')) return { body: {}, afterMs: 0 };
    if (!url.endsWith('/renew')) return undefined;
    const { incarnation, parking, waitMs, workerId } = renewSchema.parse(JSON.parse(text));
    if (this.incarnations.get(workerId) !== incarnation) this.parking.delete(workerId);
    this.incarnations.set(workerId, incarnation);
    const known = this.parking.get(workerId);
    if (parking && (!known || parking.change >= known.change)) this.parking.set(workerId, parking);
    const wish = this.wishes.get(workerId);
    const body = { ended: [], drain: false, ...(parking && wish && { parking: wish }) };
    return { body, afterMs: Math.min(waitMs, 50) };
  }

  /** Resolves when the worker is in the state. */
  async until(workerId: string, state: string): Promise<Parking> {
    const find = () => this.parking.get(workerId);
    await expect.poll(() => find()?.state ?? 'unknown').toBe(state);
    return find() as Parking;
  }
}

let folder = '';

describe.skipIf(isLeftOut)('workers of one GPU', () => {
  beforeAll(() => {
    folder = compileDriver();
  });
  afterAll(() => removeDriver(folder));

  it('take turns, wait for room, and outlive a kill', async () => {
    const device = new StandInDevice(folder, { totalMb: 2_000 });
    const place = mkdtempSync(join(tmpdir(), 'millrace-parked-'));
    writeFileSync(join(place, 'nvidia-smi'), NVIDIA_SMI);
    chmodSync(join(place, 'nvidia-smi'), 0o755);
    const platform = new PlayedPlatform();
    const url = await platform.listen();
    const env = {
      ...device.environment,
      ...sayingOf('one-h200'),
      CUDA_VISIBLE_DEVICES: '0',
      PATH: [place, process.env['PATH']].join(delimiter),
    };
    const start = (workerId: string) => {
      const where = ['--url', url, '--endpoint', 'e', '--key', `mrw_${'k'.repeat(40)}`];
      const own = ['--worker-id', workerId, '--gpu-ledger', join(place, 'ledger')];
      const worker = new Process(['worker', fixture('tenant.ts'), ...where, ...own], { env });
      onTestFinished(async () => {
        worker.kill();
        await worker.exited;
      });
      return worker;
    };
    onTestFinished(() => {
      platform.close();
      rmSync(place, { recursive: true });
    });

    const a = start('a');
    await platform.until('a', 'ready');
    platform.wishes.set('a', 'parked');
    expect((await platform.until('a', 'parked')).vramBytes).toBe(1_024 * 2 ** 20);
    expect(device.tenants.map(({ state }) => state)).toEqual(['checkpointed']);
    expect(a.output).toContain('model process parked');

    const b = start('b');
    await platform.until('b', 'ready');
    // The platform is too early: the GPU is the other one's.
    platform.wishes.set('a', 'ready');
    await a.find(/too little free memory on the GPU, waiting/);
    expect(platform.parking.get('a')?.state).toBe('waking');
    platform.wishes.set('b', 'parked');
    await platform.until('b', 'parked');
    await platform.until('a', 'ready');
    expect(device.tenants.map(({ state }) => state).sort()).toEqual(['checkpointed', 'running']);

    // A worker that is killed while it is parked starts anew, on a GPU that has room again.
    const before = platform.incarnations.get('b') ?? 0;
    platform.wishes.set('a', 'parked');
    await platform.until('a', 'parked');
    platform.wishes.delete('b');
    const parked = Number(/"pid":(\d+),"way":"driver"/.exec(b.output)?.[1]);
    expect(device.tenants.map(({ pid }) => pid)).toContain(parked);
    process.kill(parked, 'SIGKILL');
    platform.wishes.set('b', 'ready');
    await platform.until('b', 'ready');
    expect(platform.incarnations.get('b')).toBe(before);
    expect(device.tenants.filter(({ state }) => state === 'running')).toHaveLength(1);
    expect(device.tenants.map(({ pid }) => pid)).not.toContain(parked);

    // A worker that is killed while it is parked has no successor: its GPU may be another worker's.
    platform.wishes.set('b', 'parked');
    await platform.until('b', 'parked');
    const model = Number([...b.output.matchAll(/"pid":(\d+),"way":"driver"/g)].at(-1)?.[1]);
    const worker = readProcess(model)?.parentPid ?? 0;
    process.kill(worker, 'SIGKILL');
    expect(await b.exited).toBe(0);
    await expect.poll(() => device.tenants.map(({ pid }) => pid)).not.toContain(model);
  });
});
