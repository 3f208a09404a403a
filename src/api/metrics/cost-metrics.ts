// Metrics of what pods, endpoints and volumes cost, for Prometheus.
import { Counter, type Registry } from 'prom-client';
import type { CostTotal } from '../../control/billing/cost-totals.ts';

export interface CostMetricsOptions {
  registry: Registry;
  /** Undefined without an engine: there are no such metrics. */
  readCosts: (() => readonly CostTotal[]) | undefined;
  /** Whether this node manages the pods of all nodes. */
  isLeader: () => boolean;
}

/** Returns a function that updates the metrics. */
export function registerCostMetrics(options: CostMetricsOptions): () => void {
  const { isLeader, readCosts, registry } = options;
  if (!readCosts) return () => {};
  const registers = [registry];
  const cost = new Counter({
    name: 'millrace_cost_dollars_total',
    help: 'What endpoints, pods and network volumes cost at the prices of the catalog, USD, since the start of the platform.',
    labelNames: ['kind', 'endpoint'],
    registers,
  });
  const allocated = new Counter({
    name: 'millrace_gpu_allocated_seconds_total',
    help: 'GPUs × seconds of running containers, since the start of the platform. `endpoint` is empty for pods.',
    labelNames: ['endpoint'],
    registers,
  });
  return () => {
    cost.reset();
    allocated.reset();
    if (!isLeader()) return;
    for (const { endpointId: endpoint, gpuSeconds, kind, usd } of readCosts()) {
      cost.inc({ kind, endpoint }, usd);
      if (kind !== 'volume') allocated.inc({ endpoint }, gpuSeconds);
    }
  };
}
