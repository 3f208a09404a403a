// What the pods on one machine hold of it.
import type { Device } from '../../wire/link/worker-link.ts';
import type { NodeMachine } from '../../wire/resources/nodes.ts';
import { type Amounts, holdingOf } from '../limits/capacity.ts';
import type { LivePods } from './live-pods.ts';

const BYTES_PER_GB = 1_073_741_824;

export interface MachineFacts {
  engine: string;
  /** Name of its node; null if the platform has only one. */
  node: string | null;
  /** Undefined: nothing is limited. */
  limits: Amounts | undefined;
  devices: readonly Pick<Device, 'kind' | 'uuid' | 'name' | 'memoryBytes'>[];
}

export function describeMachine(
  { devices, engine, limits, node }: MachineFacts,
  live: Pick<LivePods, 'all' | 'seen'>,
): NodeMachine {
  const here = live.all().filter((pod) => (pod.node ?? null) === node);
  const held = here.map((pod) => holdingOf(pod, live.seen(pod.id)));
  const share = (key: keyof Amounts) => ({
    // A file system without a size has no limit.
    limit: limits && limits[key] < Number.MAX_SAFE_INTEGER ? limits[key] : null,
    used: held.reduce((sum, amounts) => sum + amounts[key], 0),
  });
  const holders = new Map(here.flatMap(({ gpus, id }) => gpus.map((uuid) => [uuid, id] as const)));
  return {
    engine,
    pods: here.filter(({ desired }) => desired === 'running').length,
    ...{ memoryGb: share('memoryGb'), vcpus: share('vcpus'), diskGb: share('diskGb') },
    gpus: devices
      .filter(({ kind }) => kind === 'gpu')
      .map(({ memoryBytes, name, uuid }) => ({
        ...{ uuid, name, memoryGb: Math.round(memoryBytes / BYTES_PER_GB) },
        podId: holders.get(uuid) ?? null,
      })),
  };
}
