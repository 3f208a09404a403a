// The metrics that every process of Millrace has: those of Node.js and the version.
import { Counter, collectDefaultMetrics, Gauge, type Registry } from 'prom-client';
import { failedWrites } from './standard-streams.ts';

/** Leaves out the metrics of Node.js if the registry already has them, as that of an embedding program may. */
export function registerProcessMetrics(registry: Registry, version: string): void {
  if (!registry.getSingleMetric('process_cpu_seconds_total')) {
    collectDefaultMetrics({ register: registry });
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
