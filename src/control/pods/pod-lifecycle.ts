// What a pod becomes when a user asks for something, when a step has had a result, or when its container is observed, and
// its next step: pure functions of (pod, request, result or observation, now). A pod's status changes only here.
import type { Container } from '../../engine/engine.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { PodAction, PodStatus } from '../../wire/resources/pod.ts';
import { openMeter } from './pod-meter.ts';
import type { PodSpec, PodState } from './pod-state.ts';
import { noteParked, noteWaking, noteWoken, type Parked } from './worker-timeline.ts';

/** Reasons in the records of workers. */
const STOPPED_BY_USER = 'its user stopped it';
const TERMINATED_BY_USER = 'its user terminated it';

/** Wait before the first restart after an unclean exit, ms; doubled for each further one. */
const FIRST_RESTART_MS = 1_000;
/** Unclean exits in a row after which the pod is given up. */
const MAX_FAILURES = 3;
/** After a run of this length, the next unclean exit counts as the first. */
const WELL_AFTER_MS = 60_000;

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
  given: Pick<PodState, 'id' | 'userId' | 'endpointId' | 'node' | 'spare' | 'spec'>,
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

function end(pod: PodState, now: number): PodState {
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

/** Its worker has left the GPUs: they are free for others. */
export function parkPod(pod: PodState, parked: Parked, now: number): PodState {
  if (pod.desired !== 'running' || pod.parked || pod.gpus.length === 0) return pod;
  const { bytes } = parked;
  const noted = noteParked(useSpare(pod), parked, now);
  return { ...noted, gpus: [], parked: { since: now, gpus: pod.gpus, bytes } };
}

/** Its worker is no longer a spare one on its way to being parked. */
export function useSpare(pod: PodState): PodState {
  const { spare, ...used } = pod;
  return spare ? used : pod;
}

/** The GPUs of a parked pod are its own again: its worker may wake. */
export function returnGpus(pod: PodState, now: number): PodState {
  if (pod.desired !== 'running' || !isParked(pod)) return pod;
  return { ...noteWaking(pod, now), gpus: pod.parked?.gpus ?? [] };
}

/** Its worker is awake. */
export function settleWake(pod: PodState, now: number): PodState {
  return isParked(pod) || !pod.parked ? pod : withoutParking(noteWoken(pod, now));
}

/** Without GPUs: a worker that wakes has them. */
export function isParked({ gpus, parked }: Pick<PodState, 'gpus' | 'parked'>): boolean {
  return parked !== undefined && gpus.length === 0;
}

function withoutParking(pod: PodState): PodState {
  const { parked, ...rest } = pod;
  return parked ? rest : pod;
}

/** Container and volumes are removed, and the container is no longer observed. */
export function settleRemoval(pod: PodState): PodState {
  return pod.desired === 'gone' ? change(pod, { removed: true, gpus: [] }) : pod;
}

// --- observations of the container ---------------------------------------------------------------

/** Applies the container's state. */
export function observe(pod: PodState, seen: Container | undefined, now: number): PodState {
  const own = currentContainer(pod, seen);
  const settled = settleStop(noteReached(pod), own);
  if (settled.desired === 'running') return observeWanted(settled, own, now);
  return observeUnwanted(settled, own, seen);
}

/** Why nothing is known of a pod's container. */
export interface Unreachable {
  /** For people, to be continued with "since …": `node a is gone`. */
  why: string;
  /** No live node has the container. Otherwise its node may answer at any moment. */
  isGone: boolean;
}

/**
 * Nothing is known of its container, so nothing is concluded: it may still run. The exception is a pod that is to be
 * removed: its record need not wait for its node, which removes containers without a pod when it is back.
 */
export function noteUnreachable(
  pod: PodState,
  { isGone, why }: Unreachable,
  now: number,
): PodState {
  const since = pod.unreachable?.since ?? now;
  const marked = change(pod, { unreachable: { since, why } });
  return isGone ? settleRemoval(marked) : marked;
}

function noteReached(pod: PodState): PodState {
  const { unreachable, ...reached } = pod;
  return unreachable ? reached : pod;
}

/** `seen` if it has this generation. */
function currentContainer(pod: PodState, seen: Container | undefined): Container | undefined {
  return seen?.generation === pod.generation ? seen : undefined;
}

/** A stop is complete when the container does not run, even if a start came meanwhile. */
function settleStop(pod: PodState, own: Container | undefined): PodState {
  if (!pod.stopping || isActive(own)) return pod;
  return change(pod, { stopping: false, endedRun: lastEndOf(pod, own) });
}

function observeUnwanted(
  pod: PodState,
  own: Container | undefined,
  seen: Container | undefined,
): PodState {
  if (isActive(seen)) return pod;
  const reason = pod.status === 'EXITED' ? reasonOfUser(pod) : pod.reason;
  return change(withoutParking(pod), { gpus: [], endedRun: lastEndOf(pod, own), reason });
}

function observeWanted(pod: PodState, own: Container | undefined, now: number): PodState {
  if (pod.parked && !isActive(own)) return endParked(pod, own, now);
  if (!own) return observeMissing(pod, now);
  if (own.state === 'running') return observeRunning(pod, own, now);
  if (own.state === 'starting') return observeStarting(pod, own, now);
  if (own.state === 'exited' && runOf(own) !== pod.endedRun) return observeEnd(pod, own, now);
  return advance(pod, needsGpus(pod) ? 'PROVISIONING' : 'STARTING');
}

function observeMissing(pod: PodState, now: number): PodState {
  if (pod.leaving !== undefined && pod.endpointId !== null) return endWorker(pod, pod.leaving, now);
  if (pod.status === 'RUNNING') {
    const { leaving, ...rest } = pod;
    const why = leaving === undefined ? 'its container was lost' : leaving;
    const reason = `${why}; a new one is created with a new disk`;
    return change(rest, { status: 'STARTING', reason, startedAt: null, endedRun: null });
  }
  const isFirst = pod.status === 'PROVISIONING' || needsGpus(pod);
  return change(advance(pod, isFirst ? 'PROVISIONING' : 'STARTING'), { endedRun: null });
}

/** It has no GPUs with which it could start again; its endpoint starts another worker when it needs one. */
function endParked(pod: PodState, own: Container | undefined, now: number): PodState {
  const ended = { ...withoutParking(pod), endedRun: lastEndOf(pod, own), endedAt: now };
  const reason = reasonOfUser(pod) ?? 'it ended while it was parked';
  return { ...ended, status: 'EXITED', desired: 'stopped', gpus: [], reason };
}

/** The engine was told to start it. */
function observeStarting(pod: PodState, { waiting }: Container, now: number): PodState {
  // It is still stopping because of a stop before the start.
  if (pod.stopping) return pod;
  if (waiting?.isFinal) return giveUp(pod, waiting.message, now);
  return change(advance(pod, 'STARTING'), { reason: waiting?.message ?? null, startedAt: null });
}

function observeRunning(pod: PodState, own: Container, now: number): PodState {
  // It is still stopping because of a stop before the start.
  if (pod.stopping) return pod;
  const startedAt = own.startedAt ?? pod.startedAt ?? now;
  const failures = now - startedAt >= WELL_AFTER_MS ? 0 : pod.failures;
  const known = noteLeaving(pod, own);
  const running = change(known, { startedAt, failures, retryAt: null });
  switch (own.health) {
    case 'none':
    case 'healthy':
      return change(running, { status: 'RUNNING', reason: own.leaving ?? null });
    case 'starting':
      return advance(running, 'STARTING');
    case 'unhealthy':
      return change(running, { status: 'STARTING', reason: 'its health check fails' });
  }
}

/** Returns the same object if nothing is new. */
function noteLeaving(pod: PodState, { leaving }: Container): PodState {
  if (pod.leaving === leaving) return pod;
  const { leaving: _, ...rest } = pod;
  return leaving === undefined ? rest : { ...rest, leaving };
}

/** The container is gone with its machine: the endpoint starts another worker, and not this one again. */
function endWorker(pod: PodState, leaving: string, now: number): PodState {
  const ended = { ...pod, leaving, reason: leaving, endedAt: now };
  return { ...ended, status: 'EXITED', desired: 'stopped', gpus: [] };
}

/** It has not failed: it starts again at once, or its endpoint replaces it. */
function observeDisruption(pod: PodState, leaving: string, endedAt: number): PodState {
  if (pod.endpointId !== null) return endWorker(pod, leaving, endedAt);
  return { ...pod, status: 'STARTING', retryAt: null, reason: `${leaving}; it restarts` };
}

/** The container has exited by itself, or with its machine. */
function observeEnd(pod: PodState, own: Container, now: number): PodState {
  const endedAt = own.endedAt ?? now;
  const over = { ...pod, endedRun: runOf(own), startedAt: own.startedAt ?? pod.startedAt };
  if (own.leaving !== undefined) return observeDisruption(over, own.leaving, endedAt);
  if (own.exitCode === 0) {
    return { ...end(over, endedAt), status: 'EXITED', desired: 'stopped', gpus: [] };
  }
  const ended = { ...over, exitCode: own.exitCode };
  const how = describeEnd(own);
  const wasWell = own.startedAt !== null && endedAt - own.startedAt >= WELL_AFTER_MS;
  const failures = wasWell ? 1 : pod.failures + 1;
  if (failures >= MAX_FAILURES) {
    return giveUp({ ...ended, failures }, `${how}, ${failures} times in a row`, endedAt);
  }
  const retryAt = now + FIRST_RESTART_MS * 2 ** (failures - 1);
  return { ...ended, status: 'STARTING', failures, retryAt, reason: `${how}; it restarts` };
}

function describeEnd({ endReason, exitCode, outOfMemory }: Container): string {
  if (outOfMemory) return 'it ran out of memory';
  return endReason ?? `it exited with code ${exitCode}`;
}

/** The last run whose end is handled; `own` does not run. */
function lastEndOf(pod: PodState, own: Container | undefined): number | null {
  return own?.state === 'exited' ? runOf(own) : pod.endedRun;
}

function runOf(own: Container): number {
  return own.startedAt ?? 0;
}

/** A new status invalidates the reason of the old one. */
function advance(pod: PodState, status: PodStatus): PodState {
  if (pod.status === status) return pod;
  return { ...pod, status, reason: pod.retryAt === null ? null : pod.reason };
}

// --- the next step -------------------------------------------------------------------------------

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

// --- used by all of them -------------------------------------------------------------------------

/** It runs, or will without a further step. */
function isActive(seen: Container | undefined): boolean {
  return seen?.state === 'running' || seen?.state === 'starting';
}

function needsGpus({ gpus, spec }: PodState): boolean {
  return spec.gpu !== undefined && gpus.length === 0;
}

/** Returns the same object if nothing changes. */
function change(pod: PodState, fields: Partial<PodState>): PodState {
  const changed = { ...pod, ...fields };
  return JSON.stringify(changed) === JSON.stringify(pod) ? pod : changed;
}
