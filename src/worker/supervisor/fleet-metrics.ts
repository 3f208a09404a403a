// The Prometheus metrics of a supervisor: those of its workers, of its devices, and its own. It loads
// prom-client, so it is loaded only where metrics are requested.
import { AggregatorRegistry, Counter, Gauge, Registry } from 'prom-client';
import { registerNodeMetrics } from '../../base/process-metrics.ts';
import type { HealthState } from '../gpu/device-health.ts';
import { numberDevice } from '../gpu/device-sets.ts';
import type { DeviceStatus } from '../gpu/monitor.ts';
import type { Keeper } from './keeper.ts';

const LABELS = ['device', 'uuid', 'name'] as const;
const STATES = [
  'healthy',
  'suspect',
  'quarantined',
] as const satisfies readonly HealthState['name'][];

interface FleetMetrics {
  /** In Prometheus text format. */
  collect(): Promise<string>;
}

interface FleetMetricsOptions {
  keepers: readonly Keeper[];
  readDevices: () => readonly DeviceStatus[];
  /** Processor time that sampling GPUs has cost; undefined: GPUs are not sampled. */
  readSamplingSeconds: (() => number) | undefined;
}

/** A worker's metrics have its ID as a label; those of this process have `worker="supervisor"`. */
export function createFleetMetrics({
  keepers,
  readDevices,
  readSamplingSeconds,
}: FleetMetricsOptions): FleetMetrics {
  const own = new Registry();
  own.setDefaultLabels({ worker: 'supervisor' });
  registerNodeMetrics(own);
  if (readSamplingSeconds) registerSampling(own, readSamplingSeconds);
  const devices = new Registry();
  const refreshDevices = registerDeviceMetrics(devices);
  return {
    async collect() {
      const answers = await Promise.all(keepers.map((keeper) => keeper.ask()));
      const up = keepers.map((keeper, index) => ({
        worker: keeper.workerId ?? `#${index}`,
        isUp: answers[index] !== undefined,
        restarts: keeper.restarts,
      }));
      const exported = answers.flatMap((answer) => listMetrics(answer?.metrics));
      refreshDevices(readDevices());
      const ours = [
        ...(await own.getMetricsAsJSON()),
        ...(await devices.getMetricsAsJSON()),
        ...(await collectProcessMetrics(up)),
      ];
      return AggregatorRegistry.aggregate([ours, exported].map(keepAll)).metrics();
    },
  };
}

function registerSampling(registry: Registry, read: () => number): void {
  new Gauge({
    name: 'millrace_gpu_sampling_cpu_seconds',
    help: 'Processor time of the nvidia-smi that samples GPUs for the usage of jobs.',
    registers: [registry],
    collect() {
      this.set(read());
    },
  });
}

interface WorkerProcessState {
  worker: string;
  isUp: boolean;
  restarts: number;
}

function collectProcessMetrics(states: readonly WorkerProcessState[]) {
  const registry = new Registry();
  const common = { labelNames: ['worker'], registers: [registry] };
  const up = new Gauge({
    name: 'millrace_worker_up',
    help: '1 while the worker process runs and responds, else 0.',
    ...common,
  });
  const restarts = new Counter({
    name: 'millrace_worker_restarts_total',
    help: 'Worker processes started after the first.',
    ...common,
  });
  for (const { isUp, restarts: count, worker } of states) {
    up.set({ worker }, isUp ? 1 : 0);
    restarts.inc({ worker }, count);
  }
  return registry.getMetricsAsJSON();
}

function listMetrics(exported: unknown): object[] {
  return Array.isArray(exported) ? exported : [];
}

/** No two metrics have the same labels, so nothing is added up or dropped. */
function keepAll(metrics: readonly object[]): object[] {
  return metrics.map((metric) => ({ ...metric, aggregator: 'first' }));
}

/**
 * Adds the gauges to the registry. The returned function updates them; a value that the last
 * reading lacks has no series instead of a stale one.
 */
export function registerDeviceMetrics(
  registry: Registry,
): (statuses: readonly DeviceStatus[]) => void {
  const add = (name: string, help: string) =>
    new Gauge({ name: `millrace_device_${name}`, help, labelNames: LABELS, registers: [registry] });
  const total = add('memory_total_bytes', 'Memory of the device.');
  const used = add('memory_used_bytes', 'Memory of the device in use by all processes.');
  const utilization = add(
    'utilization_ratio',
    'Share of time in which a kernel ran, 0 to 1; whole GPUs only, not MIG instances.',
  );
  const temperature = add('temperature_celsius', 'Temperature of the GPU.');
  const state = new Gauge({
    name: 'millrace_device_state',
    help: 'State of the device: 1 for the current one of the three states, 0 for the others.',
    labelNames: [...LABELS, 'state'],
    registers: [registry],
  });
  return (statuses) => {
    for (const gauge of [total, used, utilization, temperature, state]) gauge.reset();
    for (const {
      found,
      health,
      isCurrent,
      memory,
      utilization: percent,
      temperatureC,
    } of statuses) {
      const { uuid, name } = found.device;
      const labels = { device: numberDevice(found), uuid, name };
      const set = (gauge: Gauge<(typeof LABELS)[number]>, value: number | undefined) => {
        if (value !== undefined) gauge.set(labels, value);
      };
      set(total, memory.totalBytes);
      if (isCurrent) {
        set(used, memory.usedBytes);
        set(utilization, percent === undefined ? undefined : percent / 100);
        set(temperature, temperatureC);
      }
      for (const each of STATES) {
        state.set({ ...labels, state: each }, health.state.name === each ? 1 : 0);
      }
    }
  };
}
