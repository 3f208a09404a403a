// The status of a pod in words and in a tone, and the device that it has.
import type { PodRecord, PodStatus } from '../../../src/client.ts';
import type { Tone } from './badge.tsx';

const POD_TONES: Readonly<Record<PodStatus, Tone>> = {
  PROVISIONING: 'busy',
  STARTING: 'busy',
  RUNNING: 'good',
  EXITED: 'plain',
  ERROR: 'bad',
  TERMINATED: 'plain',
};

const USD = new Intl.NumberFormat(undefined, {
  ...{ style: 'currency', currency: 'USD', currencyDisplay: 'narrowSymbol' },
  minimumFractionDigits: 2,
  maximumFractionDigits: 4,
});

/** `$0.75`: an amount, or a price of an hour. */
export function sayUsd(amount: number): string {
  return USD.format(amount);
}

export function sayPodStatus({ parked, status }: Pick<PodRecord, 'parked' | 'status'>): string {
  return parked ? 'Parked' : status[0] + status.slice(1).toLowerCase();
}

export function findPodTone({ parked, status }: Pick<PodRecord, 'parked' | 'status'>): Tone {
  return parked ? 'plain' : POD_TONES[status];
}

export function sayDevice({ cpu, gpu, node }: PodRecord): string {
  const device = gpu
    ? `${gpu.count} × ${gpu.id}`
    : cpu
      ? `${cpu.vcpuCount} vCPU, ${cpu.memory} GB`
      : '–';
  return node ? `${device} on ${node}` : device;
}
