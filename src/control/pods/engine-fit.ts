// Compares a pod with what the engine can do. Pure: one sentence for each part of a request that the engine cannot
// carry out, each with the path of the part.
import type { Engine, EngineCapabilities } from '../../engine/engine.ts';
import { findLimitFaults, type PodKubernetes } from '../../wire/engine/kubernetes.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { PodSpec, PodState } from './pod-state.ts';

export interface EngineTraits {
  kind: Engine['kind'];
  capabilities: EngineCapabilities;
}

/** `sourceOf`: the engine's name of a network volume; undefined if the volume does not exist. */
export function findMisfits(
  {
    globalNetworking,
    kubernetes,
    mounts,
    ports,
  }: Pick<PodSpec, 'globalNetworking' | 'kubernetes' | 'mounts' | 'ports'>,
  { capabilities, kind }: EngineTraits,
  sourceOf: (volumeId: string) => string | undefined,
): string[] {
  const faults: string[] = [];
  const add = (path: string, why: string) =>
    faults.push(`${path}: not available on the engine ${kind}: ${why}`);
  if (globalNetworking && !capabilities.globalNetworking) {
    add('globalNetworking', 'it gives pods no network of their own');
  }
  const { protocols } = capabilities.ports;
  for (const [index, port] of ports.entries()) {
    if (protocols.some((protocol) => port.endsWith(`/${protocol}`))) continue;
    add(`ports[${index}]`, `its ports are ${protocols.join(', ')}`);
  }
  if (mounts.persistent && !capabilities.mounts.persistent) {
    add('mounts.persistent', 'it has no volumes that outlive a container');
  }
  for (const [index, { volumeId }] of (mounts.network ?? []).entries()) {
    const source = sourceOf(volumeId);
    const fault =
      source === undefined ? undefined : findMountMisfit(source, { capabilities, kind });
    if (fault !== undefined) faults.push(`mounts.network[${index}].volumeId: ${fault}`);
  }
  if (kubernetes) faults.push(...findKubernetesFaults(kubernetes, { capabilities, kind }));
  return faults;
}

/** Of `kubernetes` of a pod or template: one sentence for each part that it may not have. */
export function findKubernetesFaults(
  wanted: PodKubernetes,
  { capabilities, kind }: EngineTraits,
): string[] {
  if (capabilities.kubernetes) return findLimitFaults(wanted, capabilities.kubernetes);
  return [`kubernetes: not available on the engine ${kind}: leave it out`];
}

/** Why the engine cannot mount the network volume that it knows by this name; undefined if it can. */
export function findMountMisfit(
  source: string,
  { capabilities, kind }: EngineTraits,
): string | undefined {
  const form = source.startsWith('/') ? 'folder' : 'name';
  if (capabilities.mounts.network.includes(form)) return undefined;
  const why =
    form === 'folder'
      ? 'it mounts no folders of a machine; declare the volume without a path'
      : 'it knows no volumes by name';
  return `not available on the engine ${kind}: ${why}`;
}

/**
 * Whether a stopped pod finds its files again: on its disk, or on a volume. Workers of endpoints have none to keep.
 */
export function canStop(
  { endpointId, spec }: Pick<PodState, 'endpointId' | 'spec'>,
  { capabilities }: Pick<EngineTraits, 'capabilities'>,
): boolean {
  const { network, persistent } = spec.mounts;
  return Boolean(capabilities.disk.keptOverStop || endpointId !== null || persistent || network);
}

/** @throws ProblemError `invalid` for a pod that cannot be stopped */
export function checkStop(pod: Pick<PodState, 'endpointId' | 'spec'>, engine: EngineTraits): void {
  if (canStop(pod, engine)) return;
  const fault =
    `stop: not available on the engine ${engine.kind}: it does not keep the disk of a stopped pod; ` +
    'create the pod with a mount for the files that it must keep, or terminate it';
  throw new ProblemError('invalid', fault, { errors: [fault] });
}
