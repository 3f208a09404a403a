// Checks which mounts a pod may have and which changes an update may make. Pure. The schema has already
// checked the form of each mount and that at most one network mount is given.

import { ProblemError } from '../../wire/problem.ts';
import type { PodMounts } from '../../wire/resources/pod.ts';

export interface MountedPod {
  mounts: PodMounts;
  /** Only GPU pods may have host-local storage. */
  isGpuPod: boolean;
}

/** Checks the mounts of a new pod. @throws ProblemError `rule_broken` */
export function checkMounts({ isGpuPod, mounts }: MountedPod): void {
  checkKinds(mounts);
  if (mounts.persistent && !isGpuPod) {
    throw breakRule('mounts.persistent', 'is not available for CPU pods; use a network mount');
  }
}

/**
 * Returns the mounts after an update. An update without mounts changes nothing.
 * @throws ProblemError `rule_broken`, or `invalid` for a persistent mount that would shrink
 */
export function updateMounts(pod: MountedPod, update: PodMounts | undefined): PodMounts {
  if (update === undefined) return pod.mounts;
  checkKinds(update);
  const { network, persistent } = update;
  if (persistent) return { persistent: updatePersistent(pod.mounts, persistent) };
  if (network) return { network: updateNetwork(pod.mounts, network) };
  return pod.mounts;
}

/** For creation and update alike. */
function checkKinds({ network, persistent }: PodMounts): void {
  if (network && persistent) {
    throw breakRule('mounts', 'at most one of persistent and network may be set');
  }
  if (network?.length === 0) {
    throw breakRule('mounts.network', 'must not be empty; mounts cannot be removed');
  }
}

function updatePersistent(
  { persistent: existing }: PodMounts,
  persistent: NonNullable<PodMounts['persistent']>,
): NonNullable<PodMounts['persistent']> {
  if (!existing) throw breakRule('mounts.persistent', KIND_IS_FIXED);
  if (persistent.size < existing.size) {
    const fault = `mounts.persistent.size: can only grow, it has ${existing.size} GB`;
    throw new ProblemError('invalid', fault, { errors: [fault] });
  }
  return persistent;
}

function updateNetwork(
  { network: existing }: PodMounts,
  network: NonNullable<PodMounts['network']>,
): NonNullable<PodMounts['network']> {
  if (!existing) throw breakRule('mounts.network', KIND_IS_FIXED);
  if (network[0]?.volumeId !== existing[0]?.volumeId) {
    throw breakRule('mounts.network[0].volumeId', 'cannot be changed');
  }
  return network;
}

const KIND_IS_FIXED = 'cannot be added; the pod was created without one';

function breakRule(path: string, rule: string): ProblemError {
  return new ProblemError('rule_broken', `${path}: ${rule}`, { errors: [`${path}: ${rule}`] });
}
