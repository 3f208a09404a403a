// docs/operations/metrics.md lists exactly the metrics of a platform and of a worker, with their types and labels.

import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../src/base/clock.ts';
import { addToBill } from '../../src/control/billing/bill-rows.ts';
import { CostTotals } from '../../src/control/billing/spending.ts';
import { createWorkerMetrics } from '../../src/worker/health/worker-metrics.ts';
import { createFleetMetrics } from '../../src/worker/supervisor/fleet-metrics.ts';
import { ENDPOINT, startPlatform, submitJob } from '../support/api/platform.ts';
import { makeGpus } from '../support/containers/gpus.ts';
import { PodWorld } from '../support/containers/pod-world.ts';
import {
  type DocumentedMetric,
  readDocumented,
  readLabels,
  readTypes,
} from '../support/documented-metrics.ts';
import { completed, Hand, outcomeOf } from '../support/queue-platform.ts';
import { lease, script } from '../support/workers/worker-script.ts';

const PROCESS = 'Metrics of a process';

const toNames = (metrics: readonly Pick<DocumentedMetric, 'name' | 'type'>[]) =>
  metrics.map(({ name, type }) => `${name} ${type}`).sort();

/** With series of as many metrics as can be made to have some. */
async function readPlatform(): Promise<string> {
  const clock = new ManualClock();
  const totals = new CostTotals(clock);
  const world = await PodWorld.open({
    pods: { bill: { add: addToBill, added: totals.add.bind(totals) } },
  });
  onTestFinished(() => world.close());
  await world.create();
  await world.settle(600_000);
  const store = {
    findFault: async () => undefined,
    ...{ warnings: [], failures: new Map([['SQLITE_FULL', 1]]) },
    shards: { open: 1, failing: 0, givenUp: 0 },
    measure: () => ({ database: 1, wal: 1, free: 1 }),
  };
  const platform = await startPlatform({ server: { store, pods: world.pods }, totals });
  const { queue, workers } = platform;
  const worker = new Hand(() => queue.link(ENDPOINT));
  await worker.hello();
  await submitJob(platform);
  await platform.post('/v1/schedules', { name: 's', endpointId: ENDPOINT, every: 3_600_000 });
  const report = outcomeOf(await worker.takeOne({ held: [] }), 1, completed, '1');
  const gpu = { seconds: 1, energyJoules: 300, shared: false };
  await worker.reportOne({ ...report, usage: { gpu } });
  const bye = { workerId: 'w', incarnation: 1, reason: 'crashed' as const, outbox: [] };
  workers.noteCrash(ENDPOINT, bye);
  return (await platform.call('/metrics')).text();
}

describe('the documented metrics of the platform', () => {
  it('are its metrics, with their types', async () => {
    const documented = readDocumented('Metrics of the platform', PROCESS);
    expect(toNames(documented)).toEqual(toNames(readTypes(await readPlatform())));
  });

  it('have the labels of its series', async () => {
    const text = await readPlatform();
    const wrong = readDocumented('Metrics of the platform', PROCESS).flatMap(({ labels, name }) =>
      readLabels(text, name)
        .filter((found) => found.toSorted().join() !== labels.toSorted().join())
        .map((found) => `${name}: ${found}`),
    );
    expect(wrong).toEqual([]);
    // Of each metric with an endpoint there was a series, but of webhooks, the history, flows and batches.
    const without = readDocumented('Metrics of the platform').filter(
      ({ labels, name }) => labels.includes('endpoint') && readLabels(text, name).length === 0,
    );
    expect(
      without
        .map(({ name }) => name)
        .filter((name) => !/webhook|_history_|_flows|_batch/.test(name)),
    ).toEqual([]);
  });
});

/** Of a worker that has run one job on a GPU. */
async function readWorker(): Promise<string> {
  const clock = new ManualClock();
  const metrics = createWorkerMetrics({ clock, version: '1.2.3' });
  const { executor, link, worker } = script({
    ...{ clock, observer: metrics.observer, stuckAfterMs: 10_000 },
    devices: makeGpus('H200', 1),
  });
  await worker.start();
  await clock.advance(0);
  link.lastTake.answer([lease('a')]);
  await clock.advance(1_000);
  worker.noteGpuFigures({ vramScope: 'process', powerWatts: 300 });
  executor.executions[0]?.complete();
  await clock.advance(0);
  return metrics.collect(worker.health());
}

it('documents the metrics of a worker process and its supervisor, and no others', async () => {
  const supervisor = createFleetMetrics({
    ...{ keepers: [], readDevices: () => [] },
    readSamplingSeconds: () => 1,
  });
  const texts = [await readWorker(), await supervisor.collect()];
  const found = new Map(texts.flatMap(readTypes).map((metric) => [metric.name, metric]));
  const documented = readDocumented('Metrics of a worker', PROCESS);
  expect(toNames(documented)).toEqual(toNames([...found.values()]));
});
