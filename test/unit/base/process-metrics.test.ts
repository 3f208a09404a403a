// The metrics of a process, from a registry of its own.
import { setImmediate as turn } from 'node:timers/promises';
import { Registry } from 'prom-client';
import { expect, it } from 'vitest';
import { registerProcessMetrics } from '../../../src/base/process-metrics.ts';
import { countKept } from '../../support/garbage.ts';

const BUSY_MS = 30;
/** No sample of a timer of 10 ms is shorter. */
const TIMER_S = 0.009;

it('measures each iteration of the event loop since the last scrape, without a timer that wakes the process', async () => {
  const registry = new Registry();
  registerProcessMetrics(registry, '1.2.3');
  const read = async () => {
    const found = (await registry.metrics()).matchAll(
      /^nodejs_eventloop_lag_(\w+)_seconds (\S+)$/gm,
    );
    return Object.fromEntries([...found].map(([, name, value]) => [name, Number(value)]));
  };
  // Begins a measurement: another registry of this process may have begun one before.
  await read();
  const until = performance.now() + BUSY_MS;
  while (performance.now() < until);
  for (let count = 0; count < 50; count++) await turn();
  const busy = await read();
  expect(Object.keys(busy).sort()).toEqual(['max', 'mean', 'min', 'p50', 'p90', 'p99', 'stddev']);
  expect(busy['max']).toBeGreaterThanOrEqual(BUSY_MS / 1_000);
  expect(busy['min']).toBeLessThan(TIMER_S);
  // The scrape has begun the next measurement; the turn of the scrape itself may count.
  expect(await read()).not.toEqual(busy);
});

it('keeps no registry in memory', async () => {
  const registries = Array.from({ length: 3 }, () => {
    const registry = new Registry();
    registerProcessMetrics(registry, '1.2.3');
    return new WeakRef(registry);
  });
  expect(await countKept(registries)).toBe(0);
});

it('gives the labels of a registry to no other one', async () => {
  const [labelled, plain] = [new Registry(), new Registry()];
  for (const registry of [labelled, plain]) registerProcessMetrics(registry, '1.2.3');
  labelled.setDefaultLabels({ worker: 'a' });
  const name = 'process_cpu_seconds_total';
  const found = (await labelled.getMetricsAsJSON()).find((metric) => metric.name === name);
  expect(found?.values).toMatchObject([{ labels: { worker: 'a' } }]);
  expect(await plain.getSingleMetricAsString(name)).toMatch(/^process_cpu_seconds_total \d/m);
});
