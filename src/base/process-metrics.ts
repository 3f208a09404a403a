// The metrics that every process of Millrace has: those of Node.js and the version.
import { collectDefaultMetrics, Gauge, type Registry } from 'prom-client';

/** Leaves out the metrics of Node.js if the registry already has them, as that of an embedding program may. */
export function registerProcessMetrics(registry: Registry, version: string): void {
  if (!registry.getSingleMetric('process_cpu_seconds_total')) {
    collectDefaultMetrics({ register: registry });
  }
  new Gauge({
    name: 'millrace_build_info',
    help: 'Version of Millrace, as a label of a constant 1.',
    labelNames: ['version'],
    registers: [registry],
  }).set({ version }, 1);
}
