// Follows the rollout of a version until the endpoint runs it, or keeps the earlier one.
import { setTimeout as sleep } from 'node:timers/promises';
import type { EndpointRecord } from '../../wire/resources/endpoint.ts';
import type { Rollout } from '../../wire/resources/rollout.ts';

const POLL_MS = 500;

export interface RolloutGoal {
  version: number;
  /** Of the rollout that is followed. */
  startedAt: string;
}

export type RolloutEnd =
  | { kind: 'done' }
  | { kind: 'failed'; reason: string }
  /** Another deployment began before the end. */
  | { kind: 'replaced'; version: number }
  | { kind: 'interrupted' };

/** Undefined while the rollout continues. */
export function findEnd(
  { rollout }: Pick<EndpointRecord, 'rollout'>,
  { startedAt, version }: RolloutGoal,
): RolloutEnd | undefined {
  if (!rollout) return { kind: 'failed', reason: 'the platform knows no rollout of the endpoint' };
  if (rollout.version !== version || rollout.startedAt !== startedAt) {
    return { kind: 'replaced', version: rollout.version };
  }
  if (rollout.state === 'DONE') return { kind: 'done' };
  if (rollout.state !== 'FAILED') return undefined;
  return { kind: 'failed', reason: rollout.reason ?? 'the platform gives no reason' };
}

export function isUnderWay(rollout: Rollout | null): boolean {
  return rollout?.state === 'CHECKING' || rollout?.state === 'ROLLING';
}

export function describeProgress(rollout: Rollout): string {
  const { reason, state, version, workersReady, workersTotal } = rollout;
  const waiting = reason === null ? '' : ` (${reason})`;
  if (state === 'CHECKING') return `version ${version}: a worker loads the handler${waiting}`;
  const workers = workersTotal === 1 ? '1 worker' : `${workersTotal} workers`;
  return `version ${version}: ${workersReady} of ${workers} ready${waiting}`;
}

interface FollowedRollout {
  goal: RolloutGoal;
  /** Reads the endpoint; an error ends the following. */
  read: () => Promise<EndpointRecord>;
  show: (text: string) => void;
  /** Resolves when nobody wants to follow any more. */
  interrupted: Promise<unknown>;
}

export async function followRollout({
  goal,
  interrupted,
  read,
  show,
}: FollowedRollout): Promise<RolloutEnd> {
  const stop = interrupted.then(() => 'interrupted' as const);
  for (;;) {
    const endpoint = await Promise.race([read(), stop]);
    if (endpoint === 'interrupted') return { kind: 'interrupted' };
    const end = findEnd(endpoint, goal);
    if (end) return end;
    if (endpoint.rollout) show(describeProgress(endpoint.rollout));
    if ((await Promise.race([sleep(POLL_MS), stop])) === 'interrupted') {
      return { kind: 'interrupted' };
    }
  }
}
