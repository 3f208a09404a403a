// The cost metrics: what scrapes of a real platform show of pods on an engine in memory.

import { expect, it, onTestFinished } from 'vitest';
import { addToBill } from '../../../../src/control/billing/bill-rows.ts';
import { CostTotals } from '../../../../src/control/billing/spending.ts';
import { podCreation } from '../../../../src/wire/resources/pod.ts';
import { ENDPOINT, type Platform, startPlatform } from '../../../support/api/platform.ts';
import { createCatalog, GPU, PodWorld } from '../../../support/containers/pod-world.ts';

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
