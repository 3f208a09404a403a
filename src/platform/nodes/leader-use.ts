// Reads what a user uses of the quotas from the node that leads: other nodes know neither pods nor versions.
import type { Placement } from '../../api/forwarding/placement.ts';
import { NodeCallError, type NodeClient } from '../../api/nodes/node-client.ts';
import { ProblemError } from '../../wire/problem.ts';
import { type UseCounts, useCounts } from '../../wire/resources/limits.ts';
import { callNode } from './node-calls.ts';

export interface LeaderUseOptions {
  client: NodeClient;
  placement: Pick<Placement, 'find'>;
  /** On this node, if it leads. */
  countHere: (userId: string) => Promise<UseCounts>;
}

const RETRY = { retryAfterMs: 1_000 };

/** @throws ProblemError `unavailable` */
export async function readLeaderUse(
  userId: string,
  { client, countHere, placement }: LeaderUseOptions,
): Promise<UseCounts> {
  const leader = placement.find(undefined);
  if (leader.kind === 'here') return countHere(userId);
  if (leader.kind === 'none') throw new ProblemError('unavailable', 'no node leads now', RETRY);
  try {
    return useCounts.parse(await callNode(client, leader.url, 'userUse', { userId }));
  } catch (cause) {
    if (!(cause instanceof NodeCallError)) throw cause;
    const detail = 'the node that leads does not answer';
    throw new ProblemError('unavailable', detail, { ...RETRY, cause });
  }
}
