// Two endpoints take turns on one GPU without ending their models: real platform, workers and model processes, on stand-ins for
// nvidia-smi and for the driver, whose device has room for one model.
import { delimiter } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { gpuTypeList } from '../../../src/wire/resources/catalog.ts';
import { podList } from '../../../src/wire/resources/pod.ts';
import {
  compileDriver,
  leaveOutWithoutCompiler,
  removeDriver,
  StandInDevice,
} from '../../support/cuda/stand-in.ts';
import { sayingOf, standInFolder } from '../../support/nvidia-smi/stand-in.ts';
import { fixture, PlatformProcess } from '../../support/processes.ts';
import { leaveOutWithoutPython } from '../../support/python.ts';
import { until } from '../../support/until.ts';

const isLeftOut = leaveOutWithoutCompiler('parking') || leaveOutWithoutPython('parking');
const created = z.object({ id: z.string() });
const job = z.looseObject({
  status: z.string(),
  attempt: z.number(),
  output: z.looseObject({ sum: z.number(), pid: z.number() }).optional(),
});
const SUM = (7 * 999 * 1_000) / 2;

let driver = '';
let platform: PlatformProcess;

beforeAll(async () => {
  if (isLeftOut) return;
  driver = compileDriver();
  const env = {
    PATH: `${standInFolder}${delimiter}${process.env['PATH']}`,
    ...sayingOf('one-h200'),
  };
  platform = await PlatformProcess.start({ endpoints: [], args: ['--engine', 'process'], env });
});

afterAll(async () => {
  if (isLeftOut) return;
  await platform.close();
  removeDriver(driver);
});

async function create(path: string, body: object): Promise<string> {
  return created.parse(await (await platform.post(path, body)).json()).id;
}

/** Returns the ID of the model process that answered. */
async function runJob(endpoint: string): Promise<number> {
  const id = await create(`/v2/${endpoint}/run`, { input: {} });
  let pid = 0;
  await until(async () => {
    const answer = await platform.fetch(`/v2/${endpoint}/status/${id}`);
    const { attempt, output, status } = job.parse(await answer.json());
    expect(status).not.toBe('FAILED');
    if (status !== 'COMPLETED') return false;
    expect({ attempt, sum: output?.sum }).toEqual({ attempt: 1, sum: SUM });
    pid = output?.pid ?? 0;
    return true;
  });
  return pid;
}

/** A worker that gives way before it has found a way to park its model ends. */
async function startModel(endpoint: string): Promise<number> {
  const pid = await runJob(endpoint);
  await until(async () => {
    const { pods } = podList.parse(await (await platform.fetch('/v2/pods')).json());
    const pod = pods.find((each) => each.endpointId === endpoint && each.status === 'RUNNING');
    const log = await (await platform.fetch(`/v2/pods/${pod?.id}/logs`)).text();
    return log.includes('worker can be parked');
  });
  return pid;
}

it.skipIf(isLeftOut)('two models take turns on one GPU, and keep their processes', async () => {
  const device = new StandInDevice(driver, { totalMb: 1_500 });
  const { CUDA_VISIBLE_DEVICES: _, ...onDevice } = device.environment;
  const env = { ...onDevice, ...sayingOf('one-h200') };
  const template = { name: 'model', image: 'none', handler: fixture('resident.ts'), env };
  const templateId = await create('/v1/templates', template);
  const { gpus } = gpuTypeList.parse(await (await platform.fetch('/v2/catalog/gpus')).json());
  const gpuTypeIds = gpus.map(({ id }) => id);
  const shared = { templateId, gpuTypeIds, workersMax: 1, idleTimeout: 3_600, minResidenceMs: 0 };
  const chat = await create('/v1/endpoints', { ...shared, name: 'chat', spareWorkers: 1 });
  // A spare worker is parked before the first job, which wakes it.
  await until(() => device.tenants.some(({ state }) => state === 'checkpointed'));
  const [spare] = device.tenants;
  const image = await create('/v1/endpoints', { ...shared, name: 'image' });
  const first = [await runJob(chat), await startModel(image)];
  expect(first[0]).toBe(spare?.pid);
  for (let turn = 0; turn < 3; turn++) {
    expect([await runJob(chat), await runJob(image)]).toEqual(first);
    expect(device.tenants.map(({ state }) => state).sort()).toEqual(['checkpointed', 'running']);
  }
  const { pods } = podList.parse(await (await platform.fetch('/v2/pods')).json());
  const parked = pods.find((pod) => pod.parked);
  expect(parked).toMatchObject({ endpointId: chat, status: 'RUNNING', cost: 0 });
  expect(parked?.parked?.bytes).toBe(1_024 * 2 ** 20);
  const [started, ...moves] = parked?.timeline ?? [];
  expect(started?.parts?.importMs).toBeGreaterThan(0);
  expect(moves.slice(-2)).toMatchObject([
    { event: 'parking' },
    { event: 'parked', bytes: 1_024 * 2 ** 20, way: 'driver' },
  ]);

  // The platform is killed, and finds the parked worker as it was.
  await platform.kill();
  await platform.restart();
  expect(await runJob(chat)).toBe(first[0]);
  expect(await runJob(image)).toBe(first[1]);

  // A parked model that is killed starts anew, and its job waits in its place.
  const [victim] = first;
  if (victim !== undefined) process.kill(victim, 'SIGKILL');
  expect(await runJob(chat)).not.toBe(victim);
});
