// Metrics of pods, of the GPUs that they share, and of what pods, endpoints and volumes cost, for Prometheus.
import { Counter, Gauge, type Registry } from 'prom-client';
import type { CostTotal } from '../../control/billing/spending.ts';
import type { Catalog } from '../../control/endpoints/catalog.ts';
import type { PodState } from '../../control/pods/pod-state.ts';
import { POD_STATUSES } from '../../wire/resources/pod.ts';

export interface PodMetricsOptions {
  registry: Registry;
  /** All pods. Undefined without an engine: there are no such metrics. */
  listPods: (() => readonly PodState[]) | undefined;
  catalog: Pick<Catalog, 'gpuTypes'> | undefined;
  /** Whether this node manages the pods of all nodes. Metrics of the others would repeat or contradict its own. */
  isLeader: () => boolean;
}

/** Returns a function that updates the metrics. */
export function registerPodMetrics(options: PodMetricsOptions): () => void {
  const { catalog, isLeader, listPods, registry } = options;
  if (!listPods) return () => {};
  const registers = [registry];
  const statuses = new Gauge({
    name: 'millrace_pods',
    help: 'Pods by status; `endpoint` is empty for pods that are not workers of an endpoint.',
    labelNames: ['endpoint', 'status'],
    registers,
  });
  const gpus = new Gauge({
    name: 'millrace_gpus',
    help: 'GPUs by type: free, allocated to a pod, or missing: allocated to a pod and not found on any machine.',
    labelNames: ['gpu_type', 'state'],
    registers,
  });
  return () => {
    statuses.reset();
    gpus.reset();
    if (!isLeader()) return;
    const pods = listPods();
    // Without any pod there are series as well, so that a dashboard shows 0 and not "no data".
    for (const status of POD_STATUSES) statuses.set({ endpoint: '', status }, 0);
    for (const { endpointId, status } of pods) statuses.inc({ endpoint: endpointId ?? '', status });
    for (const { allocated, free, gpuType, missing } of countGpus(pods, catalog)) {
      gpus.set({ gpu_type: gpuType, state: 'free' }, free);
      gpus.set({ gpu_type: gpuType, state: 'allocated' }, allocated);
      gpus.set({ gpu_type: gpuType, state: 'missing' }, missing);
    }
  };
}

/** A type that the catalog no longer has is listed while pods have GPUs of it. */
function countGpus(pods: readonly PodState[], catalog: PodMetricsOptions['catalog']) {
  const found = new Map(catalog?.gpuTypes().map(({ devices, id }) => [id, devices]));
  const held = new Map<string, string[]>();
  for (const { gpus, spec } of pods) {
    if (spec.gpu) held.set(spec.gpu.id, [...(held.get(spec.gpu.id) ?? []), ...gpus]);
  }
  return [...new Set([...found.keys(), ...held.keys()])].map((gpuType) => {
    const devices = new Set(found.get(gpuType));
    const all = held.get(gpuType) ?? [];
    const allocated = all.filter((uuid) => devices.has(uuid)).length;
    return {
      gpuType,
      allocated,
      free: devices.size - allocated,
      missing: all.length - allocated,
    };
  });
}

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
