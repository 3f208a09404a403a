// Two endpoints take turns on one GPU: their models are parked and woken, not ended. Real platform, workers and model processes;
// stand-ins for nvidia-smi and the driver.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { gpuTypeList } from '../../../src/wire/resources/catalog.ts';
import {
  compileDriver,
  leaveOutWithoutCompiler,
  removeDriver,
  StandInDevice,
} from '../../support/cuda/stand-in.ts';
import { sayingOf, standInFolder } from '../../support/nvidia-smi/stand-in.ts';
import { fixture, PlatformProcess } from '../../support/processes.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';

const isLeftOut = leaveOutWithoutCompiler('parked-turns') || leaveOutWithoutPython('parked-turns');

const created = z.object({ id: z.string() });
const record = z.looseObject({
  status: z.string(),
  attempt: z.number(),
  output: z.object({ pid: z.number(), sum: z.number() }).optional(),
});

let folder = '';

async function create(to: PlatformProcess, path: string, body: object): Promise<string> {
  return created.parse(await (await to.post(path, body)).json()).id;
}

async function runJob(to: PlatformProcess, endpoint: string) {
  const id = await create(to, `/v2/${endpoint}/run`, { input: {} });
  for (;;) {
    const answer = record.parse(await (await to.fetch(`/v2/${endpoint}/status/${id}`)).json());
    if (answer.output) return { ...answer.output, attempt: answer.attempt };
    expect(answer.status).toMatch(/^IN_|^COMPLETED/);
    await sleep(20);
  }
}

describe.skipIf(isLeftOut)('two endpoints on one GPU', () => {
  beforeAll(() => {
    folder = compileDriver();
  });
  afterAll(() => removeDriver(folder));

  it('park each other’s models, and find them as they were', async () => {
    const device = new StandInDevice(folder, { totalMb: 1_500 });
    const ledger = mkdtempSync(join(tmpdir(), 'millrace-ledger-'));
    onTestFinished(() => rmSync(ledger, { recursive: true }));
    const says = sayingOf('one-h200');
    const path = `${standInFolder}${delimiter}${process.env['PATH']}`;
    const to = await PlatformProcess.start({
      endpoints: [],
      args: ['--engine', 'process'],
      env: { PATH: path, ...says },
    });
    onTestFinished(() => to.close());
    const { gpus } = gpuTypeList.parse(await (await to.fetch('/v2/catalog/gpus')).json());
    const { CUDA_STAND_IN = '', LD_LIBRARY_PATH = '' } = device.environment;
    const env = { ...says, CUDA_STAND_IN, LD_LIBRARY_PATH, MILLRACE_GPU_LEDGER: ledger };
    const template = { name: 'worker', image: 'none', handler: fixture('tenant.ts'), env };
    const templateId = await create(to, '/v1/templates', template);
    const gpuTypeIds = gpus.map(({ id }) => id);
    const shared = { templateId, gpuTypeIds, workersMax: 1, idleTimeout: 3_600, minResidenceMs: 0 };
    const names = ['chat', 'image'];
    const endpoints = [];
    for (const name of names)
      endpoints.push(await create(to, '/v1/endpoints', { ...shared, name }));
    const [chat = '', image = ''] = endpoints;

    const first = { chat: await runJob(to, chat), image: await runJob(to, image) };
    expect(device.tenants.map(({ state }) => state).sort()).toEqual(['checkpointed', 'running']);
    for (let turn = 1; turn <= 3; turn += 1) {
      expect(await runJob(to, chat)).toEqual(first.chat);
      expect(await runJob(to, image)).toEqual(first.image);
    }
    // A parked model that is killed starts anew; its job does not notice.
    process.kill(first.chat.pid, 'SIGKILL');
    const anew = await runJob(to, chat);
    expect(anew).toMatchObject({ sum: first.chat.sum, attempt: 1 });
    expect(anew.pid).not.toBe(first.chat.pid);
  });
});
