// Builds a pod's API record from its stored state, its container and its use of resources.
import { nameInternalHost } from '../../base/net/internal-host.ts';
import type { Container, ContainerStats } from '../../engine/engine.ts';
import type { PodRecord, PodRuntime, PodStatus } from '../../wire/resources/pod.ts';
import { canStop, type EngineTraits } from './engine-fit.ts';
import { listActions } from './pod-lifecycle.ts';
import type { PodState } from './pod-state.ts';

/** Statuses without held resources. */
const FREE_OF_CHARGE: readonly PodStatus[] = ['EXITED', 'ERROR', 'TERMINATED'];

export interface PodSight {
  pod: PodState;
  engine: Pick<EngineTraits, 'capabilities'>;
  /** Its container, if observed. */
  seen: Container | undefined;
  /** Its use of resources, if known. */
  stats: ContainerStats | undefined;
  /** USD per hour while it runs. */
  price: number;
  now: number;
}

export function describePod(sight: PodSight): PodRecord {
  const { engine, pod, price, seen } = sight;
  const { spec, status } = pod;
  const { args, cloud, cpu, dataCenterId, disk, env, gpu, image, kubernetes } = spec;
  const { locked, mounts, name, ports, registry, template } = spec;
  const actions = listActions(pod).filter((action) => action !== 'stop' || canStop(pod, engine));
  return {
    ...{ id: pod.id, name, status, actions },
    ...{ image, args, disk, ports, env, registry, mounts, ...(kubernetes && { kubernetes }) },
    ...{ ...(gpu && { gpu }), ...(cpu && { cpu }), cloud, dataCenterId, template },
    cost: FREE_OF_CHARGE.includes(status) || isWaitingForGpus(pod) ? 0 : price,
    locked,
    globalNetworking: describeNetworking(pod, seen),
    runtime: status === 'RUNNING' && !pod.unreachable ? describeRuntime(sight) : null,
    createdAt: new Date(pod.createdAt).toISOString(),
    startedAt: pod.startedAt === null ? null : new Date(pod.startedAt).toISOString(),
    endpointId: pod.endpointId,
    node: pod.node ?? null,
    reason: describeReason(pod),
  };
}

function describeReason({ reason, unreachable }: PodState): string | null {
  if (!unreachable) return reason;
  return `${unreachable.why} since ${new Date(unreachable.since).toISOString()}`;
}

function isWaitingForGpus({ gpus, spec }: PodState): boolean {
  return spec.gpu !== undefined && gpus.length === 0;
}

function describeNetworking(
  { id, spec }: PodState,
  seen: Container | undefined,
): PodRecord['globalNetworking'] {
  const ip = spec.globalNetworking ? seen?.ip : null;
  return ip ? { enabled: true, ip, internalDns: nameInternalHost(id) } : { enabled: false };
}

function describeRuntime({ now, pod, seen, stats }: PodSight): PodRuntime {
  const { startedAt } = pod;
  return {
    ...(startedAt !== null && { uptime: Math.max(0, Math.floor((now - startedAt) / 1_000)) }),
    ...(stats && {
      gpus: stats.gpus.map(({ memoryUtil, util }) => ({
        util: toPercent(util),
        memoryUtil: toPercent(memoryUtil),
      })),
      cpu: { util: toPercent(stats.cpu) },
      memory: { util: toPercent(stats.memory) },
    }),
    ...(seen && { ports: seen.ports.map((port) => ({ ...port })) }),
  };
}

function toPercent(share: number): number {
  return Math.round(Math.min(100, Math.max(0, share)));
}
