// What a pod becomes when its container is observed: pure functions of (pod, observation, now). They return the same
// object if nothing is new.
import type { Container } from '../../engine/engine.ts';
import type { PodStatus } from '../../wire/resources/pod.ts';
import {
  change,
  end,
  giveUp,
  isActive,
  needsGpus,
  reasonOfUser,
  settleRemoval,
} from './pod-lifecycle.ts';
import type { PodState } from './pod-state.ts';

/** Wait before the first restart after an unclean exit, ms; doubled for each further one. */
const FIRST_RESTART_MS = 1_000;
/** Unclean exits in a row after which the pod is given up. */
const MAX_FAILURES = 3;
/** After a run of this length, the next unclean exit counts as the first. */
const WELL_AFTER_MS = 60_000;

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
  return change(pod, { gpus: [], endedRun: lastEndOf(pod, own), reason });
}

function observeWanted(pod: PodState, own: Container | undefined, now: number): PodState {
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
