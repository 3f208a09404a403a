// Two endpoints take turns on one GPU while processes are killed at random moments: every job completes, and no model is resumed
// without room. Then the ledger and the device agree, and the platform leaves no process. Runs with KILLS=n only: ten kills take about
// half a minute. SWITCHES=n goes on without kills until so many jobs have run.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { readCommandLine, readProcesses } from '../../../src/base/process/process-table.ts';
import { gpuTypeList } from '../../../src/wire/resources/catalog.ts';
import { LedgerFile } from '../../../src/worker/parking/ledger-file.ts';
import {
  compileDriver,
  leaveOutWithoutCompiler,
  removeDriver,
  StandInDevice,
} from '../../support/cuda/stand-in.ts';
import { sayingOf, standInFolder } from '../../support/nvidia-smi/stand-in.ts';
import { fixture, PlatformProcess } from '../../support/processes.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';
import { chooseSeed, createRandom } from '../../support/random.ts';

const isLeftOut = leaveOutWithoutCompiler('parked-kills') || leaveOutWithoutPython('parked-kills');
const KILLS = Number(process.env['KILLS'] ?? 0);
const SWITCHES = Number(process.env['SWITCHES'] ?? 0);
/** Command lines of model processes, helpers of the driver, and worker processes. */
const VICTIMS = [/tenant\.py/, /millrace_park\.py/, /--unsupervised/];

const created = z.object({ id: z.string() });
const record = z.looseObject({
  status: z.string(),
  output: z.looseObject({}).optional(),
});

let folder = '';

async function create(to: PlatformProcess, path: string, body: object): Promise<string> {
  return created.parse(await (await to.post(path, body)).json()).id;
}

/** A platform with two endpoints, whose models do not fit the GPU together. */
async function start(sizes: ConstructorParameters<typeof StandInDevice>[1]) {
  const device = new StandInDevice(folder, { totalMb: 1_500, ...sizes });
  const ledger = mkdtempSync(join(tmpdir(), 'millrace-ledger-'));
  onTestFinished(() => rmSync(ledger, { recursive: true }));
  const says = sayingOf('one-h200');
  const to = await PlatformProcess.start({
    endpoints: [],
    args: ['--engine', 'process'],
    env: { PATH: `${standInFolder}${delimiter}${process.env['PATH']}`, ...says },
  });
  onTestFinished(() => to.close());
  const { gpus } = gpuTypeList.parse(await (await to.fetch('/v2/catalog/gpus')).json());
  const { CUDA_STAND_IN = '', LD_LIBRARY_PATH = '' } = device.environment;
  const env = { ...says, CUDA_STAND_IN, LD_LIBRARY_PATH, MILLRACE_GPU_LEDGER: ledger };
  const template = { name: 'worker', image: 'none', handler: fixture('tenant.ts'), env };
  const templateId = await create(to, '/v1/templates', template);
  const gpuTypeIds = gpus.map(({ id }) => id);
  const shared = { templateId, gpuTypeIds, workersMax: 1, idleTimeout: 3_600, minResidenceMs: 0 };
  const chat = await create(to, '/v1/endpoints', { ...shared, name: 'chat' });
  const image = await create(to, '/v1/endpoints', { ...shared, name: 'image' });
  const submit = async (endpoint: string) => {
    const id = await create(to, `/v2/${endpoint}/run`, { input: {} });
    return async () => {
      for (;;) {
        const answer = await to.fetch(`/v2/${endpoint}/status/${id}`);
        const { output, status } = record.parse(await answer.json());
        if (output) return;
        expect(status).toMatch(/^IN_|^COMPLETED/);
        await sleep(20);
      }
    };
  };
  const removeAll = async () => {
    for (const id of [chat, image]) await to.fetch(`/v1/endpoints/${id}`, { method: 'DELETE' });
  };
  return { device, ledger, chat, image, submit, removeAll };
}

function describeLedger(folder: string): string[] {
  return new LedgerFile(folder)
    .list()
    .map(({ state }) => state)
    .sort();
}

/** Processes of this kind that the ledger's workers have started. */
function listVictims(ledger: string, kind: RegExp): number[] {
  const isTheirs = (pid: number) => {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'utf8').includes(ledger);
    } catch {
      // It has ended.
      return false;
    }
  };
  const pids = readProcesses().map(({ pid }) => pid);
  return pids.filter((pid) => kind.test(readCommandLine(pid)) && isTheirs(pid));
}

describe.skipIf(isLeftOut || KILLS === 0)('two endpoints on one GPU', () => {
  beforeAll(() => {
    folder = compileDriver();
  });
  afterAll(() => removeDriver(folder));

  it(`complete every job while ${KILLS} processes are killed`, {
    timeout: 60_000 + KILLS * 10_000 + SWITCHES * 3_000,
  }, async () => {
    const random = createRandom(chooseSeed());
    const { chat, device, image, ledger, removeAll, submit } = await start({
      speeds: [8_000, 8_000],
    });
    for (let kills = 0, ran = 0; kills < KILLS || ran < SWITCHES; ran += 2) {
      const jobs = [await submit(chat), await submit(image)];
      await sleep(kills < KILLS ? random() * 800 : 0);
      const victims = listVictims(ledger, VICTIMS[kills % VICTIMS.length] ?? /never/);
      const victim = victims[Math.floor(random() * victims.length)];
      if (victim !== undefined && kills < KILLS) {
        process.kill(victim, 'SIGKILL');
        kills += 1;
      }
      for (const isDone of jobs) await isDone();
      expect(device.tenants.filter(({ state }) => state === 'failed')).toEqual([]);
    }
    // A last turn of each: nothing fails any more.
    for (const endpoint of [chat, image, chat]) await (await submit(endpoint))();
    await expect.poll(() => describeLedger(ledger)).toEqual(['parked', 'resident']);
    expect(device.tenants.map(({ state }) => state).sort()).toEqual(['checkpointed', 'running']);
    await removeAll();
    await expect.poll(() => listVictims(ledger, /./)).toEqual([]);
  });
});
