// The metrics of a process, from a registry of its own.
import { readFile } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Registry } from 'prom-client';
import { expect, it } from 'vitest';
import { registerProcessMetrics } from '../../../src/base/process-metrics.ts';
import { countKept } from '../../support/garbage.ts';

/** Longer than the interval of the samples, ms. */
const HELD_MS = 300;

it('measures how long a callback of a file holds the event loop, anew after each scrape', async () => {
  const registry = new Registry();
  registerProcessMetrics(registry, '1.2.3');
  const read = async () => {
    const found = (await registry.metrics()).matchAll(
      /^nodejs_eventloop_lag_(\w+)_seconds (\S+)$/gm,
    );
    return Object.fromEntries([...found].map(([, name, value]) => [name, Number(value)]));
  };
  await read();
  let busy: Record<string, number> = {};
  // On a busy machine a sample may be late by itself, and begin with the hold instead of ending with it.
  for (let rounds = 0; rounds < 5 && !((busy['max'] ?? 0) >= 0.09); rounds++) {
    // A scrape forgets the last sample, too: the first hold ends with a new one.
    for (let holds = 0; holds < 2; holds++) {
      await new Promise<void>((held) => readFile(import.meta.filename, () => held(hold())));
      await sleep(1);
    }
    busy = await read();
  }
  expect(Object.keys(busy).sort()).toEqual(['max', 'mean', 'min', 'p50', 'p90', 'p99', 'stddev']);
  expect(busy['max']).toBeGreaterThanOrEqual(0.09);
  // The scrape has begun the next measurement.
  expect(await read()).toMatchObject({ max: 0 });
});

function hold(): void {
  const until = performance.now() + HELD_MS;
  while (performance.now() < until);
}

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
