// Registers Prometheus metrics of the devices. It loads prom-client, so code without metrics does
// not load it.
import { Gauge, type Registry } from 'prom-client';
import type { HealthState } from './device-health.ts';
import { numberDevice } from './device-sets.ts';
import type { DeviceStatus } from './monitor.ts';

const LABELS = ['device', 'uuid', 'name'] as const;
const STATES = [
  'healthy',
  'suspect',
  'quarantined',
] as const satisfies readonly HealthState['name'][];

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
