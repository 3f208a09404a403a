// Decides the next step for a pod. It follows from the record and the observation, never from earlier steps, so after an
// interruption at any point the same steps continue. pod-steps.ts carries them out.
import type { Container } from '../../engine/engine.ts';
import { isActive, needsGpus } from './pod-lifecycle.ts';
import type { PodState } from './pod-state.ts';

export type PodStep =
  /** The pod is in its desired state. */
  | { kind: 'none' }
  /** Do nothing before this time, Unix ms. */
  | { kind: 'wait'; until: number }
  /** Find GPUs for it; if `among` is set, exactly those, because its container starts with no others. */
  | { kind: 'allot'; among: readonly string[] | null }
  | { kind: 'create' }
  | { kind: 'start' }
  | { kind: 'stop' }
  | { kind: 'remove'; volumes: 'keep' | 'remove' };

/** `pod` is the result of `observe` with the same `seen`. */
export function decideStep(pod: PodState, seen: Container | undefined, now: number): PodStep {
  if (pod.desired === 'gone') return decideEnd(pod, seen);
  const isRunning = isActive(seen);
  const isOlder = seen !== undefined && seen.generation !== pod.generation;
  if (isRunning && (isOlder || pod.stopping || pod.desired === 'stopped')) return { kind: 'stop' };
  if (isOlder) return { kind: 'remove', volumes: 'keep' };
  if (isRunning || pod.desired === 'stopped') return { kind: 'none' };
  if (pod.retryAt !== null && pod.retryAt > now) return { kind: 'wait', until: pod.retryAt };
  if (needsGpus(pod)) return { kind: 'allot', among: listBoundGpus(seen) };
  return { kind: seen ? 'start' : 'create' };
}

/** Volumes may exist without a container, so they are removed in any case. */
function decideEnd(pod: PodState, seen: Container | undefined): PodStep {
  if (pod.removed && !seen) return { kind: 'none' };
  if (isActive(seen)) return { kind: 'stop' };
  return { kind: 'remove', volumes: 'remove' };
}

/** The only GPUs with which the container can start, and with it its disk; null: it can have any. */
export function listBoundGpus(seen: Container | undefined): readonly string[] | null {
  return seen && seen.gpus.length > 0 && !seen.gpusAtStart ? seen.gpus : null;
}
