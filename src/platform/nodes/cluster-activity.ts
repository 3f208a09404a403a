// Reads what happens at endpoints, whichever node serves them.
import { z } from 'zod';
import type { Placement } from '../../api/forwarding/placement.ts';
import type { NodeClient } from '../../api/nodes/node-client.ts';
import { readActivity } from '../../queue/activity/read-activity.ts';
import type { Queues } from '../../queue/queues.ts';
import { type EndpointActivity, endpointActivity } from '../../wire/resources/activity.ts';
import { callNode } from './node-calls.ts';

export interface ClusterActivityOptions {
  queues: Pick<Queues, 'activity'>;
  placement: Pick<Placement, 'find'>;
  client: NodeClient;
}

/** Nodes of the version before do not send the rate. */
const answer = z.record(
  z.string(),
  endpointActivity.extend({ failureRate: endpointActivity.shape.failureRate.default(null) }),
);

/** Each node is asked once. Endpoints of a node that does not answer are missing. Never rejects. */
export async function readClusterActivity(
  { client, placement, queues }: ClusterActivityOptions,
  endpointIds: readonly string[],
): Promise<Record<string, EndpointActivity>> {
  const here: string[] = [];
  const elsewhere = new Map<string, string[]>();
  for (const id of endpointIds) {
    const place = placement.find(id);
    if (place.kind === 'here') here.push(id);
    if (place.kind === 'node') elsewhere.set(place.url, [...(elsewhere.get(place.url) ?? []), id]);
  }
  const found = await Promise.all([
    readActivity(queues, here),
    ...[...elsewhere].map(([url, ids]) =>
      callNode(client, url, 'activity', { endpointIds: ids })
        .then((body) => answer.parse(body))
        // The node is gone, or of an earlier version.
        .catch(() => ({})),
    ),
  ]);
  return Object.assign({}, ...found);
}
