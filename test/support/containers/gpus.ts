// GPUs as a machine would tell of them.
import type { Device } from '../../../src/wire/link/worker-link.ts';

export const GB = 2 ** 30;

/** Their UUIDs are `<name>-<n>`. */
export function makeGpus(name: string, count: number, memoryGb = 24): Device[] {
  return Array.from({ length: count }, (_, index) => ({
    ...{ kind: 'gpu', index, uuid: `${name}-${index}`, name, memoryBytes: memoryGb * GB },
  }));
}
