// The metrics that every process of Millrace has: those of Node.js and the version.
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Counter, collectDefaultMetrics, Gauge, type Registry } from 'prom-client';
import { failedWrites } from './standard-streams.ts';

type Turns = ReturnType<typeof monitorEventLoopDelay>;

const LAG = 'nodejs_eventloop_lag_';
const NS_PER_S = 1e9;
/** Interval of the samples of prom-client's monitor, ms: so long that it never samples. */
const NEVER_MS = 2 ** 31;

/** The values of a scrape, over the turns since the last one, in this order. */
const TURNS: Record<string, [help: string, readNs: (turns: Turns) => number]> = {
  min: ['Shortest turn of the event loop since the last scrape.', ({ min }) => min],
  mean: ['Mean turn of the event loop since the last scrape.', ({ mean }) => mean],
  stddev: ['Standard deviation of the turns of the event loop.', ({ stddev }) => stddev],
  p50: ['50th percentile of the turns of the event loop.', (turns) => turns.percentile(50)],
  p90: ['90th percentile of the turns of the event loop.', (turns) => turns.percentile(90)],
  p99: ['99th percentile of the turns of the event loop.', (turns) => turns.percentile(99)],
  max: ['Longest turn of the event loop since the last scrape.', ({ max }) => max],
};

/** Leaves out the metrics of Node.js if the registry already has them, as that of an embedding program may. */
export function registerProcessMetrics(registry: Registry, version: string): void {
  if (!registry.getSingleMetric('process_cpu_seconds_total')) {
    collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: NEVER_MS });
    measureTurns(registry);
  }
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

/**
 * Replaces the gauges that prom-client takes from a timer of 10 ms: it wakes an idle process 100 times a second, and each
 * value includes the 10 ms. Versions of Node.js that cannot measure turns use such a timer.
 */
function measureTurns(registry: Registry): void {
  const turns = monitorEventLoopDelay({ samplePerIteration: true });
  turns.enable();
  for (const [name, [help, readNs]] of Object.entries(TURNS)) {
    registry.removeSingleMetric(`${LAG}${name}_seconds`);
    new Gauge({
      name: `${LAG}${name}_seconds`,
      help,
      registers: [registry],
      collect() {
        this.set(turns.count > 0 ? readNs(turns) / NS_PER_S : 0);
        if (name === 'max') turns.reset();
      },
    });
  }
}
