// What scrapes of a real platform show.
import { Registry } from 'prom-client';
import { describe, expect, it, onTestFinished } from 'vitest';
import { registerPodMetrics } from '../../../../src/api/metrics/metrics.ts';
import { addToBill } from '../../../../src/control/billing/bill-rows.ts';
import { CostTotals } from '../../../../src/control/billing/spending.ts';
import { catalogFile } from '../../../../src/control/endpoints/catalog-contents.ts';
import { podCreation } from '../../../../src/wire/resources/pod.ts';
import {
  ENDPOINT,
  type Platform,
  startPlatform,
  submitJob,
} from '../../../support/api/platform.ts';
import { makeGpus } from '../../../support/containers/gpus.ts';
import { createCatalog, GPU, PodWorld } from '../../../support/containers/pod-world.ts';
import { completed, Hand, outcomeOf } from '../../../support/queue-platform.ts';

it('forgets the crashes of a deleted endpoint, and counts no later reports', async () => {
  const platform = await startPlatform();
  const { endpoints, workers } = platform;
  const bye = { workerId: 'w', incarnation: 1, reason: 'crashed' as const, outbox: [] };
  const read = async () => (await platform.call('/metrics')).text();
  workers.noteCrash(ENDPOINT, bye);
  expect(await read()).toContain(`millrace_worker_crashes_total{endpoint="${ENDPOINT}"} 1`);
  await endpoints.remove('owner', ENDPOINT);
  workers.noteCrash(ENDPOINT, bye);
  expect(await read()).not.toContain('millrace_worker_crashes_total{');
});

it('counts GPU time and energy once for each outcome, until the endpoint is deleted', async () => {
  const platform = await startPlatform();
  const { endpoints, queue } = platform;
  const read = async () => (await platform.call('/metrics')).text();
  const worker = new Hand(() => queue.link(ENDPOINT));
  await worker.hello();
  for (const seconds of [1.5, 2]) {
    await submitJob(platform);
    const report = outcomeOf(await worker.takeOne({ held: [] }), 1, completed, '1');
    const gpu = { seconds, energyJoules: 300, shared: false };
    for (const answer of ['applied', 'duplicate']) {
      expect(await worker.reportOne({ ...report, usage: { gpu } })).toEqual({ answer });
    }
  }
  expect(await read()).toContain(`millrace_gpu_seconds_total{endpoint="${ENDPOINT}"} 3.5`);
  expect(await read()).toContain(`millrace_gpu_energy_joules_total{endpoint="${ENDPOINT}"} 600`);
  await endpoints.remove('owner', ENDPOINT);
  await expect.poll(read).not.toContain('millrace_gpu_seconds_total{');
});

it('wait and run time of jobs are counted by endpoint, until the endpoint is deleted', async () => {
  const platform = await startPlatform();
  const { endpoints, queue } = platform;
  const read = async () => (await platform.call('/metrics')).text();
  const worker = new Hand(() => queue.link(ENDPOINT));
  await worker.hello();
  for (const executionMs of [200, 7_200_000]) {
    await submitJob(platform);
    const job = await worker.takeOne({ held: [] });
    const report = outcomeOf(job, 1, { ...completed, executionMs }, '1');
    for (const answer of ['applied', 'duplicate']) {
      expect(await worker.reportOne(report)).toEqual({ answer });
    }
  }
  const text = await read();
  const name = 'millrace_job_execution_seconds';
  const label = `endpoint="${ENDPOINT}"`;
  for (const [le, count] of Object.entries({ '0.1': 0, '0.5': 1, '3600': 1, '+Inf': 2 })) {
    expect(text).toContain(`${name}_bucket{${label},le="${le}"} ${count}\n`);
  }
  expect(text).toContain(`${name}_sum{${label}} 7200.2\n`);
  expect(text).toContain(`millrace_job_queue_wait_seconds_count{${label}} 2\n`);
  await endpoints.remove('owner', ENDPOINT);
  await expect.poll(read).not.toContain(`${name}_sum{`);
});

