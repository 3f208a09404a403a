// An urgent job takes the only GPU from a job that runs: real platform, workers and model processes, on stand-ins for nvidia-smi and
// for the driver, whose device has room for one model.
import { delimiter } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
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
import { until } from '../../support/until.ts';

const isLeftOut = leaveOutWithoutCompiler('preemption') || leaveOutWithoutPython('preemption');
const created = z.object({ id: z.string() });
const record = z.looseObject({
  status: z.string(),
  attempt: z.number(),
  executionTime: z.number(),
  suspendedSince: z.number().optional(),
  output: z.unknown().optional(),
  usage: z.looseObject({ gpu: z.looseObject({ seconds: z.number() }) }).optional(),
});
const details = z.looseObject({
  timeline: z.array(z.looseObject({ event: z.string(), waitedMs: z.number().optional() })),
});

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

const submit = (endpoint: string, input: object, policy: object = {}) =>
  create(`/v2/${endpoint}/run`, { input, policy });

async function read(endpoint: string, id: string) {
  return record.parse(await (await platform.fetch(`/v2/${endpoint}/status/${id}`)).json());
}

async function readEnd(endpoint: string, id: string) {
  await until(async () => {
    const { status } = await read(endpoint, id);
    expect(['IN_QUEUE', 'IN_PROGRESS', 'COMPLETED']).toContain(status);
    return status === 'COMPLETED';
  });
  return read(endpoint, id);
}

const STEPS = 1_000;

/** As the model computes it. */
function compute(steps: number): number {
  let value = 1;
  for (let step = 0; step < steps; step++) value = (value * 31 + step) % 1_000_003;
  return value;
}

it.skipIf(isLeftOut)('a suspended job goes on where it was, to the same result', async () => {
  const device = new StandInDevice(driver, { totalMb: 1_500 });
  const { CUDA_VISIBLE_DEVICES: _, ...onDevice } = device.environment;
  const env = { ...onDevice, ...sayingOf('one-h200') };
  const template = { name: 'model', image: 'none', handler: fixture('resident.ts'), env };
  const templateId = await create('/v1/templates', template);
  const { gpus } = gpuTypeList.parse(await (await platform.fetch('/v2/catalog/gpus')).json());
  const gpuTypeIds = gpus.map(({ id }) => id);
  const shared = { templateId, gpuTypeIds, workersMax: 1, idleTimeout: 3_600 };
  const batch = await create('/v1/endpoints', { ...shared, name: 'batch', preemptible: true });
  const chat = await create('/v1/endpoints', { ...shared, name: 'chat', preemptAbovePriority: 3 });

  const long = await submit(batch, { steps: STEPS, ms: 3 });
  await until(async () => (await read(batch, long)).status === 'IN_PROGRESS');
  const urgent = await submit(chat, { steps: 10 }, { priority: 9 });
  const first = await readEnd(chat, urgent);
  expect(first.output).toMatchObject({ value: compute(10) });
  expect(await read(batch, long)).toMatchObject({ status: 'IN_PROGRESS', attempt: 1 });
  expect(device.tenants.map(({ state }) => state)).toContain('checkpointed');

  const last = await readEnd(batch, long);
  expect(last).toMatchObject({ attempt: 1, output: { value: compute(STEPS) } });
  const about = await platform.fetch(`/v2/${batch}/jobs/${long}`);
  const { timeline } = details.parse(await about.json());
  const [gone, back, ...more] = timeline.filter(({ event }) => /suspended|resumed/.test(event));
  expect([gone?.event, back?.event, more]).toEqual(['suspended', 'resumed', []]);
  // The wait for the start of the other worker is not its time.
  const [started, ended] = ['started', 'ended'].map((name) =>
    timeline.find(({ event }) => event === name),
  );
  const wholeMs = Number(ended?.['at']) - Number(started?.['at']);
  const waitedMs = back?.waitedMs ?? 0;
  expect(waitedMs).toBeGreaterThan(0);
  expect(last.executionTime).toBeLessThanOrEqual(wholeMs - waitedMs + 500);
  expect(last.usage?.gpu.seconds).toBeLessThanOrEqual((wholeMs - waitedMs) / 1_000 + 0.5);
});
