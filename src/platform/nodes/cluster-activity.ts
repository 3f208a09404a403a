// Reads what happens at endpoints, whichever node serves them.
import { z } from 'zod';
import type { Placement } from '../../api/forwarding/placement.ts';
import type { NodeClient } from '../../api/nodes/node-client.ts';
import { readActivity } from '../../queue/activity/read-activity.ts';
import { type FailedListing, type FailedPage, mergeFailed } from '../../queue/job-lists.ts';
import type { Queues } from '../../queue/queues.ts';
import { jobSummary } from '../../wire/answer-schemas.ts';
import { type EndpointActivity, endpointActivity } from '../../wire/resources/activity.ts';
import { callNode } from './node-calls.ts';

export interface ClusterActivityOptions {
  queues: Pick<Queues, 'activity' | 'jobs'>;
  placement: Pick<Placement, 'find'>;
  client: NodeClient;
}

const answer = z.record(z.string(), endpointActivity);

/** Each node is asked once. Endpoints of a node that does not answer are missing. Never rejects. */
export async function readClusterActivity(
  { client, placement, queues }: ClusterActivityOptions,
  endpointIds: readonly string[],
): Promise<Record<string, EndpointActivity>> {
  const { elsewhere, here } = group(placement, endpointIds);
  const found = await Promise.all([
    readActivity(queues, here),
    ...[...elsewhere].map(([url, ids]) =>
      callNode(client, url, 'activity', { endpointIds: ids })
        .then((body) => answer.parse(body))
        // The node is gone.
        .catch(() => ({})),
    ),
  ]);
  return Object.assign({}, ...found);
}

const failedPage = z.object({
  jobs: z.array(
    jobSummary.extend({
      ...{ endpointId: z.string(), position: z.number(), endedAt: z.number().nullable() },
    }),
  ),
  next: z.number().exactOptional(),
});

/** Each node is asked once. Endpoints of a node that does not answer are `unreachable`. */
export async function readClusterFailed(
  { client, placement, queues }: ClusterActivityOptions,
  endpointIds: readonly string[],
  listing: FailedListing,
): Promise<FailedPage & { unreachable: string[] }> {
  const { elsewhere, here, nowhere } = group(placement, endpointIds);
  const { before, errorCode, limit } = listing;
  const sent = {
    ...{ limit, ...(before !== undefined && { before }) },
    ...(errorCode !== undefined && { errorCode }),
  };
  const unreachable = [...nowhere];
  const pages = await Promise.all([
    queues.jobs.listFailed(here, listing),
    ...[...elsewhere].map(async ([url, ids]): Promise<FailedPage> => {
      try {
        const body = await callNode(client, url, 'failed', { endpointIds: ids, listing: sent });
        return failedPage.parse(body);
      } catch {
        // The node is gone.
        unreachable.push(...ids);
        return { jobs: [] };
      }
    }),
  ]);
  return { ...mergeFailed(pages, limit), unreachable };
}

/** Groups endpoints by the URL of the node that serves them. */
function group(placement: Pick<Placement, 'find'>, endpointIds: readonly string[]) {
  const [here, nowhere]: [string[], string[]] = [[], []];
  const elsewhere = new Map<string, string[]>();
  for (const id of endpointIds) {
    const place = placement.find(id);
    if (place.kind === 'here') here.push(id);
    else if (place.kind !== 'node') nowhere.push(id);
    else elsewhere.set(place.url, [...(elsewhere.get(place.url) ?? []), id]);
  }
  return { here, elsewhere, nowhere };
}