describe('the metrics of pods and GPUs', () => {
  async function openWorld(gpus: string[] = []) {
    const world = await PodWorld.open({ catalog: createCatalog(gpus) });
    onTestFinished(() => world.close());
    return world;
  }

  async function readSeries({ call }: Platform, name: string): Promise<string[]> {
    const text = await (await call('/metrics')).text();
    return text.split('\n').filter((line) => line.startsWith(`${name}{`));
  }

  it('count pods by endpoint and status', async () => {
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

  it('count GPUs by type as free, allocated, and missing from all machines', async () => {
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

  it('appear only on the node that manages the pods, also for a type that the catalog has lost while a pod has it', async () => {
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
      await refresh();
      return (await registry.metrics())
        .split('\n')
        .filter((line) => /^millrace.* [1-9]/.test(line));
    };
    expect(await read()).toEqual([
      'millrace_pods{endpoint="",status="RUNNING"} 1',
      `millrace_gpus{gpu_type="${GPU}",state="missing"} 1`,
    ]);
    leads = false;
    expect(await read()).toEqual([]);
  });

  it('count parked workers', async () => {
    const world = await openWorld(['g0']);
    const worker = await world.createWorker({ gpu: { id: GPU, count: 1 } });
    await world.settle();
    const platform = await startPlatform({ engine: 'process', server: { pods: world.pods } });
    const read = () => readSeries(platform, 'millrace_parked_workers');
    const series = (count: number) => [
      'millrace_parked_workers{endpoint=""} 0',
      `millrace_parked_workers{endpoint="ep_1"} ${count}`,
    ];
    expect(await read()).toEqual(series(0));
    await world.pods.parkWorker(worker.id, { since: 0, bytes: 7, way: 'hooks' });
    expect(await read()).toEqual(series(1));
    expect(await world.pods.returnGpus(worker.id)).toBe(true);
    expect(await read()).toEqual(series(0));
  });

  it('are missing on a platform without an engine', async () => {
    const text = await (await (await startPlatform()).call('/metrics')).text();
    expect(text).not.toContain('millrace_pods');
    expect(text).not.toContain('millrace_gpus');
  });
});

describe('the cost metrics', () => {
  const HOUR_MS = 3_600_000;

  async function start() {
    let totals: CostTotals | undefined;
    const world = await PodWorld.open({
      catalog: createCatalog(['g1', 'g2', 'g3']),
      pods: { bill: { add: addToBill, added: (...billed) => totals?.add(...billed) } },
    });
    onTestFinished(() => world.close());
    totals = new CostTotals(world.clock);
    const platform = await startPlatform({
      ...{ engine: 'process', totals, server: { pods: world.pods } },
    });
    return { platform, totals, world };
  }

  async function readSeries({ call }: Platform, name: string): Promise<Map<string, number>> {
    const text = await (await call('/metrics')).text();
    const lines = text.split('\n').filter((line) => line.startsWith(`${name}{`));
    return new Map(
      lines.map((line) => {
        const end = line.lastIndexOf(' ');
        return [line.slice(name.length, end), Number(line.slice(end + 1))];
      }),
    );
  }

  const COST = 'millrace_cost_dollars_total';
  const GPU_TIME = 'millrace_gpu_allocated_seconds_total';
  const OF_PODS = '{kind="pod",endpoint=""}';

  it('show what pods and endpoints cost since the start, also of time that no row has yet', async () => {
    const { platform, world } = await start();
    expect(await readSeries(platform, COST)).toEqual(new Map());
    const gpu = { id: GPU, count: 1 };
    const worker = { endpointId: ENDPOINT, handler: 'h.ts', templateVersion: 1 };
    await world.create({ gpu: { id: GPU, count: 2 } });
    await world.pods.create('owner', podCreation.parse({ name: 'w', image: 'none', gpu }), worker);
    await world.settle();
    await world.settle(HOUR_MS);
    const costs = await readSeries(platform, COST);
    // 4 and 2 USD an hour; the last observation is up to 2 s old.
    expect(costs.get(OF_PODS)).toBeCloseTo(4, 1);
    expect(costs.get(`{kind="endpoint",endpoint="${ENDPOINT}"}`)).toBeCloseTo(2, 1);
    const gpuTime = await readSeries(platform, GPU_TIME);
    expect(Math.abs((gpuTime.get('{endpoint=""}') ?? 0) - 7_200)).toBeLessThanOrEqual(10);
    expect(Math.abs((gpuTime.get(`{endpoint="${ENDPOINT}"}`) ?? 0) - 3_600)).toBeLessThanOrEqual(5);
  });

  it('never go back, and count from 0 when the platform begins to manage pods', async () => {
    const { platform, totals, world } = await start();
    const { id } = await world.create({ gpu: { id: GPU, count: 2 } });
    await world.settle();
    let before = 0;
    for (let step = 0; step < 6; step++) {
      if (step === 2) await world.pods.act('owner', id, 'stop');
      if (step === 4) await world.pods.act('owner', id, 'start');
      await world.settle(400_000);
      const cost = (await readSeries(platform, COST)).get(OF_PODS) ?? 0;
      expect(cost).toBeGreaterThanOrEqual(before);
      before = cost;
    }
    expect(before).toBeGreaterThan(1);
    totals.start();
    await world.settle(10_000);
    // 10 s at 4 USD an hour, not what the meter has kept from before.
    const after = (await readSeries(platform, COST)).get(OF_PODS) ?? 0;
    expect(after).toBeLessThanOrEqual((4 * 10_000) / HOUR_MS);
  });

  it('have no series of endpoints that do not exist', async () => {
    const { platform, world } = await start();
    await world.createWorker();
    await world.settle(HOUR_MS);
    expect([...(await readSeries(platform, COST)).keys()]).toEqual([]);
  });
});
