// What a pod becomes when a user asks for something, or when a step has had a result, and the next step: pure
// functions of (pod, request, result or observation, now). A pod's status changes only here and in
// pod-observation.ts.
import type { Container } from '../../engine/engine.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { PodAction, PodStatus } from '../../wire/resources/pod.ts';
import { openMeter } from './pod-meter.ts';
import type { PodSpec, PodState } from './pod-state.ts';

/** Reasons in the records of workers. */
const STOPPED_BY_USER = 'its user stopped it';
const TERMINATED_BY_USER = 'its user terminated it';

const ACTIONS: Readonly<Record<PodStatus, readonly PodAction[]>> = {
  PROVISIONING: ['stop', 'terminate'],
  STARTING: ['stop', 'terminate'],
  RUNNING: ['stop', 'restart', 'terminate'],
  EXITED: ['start', 'terminate'],
  ERROR: ['start', 'terminate'],
  TERMINATED: [],
};

/** A new pod as requested. */
export function createPod(
  given: Pick<PodState, 'id' | 'userId' | 'endpointId' | 'node' | 'spec'>,
  now: number,
): PodState {
  return {
    ...given,
    status: 'PROVISIONING',
    desired: 'running',
    generation: 1,
    stopping: false,
    endedRun: null,
    gpus: [],
    failures: 0,
    retryAt: null,
    reason: null,
    removed: false,
    meter: openMeter(now),
    createdAt: now,
    startedAt: null,
    endedAt: null,
  };
}

/** A locked pod can be neither stopped nor reset. */
export function listActions({ spec, status }: PodState): PodAction[] {
  return ACTIONS[status].filter((action) => !spec.locked || action === 'start');
}

/** @throws ProblemError `conflict` for an action that is not in `listActions` */
export function act(pod: PodState, action: PodAction, now: number): PodState {
  if (!listActions(pod).includes(action)) throw refuseAction(pod, action);
  switch (action) {
    case 'start':
      return { ...begin(pod), status: needsGpus(pod) ? 'PROVISIONING' : 'STARTING' };
    case 'stop':
      return {
        ...noteUser(end(pod, now), STOPPED_BY_USER),
        status: 'EXITED',
        desired: 'stopped',
        stopping: true,
      };
    case 'restart':
      return { ...renewContainer(begin(pod)), status: 'STARTING' };
    case 'terminate':
      return noteUser(terminate(pod, now), TERMINATED_BY_USER);
  }
}

/** Also for a locked pod. */
export function terminate(pod: PodState, now: number): PodState {
  if (pod.status === 'TERMINATED') return pod;
  return { ...end(pod, now), status: 'TERMINATED', desired: 'gone' };
}

/** With a new container if it needs one; its own volumes stay. */
export function recreate(pod: PodState, spec: PodSpec): PodState {
  const renewed = { ...renewContainer(pod), spec, failures: 0, retryAt: null };
  if (pod.desired !== 'running') return renewed;
  const status = pod.status === 'PROVISIONING' ? 'PROVISIONING' : 'STARTING';
  return { ...renewed, status, reason: null, startedAt: null };
}

function begin(pod: PodState): PodState {
  const fresh = { failures: 0, retryAt: null, reason: null, startedAt: null, endedAt: null };
  return { ...pod, ...fresh, desired: 'running' };
}

export function end(pod: PodState, now: number): PodState {
  return { ...pod, failures: 0, retryAt: null, reason: reasonOfUser(pod), endedAt: now };
}

/** Ending a worker is up to its endpoint: if a user ends it, the record says so. */
function noteUser(pod: PodState, reason: string): PodState {
  return pod.endpointId === null ? pod : { ...pod, reason };
}

/** What the user did to the worker; null: nothing. */
export function reasonOfUser({ reason }: Pick<PodState, 'reason'>): string | null {
  return reason === STOPPED_BY_USER || reason === TERMINATED_BY_USER ? reason : null;
}

function renewContainer(pod: PodState): PodState {
  return { ...pod, generation: pod.generation + 1, stopping: false, endedRun: null };
}

function refuseAction(pod: PodState, action: PodAction): ProblemError {
  const { spec, status } = pod;
  if (spec.locked && ACTIONS[status].includes(action)) {
    return new ProblemError('conflict', `the pod is locked: unlock it before you ${action} it`);
  }
  const possible = listActions(pod).join(', ') || 'nothing';
  const detail = `the pod is ${status}: it cannot ${action}; what can be done is: ${possible}`;
  return new ProblemError('conflict', detail);
}

// --- results of steps -----------------------------------------------------------------------------

/** The engine says that it can never run: only another start tries again. */
export function giveUp(pod: PodState, reason: string, now: number): PodState {
  if (pod.desired !== 'running') return pod;
  // Its container may be in any state; its later observations are no news.
  const given = { status: 'ERROR', desired: 'stopped', reason, retryAt: null } as const;
  return { ...pod, ...given, endedAt: now };
}

/** The engine does not respond, or nothing is free: the pod stays as it is. */
export function noteDelay(pod: PodState, reason: string): PodState {
  return change(pod, { reason });
}

/** What a worker waits for that its engine was told to start, by the seam's words for it. */
export function findWait(seen: Container | undefined): 'capacity' | 'image' | undefined {
  const cause = seen?.state === 'starting' ? seen.waiting?.cause : undefined;
  return cause === 'other' ? undefined : cause;
}

const PULL = 'its image is being pulled: ';

/** Its container is created when the image is there. */
export function notePull(pod: PodState, image: string): PodState {
  return pod.desired === 'running' ? change(pod, { reason: `${PULL}${image}` }) : pod;
}

/** The image that is being pulled for the pod. */
export function findPull({ reason }: Pick<PodState, 'reason'>): string | undefined {
  return reason?.startsWith(PULL) ? reason.slice(PULL.length) : undefined;
}

export function giveGpus(pod: PodState, gpus: readonly string[]): PodState {
  return needsGpus(pod) && pod.desired === 'running'
    ? { ...pod, gpus: [...gpus], reason: null }
    : pod;
}

/** Container and volumes are removed, and the container is no longer observed. */
export function settleRemoval(pod: PodState): PodState {
  return pod.desired === 'gone' ? change(pod, { removed: true, gpus: [] }) : pod;
}

// --- used by the observations and the next step too -----------------------------------------------

/** It runs, or will without a further step. */
export function isActive(seen: Container | undefined): boolean {
  return seen?.state === 'running' || seen?.state === 'starting';
}

export function needsGpus({ gpus, spec }: PodState): boolean {
  return spec.gpu !== undefined && gpus.length === 0;
}

/** Returns the same object if nothing changes. */
export function change(pod: PodState, fields: Partial<PodState>): PodState {
  const changed = { ...pod, ...fields };
  return JSON.stringify(changed) === JSON.stringify(pod) ? pod : changed;
}

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

/**
 * Decides the next step for a pod. It follows from the record and the observation, never from earlier steps, so after an
 * interruption at any point the same steps continue. `pod` is the result of `observe` with the same `seen`.
 */
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
