// Sends changes of sessions to the node that leads, because only the leader writes them.
import type { Placement } from '../../api/forwarding/placement.ts';
import { NodeCallError, type NodeClient } from '../../api/nodes/node-client.ts';
import type { SessionChange } from '../../control/sessions/sessions.ts';
import { ProblemError } from '../../wire/problem.ts';
import { callNode } from './node-calls.ts';

export interface LeaderRoute {
  client: NodeClient;
  /** Undefined while this node starts. */
  findLeader: () => Pick<Placement, 'find'> | undefined;
}

/** @returns false if this node leads @throws ProblemError `unavailable` if the leader cannot be reached */
export async function sendToLeader(
  change: SessionChange,
  { client, findLeader }: LeaderRoute,
): Promise<boolean> {
  const leader = findLeader()?.find(undefined) ?? { kind: 'none' };
  if (leader.kind === 'here') return false;
  const retry = { retryAfterMs: 1_000 };
  if (leader.kind === 'none') throw new ProblemError('unavailable', 'no node leads now', retry);
  try {
    await callNode(client, leader.url, 'session', change);
    return true;
  } catch (cause) {
    if (!(cause instanceof NodeCallError)) throw cause;
    throw new ProblemError('unavailable', 'the node that leads does not answer', {
      ...retry,
      cause,
    });
  }
}
