// The metrics of pods and GPUs: what scrapes of a real platform show of pods on an engine in memory.
import { Registry } from 'prom-client';
import { expect, it, onTestFinished } from 'vitest';
import { registerPodMetrics } from '../../../../src/api/metrics/pod-metrics.ts';
import { catalogFile } from '../../../../src/control/endpoints/catalog-contents.ts';
import { type Platform, startPlatform } from '../../../support/api/platform.ts';
import { makeGpus } from '../../../support/containers/gpus.ts';
import { createCatalog, GPU, PodWorld } from '../../../support/containers/pod-world.ts';

async function openWorld(gpus: string[] = []) {
  const world = await PodWorld.open({ catalog: createCatalog(gpus) });
  onTestFinished(() => world.close());
  return world;
}

async function readSeries({ call }: Platform, name: string): Promise<string[]> {
  const text = await (await call('/metrics')).text();
  return text.split('\n').filter((line) => line.startsWith(`${name}{`));
}

it('pods are counted by endpoint and status', async () => {
  const world = await openWorld();
  const platform = await startPlatform({ engine: 'process', server: { pods: world.pods } });
  const readAll = () => readSeries(platform, 'millrace_pods');
  const read = async () => (await readAll()).filter((line) => !line.endsWith(' 0'));
  const series = (endpoint: string, status: string, count: number) =>
    `millrace_pods{endpoint="${endpoint}",status="${status}"} ${count}`;
  expect(await read()).toEqual([]);
  // A dashboard shows 0 instead of "no data".
  expect(await readAll()).toHaveLength(6);

  const first = await world.create();
  await world.create();
  const worker = await world.createWorker();
  await world.settle();
  expect(await read()).toEqual([series('', 'RUNNING', 2), series('ep_1', 'RUNNING', 1)]);
  await world.pods.act('owner', first.id, 'stop');
  await world.pods.endWorker(worker.id);
  await world.settle(60_000);
  expect(await read()).toEqual([series('', 'RUNNING', 1), series('', 'EXITED', 1)]);
});

it('GPUs are counted by type as free, allocated, and missing from all machines', async () => {
  const lost = `${GPU}-9`;
  const world = await openWorld([lost, `${GPU}-0`]);
  const file = catalogFile.parse({
    gpus: [
      { id: GPU, price: 1, match: GPU },
      { id: 'B', price: 1, match: 'B' },
    ],
  });
  const platform = await startPlatform({
    ...{ engine: 'process', server: { pods: world.pods } },
    offers: { file, devices: makeGpus(GPU, 3) },
  });
  const read = () => readSeries(platform, 'millrace_gpus');
  const series = (type: string, free: number, allocated: number, missing: number) =>
    Object.entries({ free, allocated, missing }).map(
      ([state, count]) => `millrace_gpus{gpu_type="${type}",state="${state}"} ${count}`,
    );
  expect(await read()).toEqual([...series(GPU, 3, 0, 0), ...series('B', 0, 0, 0)]);
  const pod = await world.create({ gpu: { id: GPU, count: 2 } });
  await world.settle();
  expect(world.pods.heldGpus()).toEqual(new Set([lost, `${GPU}-0`]));
  expect(await read()).toEqual([...series(GPU, 2, 1, 1), ...series('B', 0, 0, 0)]);
  await world.pods.act('owner', pod.id, 'terminate');
  await world.settle(60_000);
  expect(await read()).toEqual([...series(GPU, 3, 0, 0), ...series('B', 0, 0, 0)]);
});

it('only the node that manages the pods shows them, and a type that the catalog has lost while a pod has it', async () => {
  const world = await openWorld(['g0']);
  await world.create({ gpu: { id: GPU, count: 1 } });
  await world.settle();
  const registry = new Registry();
  let leads = true;
  const refresh = registerPodMetrics({
    ...{ registry, catalog: { gpuTypes: () => [] } },
    ...{ listPods: () => world.pods.all(), isLeader: () => leads },
  });
  const read = async () => {
    refresh();
    return (await registry.metrics()).split('\n').filter((line) => /^millrace.* [1-9]/.test(line));
  };
  expect(await read()).toEqual([
    'millrace_pods{endpoint="",status="RUNNING"} 1',
    `millrace_gpus{gpu_type="${GPU}",state="missing"} 1`,
  ]);
  leads = false;
  expect(await read()).toEqual([]);
});

it('a platform without an engine has no metrics of pods', async () => {
  const text = await (await (await startPlatform()).call('/metrics')).text();
  expect(text).not.toContain('millrace_pods');
  expect(text).not.toContain('millrace_gpus');
});
