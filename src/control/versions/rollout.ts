// Decides how a deployment of a version goes on: from the endpoint's stored rollout, its check worker and its
// workers. Pure; workforce.ts carries the decisions out.
import type { EndpointDeployment, StoredRollout } from '../../wire/resources/endpoint.ts';

export interface Deploying {
  version: number;
  timeoutMs: number;
  now: number;
}

/** Crashes of the version's workers after which its rollout fails, unless more of its workers are ready. */
const MAX_CRASHES = 3;

/** Starts a rollout. The running version needs no check. */
export function beginRollout(
  deployment: EndpointDeployment,
  { now, timeoutMs, version }: Deploying,
): EndpointDeployment {
  const isRunning = deployment.version === version;
  const rollout: StoredRollout = {
    version,
    from: deployment.version ?? null,
    state: isRunning ? 'ROLLING' : 'CHECKING',
    reason: null,
    workersReady: 0,
    workersTotal: 0,
    startedAt: new Date(now).toISOString(),
    endedAt: null,
    checkUntil: now + timeoutMs,
    fromSource: deployment.source,
  };
  return { ...deployment, rollout };
}

/** The version that a check worker has to load; undefined without a rollout under way. */
export function candidateOf({ rollout }: EndpointDeployment): number | undefined {
  return rollout?.state === 'CHECKING' ? rollout.version : undefined;
}

/** The pod of a check worker. */
interface CheckWorker {
  podId: string;
  isConnected: boolean;
  /** Why it will never connect; undefined: it still may. */
  fault: string | undefined;
}

export interface CheckInput {
  now: number;
  rollout: StoredRollout;
  worker: CheckWorker | undefined;
  /** Why no check worker can start now: no free GPU, a full machine, a failed creation. */
  obstacle: string | undefined;
}

export type CheckVerdict =
  | { step: 'start' }
  | { step: 'wait'; reason: string | null }
  | { step: 'pass' }
  | { step: 'fail'; reason: string };

export function judgeCheck({ now, obstacle, rollout, worker }: CheckInput): CheckVerdict {
  if (worker?.isConnected) return { step: 'pass' };
  if (worker?.fault !== undefined) return { step: 'fail', reason: worker.fault };
  const isOver = now >= rollout.checkUntil;
  if (worker) {
    return isOver
      ? { step: 'fail', reason: `the worker did not connect within ${allowed(rollout)}` }
      : { step: 'wait', reason: null };
  }
  if (isOver) {
    const why = obstacle === undefined ? '' : `: ${obstacle}`;
    return { step: 'fail', reason: `no worker could be started within ${allowed(rollout)}${why}` };
  }
  return obstacle === undefined ? { step: 'start' } : { step: 'wait', reason: obstacle };
}

function allowed({ checkUntil, startedAt }: StoredRollout): string {
  return `${Math.round((checkUntil - Date.parse(startedAt)) / 1_000)} s`;
}

/** The check worker has connected: the endpoint runs the version from now on. */
export function passCheck(deployment: EndpointDeployment): EndpointDeployment {
  const { rollout } = deployment;
  if (rollout?.state !== 'CHECKING') return deployment;
  return {
    ...deployment,
    source: 'VERSION',
    version: rollout.version,
    rollout: { ...rollout, state: 'ROLLING', reason: null },
  };
}

export function failCheck(
  deployment: EndpointDeployment,
  { now, reason }: { now: number; reason: string },
): EndpointDeployment {
  const { rollout } = deployment;
  if (rollout?.state !== 'CHECKING') return deployment;
  const endedAt = new Date(now).toISOString();
  return { ...deployment, rollout: { ...rollout, state: 'FAILED', reason, endedAt } };
}

/** How the version's workers have fared since the check worker connected. */
interface RollHealth {
  crashes: number;
  /** Connected workers of the version. */
  ready: number;
}

/** A few crashes, of a job perhaps, do not outweigh a fleet that runs. */
export function hasRollFailed({ crashes, ready }: RollHealth): boolean {
  return crashes >= MAX_CRASHES && crashes > ready;
}

/** What ran before the rollout comes back: the earlier version, the template, or nothing. */
export function failRoll(
  deployment: EndpointDeployment,
  { now, reason }: { now: number; reason: string },
): EndpointDeployment {
  const { rollout } = deployment;
  if (rollout?.state !== 'ROLLING') return deployment;
  const endedAt = new Date(now).toISOString();
  const { version: _failed, ...rest } = deployment;
  const { from, fromSource } = rollout;
  const before = { source: fromSource, ...(from !== null && { version: from }) };
  return { ...rest, ...before, rollout: { ...rollout, state: 'FAILED', reason, endedAt } };
}

/** The workers after a pass. */
export interface RolloutProgress {
  now: number;
  /** Workers that run the version and have connected. */
  ready: number;
  /** Workers of the version that have not connected yet. */
  starting: number;
  /** Other workers that are not draining. */
  outdated: number;
  /** Others that are draining. */
  draining: number;
  /** Why it does not go on; null: it does. */
  reason: string | null;
}

/** Done as soon as no worker of another version takes jobs. */
export function noteProgress(
  deployment: EndpointDeployment,
  { draining, now, outdated, ready, reason, starting }: RolloutProgress,
): EndpointDeployment {
  const { rollout } = deployment;
  if (!rollout || (rollout.state !== 'ROLLING' && rollout.state !== 'CHECKING')) return deployment;
  const counts = { workersReady: ready, workersTotal: ready + starting + outdated + draining };
  const isDone = rollout.state === 'ROLLING' && outdated === 0 && (ready > 0 || starting === 0);
  const end = isDone
    ? ({ state: 'DONE', reason: null, endedAt: new Date(now).toISOString() } as const)
    : { reason };
  return { ...deployment, rollout: { ...rollout, ...counts, ...end } };
}
