// Two endpoints share one GPU, which a stand-in for nvidia-smi makes up: real platform, real workers, processes all of them.
import { delimiter } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { gpuTypeList } from '../../../src/wire/resources/catalog.ts';
import { decisionList } from '../../../src/wire/resources/scaling.ts';
import { sayingOf, standInFolder } from '../../support/nvidia-smi/stand-in.ts';
import { fixture, PlatformProcess } from '../../support/processes.ts';

const IDLE_TIMEOUT_S = 3_600;
const created = z.object({ id: z.string() });
const job = z.looseObject({ status: z.string() });

let platform: PlatformProcess | undefined;

afterEach(async () => {
  await platform?.close();
  platform = undefined;
});

async function start(): Promise<PlatformProcess> {
  const env = {
    PATH: `${standInFolder}${delimiter}${process.env['PATH']}`,
    ...sayingOf('one-h200'),
  };
  platform = await PlatformProcess.start({ endpoints: [], args: ['--engine', 'process'], env });
  return platform;
}

async function create(to: PlatformProcess, path: string, body: object): Promise<string> {
  return created.parse(await (await to.post(path, body)).json()).id;
}

async function untilDone(to: PlatformProcess, endpoint: string, id: string) {
  for (;;) {
    const answer = await to.fetch(`/v2/${endpoint}/status/${id}`);
    const record = job.parse(await answer.json());
    if (record.status === 'COMPLETED') return record;
    await sleep(20);
  }
}

it('the job of an endpoint gets the GPU of an idle worker of another one, not after its idle timeout', async () => {
  const to = await start();
  const { gpus } = gpuTypeList.parse(await (await to.fetch('/v2/catalog/gpus')).json());
  const env = sayingOf('one-h200');
  const template = { name: 'worker', image: 'none', handler: fixture('tagged.ts'), env };
  const templateId = await create(to, '/v1/templates', template);
  const shared = {
    ...{ templateId, gpuTypeIds: gpus.map(({ id }) => id), workersMax: 1 },
    ...{ idleTimeout: IDLE_TIMEOUT_S, minResidenceMs: 0 },
  };
  const [chat, image] = [
    await create(to, '/v1/endpoints', { ...shared, name: 'chat' }),
    await create(to, '/v1/endpoints', { ...shared, name: 'image' }),
  ];
  const input = { n: 1, ms: 0 };
  for (const endpoint of [chat, image, chat]) {
    const id = await create(to, `/v2/${endpoint}/run`, { input });
    await untilDone(to, endpoint, id);
  }
  const answer = await to.fetch(`/v1/endpoints/${image}/scaler?limit=100`);
  const { decisions } = decisionList.parse(await answer.json());
  const given = decisions.find(({ cause }) => cause === 'gives_way');
  expect(given?.reason).toContain('jobs of endpoint chat wait for a GPU');
  expect(given?.drain).toHaveLength(1);
});
