// Which mounts a pod may have, and what an update may change of them. Pure. That each mount is whole,
// and that there is one network mount at most, is seen to before, by the schema.

import { ProblemError } from '../../wire/problem.ts';
import type { PodMounts } from '../../wire/resources/pod.ts';

export interface MountedPod {
  mounts: PodMounts;
  /** Host-local storage is for these alone. */
  isGpuPod: boolean;
}

/** Of a pod that is to be made. @throws ProblemError `rule_broken` */
export function checkMounts({ isGpuPod, mounts }: MountedPod): void {
  checkKinds(mounts);
  if (mounts.persistent && !isGpuPod) {
    throw breakRule('mounts.persistent', 'is not for CPU pods: take a network mount');
  }
}

/**
 * The mounts after an update; one without mounts, or with none in them, changes nothing.
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
    throw breakRule('mounts.network', 'must not be empty: mounts cannot be cleared');
  }
}

function updatePersistent(
  { persistent: existing }: PodMounts,
  persistent: NonNullable<PodMounts['persistent']>,
): NonNullable<PodMounts['persistent']> {
  if (!existing) throw breakRule('mounts.persistent', KIND_IS_FIXED);
  if (persistent.size < existing.size) {
    const fault = `mounts.persistent.size: must not be smaller than it is, ${existing.size}`;
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

const KIND_IS_FIXED = 'the pod was created without one, and the kind of its mounts is for good';

function breakRule(path: string, rule: string): ProblemError {
  return new ProblemError('rule_broken', `${path}: ${rule}`, { errors: [`${path}: ${rule}`] });
}
