// How a node finds who serves what: it follows the view of the cluster, keeps copies of what the leader writes, and
// answers the calls of other nodes that need no shard.

import type { ServedShards } from '../../cluster/local-shards.ts';
import type { Membership } from '../../cluster/membership.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import { countUse } from '../../control/limits/quotas.ts';
import { readActivity } from '../../queue/activity/activity.ts';
import { ShardedQueues } from '../../queue/queues.ts';
import { completeSettings } from '../../queue/settings.ts';
import type { FindScaling } from '../../queue/waits.ts';
import { declare } from '../declare-endpoint.ts';
import { LeaderScaling, NodeWork } from '../machines/node-work.ts';
import { createSelfReader, type ReadSelf } from '../node-list.ts';
import { NodeStatus } from '../postgres-store.ts';
import { ControlCopies } from './control-store.ts';
import type { JoinedNode } from './joined-node.ts';
import { NODE_CALLS } from './node-calls.ts';
import { NodePlacement } from './node-placement.ts';
import { EndpointCopies } from './shard-opener.ts';
import { SharedRates } from './shared-rates.ts';
import { compareSecrets } from './start-checks.ts';

export interface Routing {
  queues: ShardedQueues;
  placement: NodePlacement;
  controlCopies: ControlCopies;
  endpointCopies: EndpointCopies;
  rates: SharedRates;
  status: NodeStatus;
  readSelf: ReadSelf;
  /** Undefined without an engine. */
  work: NodeWork | undefined;
  findScaling: FindScaling;
}

export function openRouting(node: JoinedNode, stack: AsyncDisposableStack): Routing {
  const { calls, clock, compute, failures, membership, options, owners, served } = node;
  const { log } = options;
  const { endpoints } = compute;
  const shardOf = (endpointId: string) => endpoints.find(endpointId)?.shard;
  const queues = new ShardedQueues({ settings: completeSettings(options.settings), shardOf });
  const endpointCopies = new EndpointCopies({ endpoints, log });
  const reloads = [node.keys, node.sessions, compute].map((each) => () => each.reload());
  const controlCopies = new ControlCopies({ clock, log, reloads });
  const placement = new NodePlacement({
    shardOf,
    owners,
    async reload() {
      const view = await membership.refresh();
      if (!served.has(0)) await controlCopies.follow(view);
      await endpointCopies.settled();
    },
  });
  const rates = new SharedRates({ cluster: membership, calls });
  const findFault = () => findNodeFault(node);
  const status = new NodeStatus({ failures, findFault, served });
  const readSelf = createSelfReader(status, clock.now());
  const ofCopies = { queues, placement, controlCopies, endpointCopies, rates, status, readSelf };
  const routing = { ...ofCopies, ...openWork(node, { placement, queues }, stack) };
  followViews(node, routing);
  answerCalls(node, routing);
  return routing;
}

function openWork(
  { calls, clock, compute, machineClient: client, options, owners, pods }: JoinedNode,
  { placement, queues }: Pick<Routing, 'placement' | 'queues'>,
  stack: AsyncDisposableStack,
): Pick<Routing, 'findScaling' | 'work'> {
  const isDeployed = (id: string) => compute.endpoints.find(id)?.deployment != null;
  if (!pods) return { work: undefined, findScaling: (id) => (isDeployed(id) ? 'unknown' : 'none') };
  const { log } = options;
  const findOwner = (id: string) => placement.find(id);
  const work = new NodeWork({ queues, client, calls, findOwner, isDeployed, log });
  stack.defer(() => work.close());
  const { findLeader } = owners;
  const own = (id: string) => compute.scalingOf(id);
  const scaling = new LeaderScaling({ calls, clock, findLeader, own });
  return { work, findScaling: (id) => (isDeployed(id) ? scaling.find(id) : 'none') };
}

function findNodeFault({ membership, owners }: JoinedNode): string | undefined {
  if (!membership.isServing)
    return 'this node cannot renew its place among the nodes: no connection to the database';
  return owners.findLeader().kind === 'none' ? 'no node leads at the moment' : undefined;
}

interface Followed {
  compute: { endpoints: Pick<Endpoints, 'onChange'> };
  membership: Pick<Membership, 'id' | 'onView'>;
  served: Pick<ServedShards, 'has' | 'onChange'>;
}

interface Following {
  controlCopies: Pick<ControlCopies, 'follow'>;
  endpointCopies: Pick<EndpointCopies, 'repeat'>;
  placement: Pick<NodePlacement, 'noteChange'>;
  rates: Pick<SharedRates, 'follow'>;
}

export function followViews(
  { compute, membership, served }: Followed,
  { controlCopies, endpointCopies, placement, rates }: Following,
): void {
  served.onChange(() => placement.noteChange());
  compute.endpoints.onChange(() => placement.noteChange());
  membership.onView((view) => {
    placement.noteChange();
    rates.follow();
    endpointCopies.repeat();
    const owner = view.shards.find(({ id }) => id === 0)?.owner;
    // A node that another one has replaced drops its shards only after this, and serves requests at once.
    if (served.has(0) && owner === membership.id) return;
    void controlCopies.follow(view).then((isNew) => {
      if (isNew) placement.noteChange();
    });
  });
}

function answerCalls(node: JoinedNode, routing: Routing): void {
  const { calls, clock, compute, keys, pods, webhookSecrets } = node;
  const { placement, queues, readSelf, work } = routing;
  const { endpoints, remains, served, versions } = compute;
  calls.answer(NODE_CALLS.shards, () => placement.refresh());
  calls.answer(NODE_CALLS.changed, () => placement.refresh());
  calls.answer(NODE_CALLS.declare, ({ endpointId, maxAttempts }) =>
    declare(endpoints, endpointId, maxAttempts),
  );
  calls.answer(NODE_CALLS.activity, async ({ endpointIds }) => readActivity(queues, endpointIds));
  calls.answer(NODE_CALLS.failed, ({ endpointIds, listing }) =>
    queues.jobs.listFailed(endpointIds, listing),
  );
  calls.answer(NODE_CALLS.self, readSelf);
  calls.answer(NODE_CALLS.userUse, ({ userId }) =>
    countUse(userId, { endpoints, pods: compute.pods, served, versions, keys, clock }),
  );
  calls.answer(NODE_CALLS.webhooks, async (digests) => ({
    secrets: compareSecrets(digests, webhookSecrets),
  }));
  if (!pods || !work) return;
  calls.answer(NODE_CALLS.load, ({ endpointId }) => queues.workerLoads.load(endpointId));
  calls.answer(NODE_CALLS.drain, async ({ endpointId, podId }) =>
    queues.workerLoads.drain(endpointId, podId),
  );
  calls.answer(NODE_CALLS.endPod, (ended) => work.endPodHere(ended));
  calls.answerAsLeader(NODE_CALLS.work, async ({ endpointIds }) => work.noteTold(endpointIds));
  calls.answerAsLeader(NODE_CALLS.scaling, async ({ endpointId }) => {
    const scaling = compute.scalingOf(endpointId);
    return typeof scaling === 'object' ? scaling : null;
  });
  calls.answerAsLeader(NODE_CALLS.use, async () => {
    const use = remains.listUse();
    return { endpoints: [...use.endpoints], pods: [...use.pods] };
  });
}
