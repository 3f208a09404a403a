// What Prometheus reads of the devices, as text.
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { startHealth } from '../../../../src/worker/gpu/device-health.ts';
import type { DeviceStatus } from '../../../../src/worker/gpu/monitor.ts';
import { registerDeviceMetrics } from '../../../../src/worker/supervisor/fleet-metrics.ts';

const found = {
  device: { kind: 'gpu', index: 3, uuid: 'GPU-3', name: 'NVIDIA H200', memoryBytes: 150e9 },
  vendor: 'nvidia',
  pciBusId: '00000000:19:00.0',
} as const;

const status: DeviceStatus = {
  found,
  health: startHealth(0),
  isCurrent: true,
  memory: { totalBytes: 150e9, usedBytes: 4e9 },
  utilization: 37,
  temperatureC: 34,
};

async function render(...rounds: (readonly DeviceStatus[])[]): Promise<string[]> {
  const registry = new Registry();
  const fill = registerDeviceMetrics(registry);
  for (const statuses of rounds) fill(statuses);
  const text = await registry.metrics();
  return text.split('\n').filter((line) => line.startsWith('millrace_device_'));
}

const LABELS = '{device="3",uuid="GPU-3",name="NVIDIA H200"}';
const stateLine = (state: string, value: number) =>
  `millrace_device_state{device="3",uuid="GPU-3",name="NVIDIA H200",state="${state}"} ${value}`;

describe('device metrics', () => {
  it('show the memory, the load, the temperature and the state of a device', async () => {
    expect(await render([status])).toEqual([
      `millrace_device_memory_total_bytes${LABELS} 150000000000`,
      `millrace_device_memory_used_bytes${LABELS} 4000000000`,
      `millrace_device_utilization_ratio${LABELS} 0.37`,
      `millrace_device_temperature_celsius${LABELS} 34`,
      stateLine('healthy', 1),
      stateLine('suspect', 0),
      stateLine('quarantined', 0),
    ]);
  });

  it('show only values of the last reading', async () => {
    const state = { name: 'quarantined', reason: 'lost', since: 0, probeAt: 1 } as const;
    const lost = { ...status, isCurrent: false, health: { ...status.health, state } };
    expect(await render([status], [lost])).toEqual([
      `millrace_device_memory_total_bytes${LABELS} 150000000000`,
      stateLine('healthy', 0),
      stateLine('suspect', 0),
      stateLine('quarantined', 1),
    ]);
  });

  it('have no series for values that a device does not report', async () => {
    const mig = { parentUuid: 'GPU-3', index: 1, gpuInstanceId: 2, computeInstanceId: 0 };
    const part = { ...status, found: { ...found, mig }, utilization: undefined };
    const lines = await render([part]);
    expect(lines.some((line) => line.startsWith('millrace_device_utilization_ratio'))).toBe(false);
    expect(lines[0]).toContain('device="3:1"');
  });

  it('have no series for a device that is no longer watched', async () => {
    expect(await render([status], [])).toEqual([]);
  });
});
