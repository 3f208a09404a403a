// The metrics that every process of Millrace has: those of Node.js and the version.
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Counter, collectDefaultMetrics, Gauge, type Metric, Registry } from 'prom-client';
import { failedWrites } from './standard-streams.ts';

type LoopDelay = ReturnType<typeof monitorEventLoopDelay>;

const LAG = 'nodejs_eventloop_lag_';
const NS_PER_MS = 1e6;
const NS_PER_S = 1e9;
/** Interval of the samples of prom-client's monitor, ms: so long that it never samples. */
const NEVER_MS = 2 ** 31;
/**
 * Interval of our samples, ms. One of 10 ms costs an idle process 4 ms of processor time a second, this one a quarter of a
 * millisecond. Samples of each iteration would cost nothing, but do not contain what runs for sockets and files.
 */
const SAMPLE_MS = 200;

/** The values of a scrape, over the samples since the last one, in this order. */
const DELAYS: Record<string, [help: string, readNs: (delay: LoopDelay) => number]> = {
  min: ['Shortest delay of the event loop since the last scrape.', ({ min }) => late(min)],
  mean: ['Mean delay of the event loop since the last scrape.', ({ mean }) => late(mean)],
  stddev: ['Standard deviation of the delays of the event loop.', ({ stddev }) => stddev],
  p50: ['50th percentile of the delays of the event loop.', (all) => late(all.percentile(50))],
  p90: ['90th percentile of the delays of the event loop.', (all) => late(all.percentile(90))],
  p99: ['99th percentile of the delays of the event loop.', (all) => late(all.percentile(99))],
  max: ['Longest delay of the event loop since the last scrape.', ({ max }) => late(max)],
};

/** How late a sample was, from the time since the one before. */
function late(ns: number): number {
  return Math.max(0, ns - SAMPLE_MS * NS_PER_MS);
}

export function registerProcessMetrics(registry: Registry, version: string): void {
  registerNodeMetrics(registry);
  new Counter({
    name: 'millrace_output_failures_total',
    help: 'Writes to standard output or standard error that failed, and log lines that were dropped.',
    labelNames: ['stream'],
    registers: [registry],
    collect() {
      this.reset();
      for (const [stream, count] of Object.entries(failedWrites)) this.inc({ stream }, count);
    },
  });
  new Gauge({
    name: 'millrace_build_info',
    help: 'Version of Millrace, as a label of a constant 1.',
    labelNames: ['version'],
    registers: [registry],
  }).set({ version }, 1);
}

/** Makes the counters and gauges of a registry. */
export function createMeters(registry: Registry) {
  const registers = [registry];
  return {
    counter: <Label extends string>(
      name: string,
      help: string,
      labelNames: readonly Label[] = [],
    ) => new Counter({ name, help, labelNames, registers }),
    gauge: <Label extends string>(name: string, help: string, labelNames: readonly Label[] = []) =>
      new Gauge({ name, help, labelNames, registers }),
  };
}

/**
 * All registries of the process share them: prom-client observes collections of garbage without end, so metrics of
 * their own would keep each registry, and what its metrics read, in memory.
 */
let nodeMetrics: Registry | undefined;

/** Does nothing if the registry already has the metrics of Node.js, as that of an embedding program may. */
export function registerNodeMetrics(registry: Registry): void {
  if (registry.getSingleMetric('process_cpu_seconds_total')) return;
  nodeMetrics ??= measureNode();
  for (const { name } of nodeMetrics.getMetricsAsArray()) {
    const metric = nodeMetrics.getSingleMetric(name);
    if (metric) registry.registerMetric(shareMetric(metric));
  }
}

/** The metric with copies of its values, because a registry adds its labels to the values that it reads. */
function shareMetric(metric: Metric): Metric {
  return Object.create(metric, {
    get: {
      async value() {
        const read = await metric.get();
        return { ...read, values: read.values.map((value) => ({ ...value })) };
      },
    },
  });
}

function measureNode(): Registry {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: NEVER_MS });
  measureDelay(registry);
  return registry;
}

/** Replaces the gauges that prom-client takes from a timer of 10 ms, whose values include the 10 ms. */
function measureDelay(registry: Registry): void {
  const delay = monitorEventLoopDelay({ resolution: SAMPLE_MS });
  delay.enable();
  for (const [name, [help, readNs]] of Object.entries(DELAYS)) {
    registry.removeSingleMetric(`${LAG}${name}_seconds`);
    new Gauge({
      name: `${LAG}${name}_seconds`,
      help,
      registers: [registry],
      collect() {
        this.set(delay.count > 0 ? readNs(delay) / NS_PER_S : 0);
        if (name === 'max') delay.reset();
      },
    });
  }
}
