// How a node finds who serves a shard or an endpoint: it follows the view of the cluster, keeps copies of what the leader
// writes, and answers the calls of other nodes that need no shard.

import { EventEmitter, once, setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { OwnerNode, Placement } from '../../api/forwarding/forwarding-options.ts';
import type { ClusterView } from '../../cluster/cluster-rows.ts';
import type { ServedShards } from '../../cluster/local-shards.ts';
import type { Membership } from '../../cluster/membership.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import { countUse } from '../../control/limits/quotas.ts';
import { readActivity } from '../../queue/activity/activity.ts';
import { ShardedQueues } from '../../queue/queues.ts';
import { completeSettings } from '../../queue/settings.ts';
import type { FindScaling } from '../../queue/waits.ts';
import { ProblemError } from '../../wire/problem.ts';
import { LeaderScaling, NodeWork } from '../machines/node-work.ts';
import { createSelfReader, type ReadSelf } from '../node-list.ts';
import { NodeStatus } from '../postgres-store.ts';
import { declare } from '../running-platform.ts';
import { createScheduleHost } from './cluster-reads.ts';
import { ControlCopies } from './control-store.ts';
import type { JoinedNode } from './joined-node.ts';
import { NODE_CALLS } from './node-calls.ts';
import { refuseShard } from './node-peers.ts';
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
  const scheduleHost = createScheduleHost({ client: node.client, endpoints, placement, queues });
  calls.answer(NODE_CALLS.shards, () => placement.refresh());
  calls.answer(NODE_CALLS.changed, () => placement.refresh());
  calls.answer(NODE_CALLS.declare, ({ endpointId, maxAttempts }) =>
    declare(endpoints, endpointId, maxAttempts),
  );
  const serviceOf = (shard: number) => queues.serviceOf(shard) ?? refuseShard(shard);
  calls.answer(NODE_CALLS.handover, async ({ shard, ...batch }) => ({
    taken: await serviceOf(shard).receive(batch),
  }));
  calls.answer(NODE_CALLS.parents, async ({ shard, ...asked }) =>
    serviceOf(shard).describeParents(asked),
  );
  calls.answer(NODE_CALLS.judgeJobs, async ({ shard, ...asked }) => ({
    problem: await serviceOf(shard).judgeJobs(asked),
  }));
  calls.answer(NODE_CALLS.jobStates, async ({ shard, ...asked }) =>
    serviceOf(shard).describeJobs(asked),
  );
  calls.answer(NODE_CALLS.output, async ({ shard, ...asked }) =>
    serviceOf(shard).readOutput(asked),
  );
  calls.answer(NODE_CALLS.activity, async ({ endpointIds }) => readActivity(queues, endpointIds));
  calls.answer(NODE_CALLS.failed, ({ endpointIds, listing }) =>
    queues.jobs.listFailed(endpointIds, listing),
  );
  calls.answer(NODE_CALLS.schedule, ({ call, endpointId }) =>
    queues.schedules.call(endpointId, call).catch((error: unknown) => {
      if (error instanceof ProblemError) return { problem: error.toProblem() };
      throw error;
    }),
  );
  calls.answer(NODE_CALLS.scheduleEntries, async ({ userId }) => queues.schedules.entries(userId));
  calls.answer(NODE_CALLS.schedulePage, ({ userId, ...page }) =>
    queues.schedules.page(userId, page),
  );
  calls.answer(NODE_CALLS.lend, (message) => queues.lend(message));
  calls.answer(NODE_CALLS.self, readSelf);
  calls.answer(NODE_CALLS.userUse, ({ userId }) =>
    countUse(userId, {
      endpoints,
      pods: compute.pods,
      served,
      versions,
      keys,
      clock,
      scheduleHost,
    }),
  );
  calls.answer(NODE_CALLS.webhooks, async (digests) => ({
    secrets: compareSecrets(digests, webhookSecrets),
  }));
  if (!pods || !work) return;
  calls.answer(NODE_CALLS.load, ({ endpointId }) => queues.workerLoads.load(endpointId));
  calls.answer(NODE_CALLS.drain, async ({ endpointId, podId }) =>
    queues.workerLoads.drain(endpointId, podId),
  );
  calls.answer(NODE_CALLS.park, async ({ endpointId, podId, wish }) =>
    queues.workerLoads.park(endpointId, podId, wish),
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

/** Unknown keys and endpoints cost the database no more than one read in this time, ms. */
const LOOK_UP_EVERY_MS = 200;

export interface Cluster {
  readonly id: string;
  readonly view: ClusterView;
  readonly isServing: boolean;
}

/** Finds owners in the view of the cluster, and in the shards that are open here. */
export class ShardOwners {
  readonly cluster: Cluster;
  readonly #served: Pick<ServedShards, 'has'>;

  constructor(cluster: Cluster, served: Pick<ServedShards, 'has'>) {
    this.cluster = cluster;
    this.#served = served;
  }

  find(shard: number): OwnerNode {
    const { id: me, isServing, view } = this.cluster;
    if (this.#served.has(shard)) return { kind: isServing ? 'here' : 'none' };
    const owner = view.shards.find(({ id }) => id === shard)?.owner;
    const node = view.nodes.find(({ id, isLive }) => id === owner && isLive);
    if (!node || node.id === me) return { kind: 'none' };
    return { kind: 'node', url: node.url };
  }

  /** The owner of shard 0 leads. */
  readonly findLeader = (): OwnerNode => this.find(0);
}

export interface NodePlacementOptions {
  /** Undefined for an unknown endpoint: the leader answers for it. */
  shardOf: (endpointId: string) => number | undefined;
  owners: ShardOwners;
  /** Reads the view, and what the leader has changed. */
  reload: () => Promise<void>;
}

export class NodePlacement implements Placement {
  readonly #options: NodePlacementOptions;
  readonly #changes = new EventEmitter();
  #lookingUp: Promise<void> | undefined;
  #lookedUpAt = Number.NEGATIVE_INFINITY;
  /** Requests under way here, by shard. */
  readonly #requests = new Map<number, number>();

  constructor(options: NodePlacementOptions) {
    this.#options = options;
    // Every request that waits for an owner listens.
    setMaxListeners(0, this.#changes);
  }

  find(endpointId: string | undefined): OwnerNode {
    const { owners, shardOf } = this.#options;
    return owners.find((endpointId === undefined ? 0 : shardOf(endpointId)) ?? 0);
  }

  isDead(url: string): boolean {
    const known = this.#options.owners.cluster.view.nodes.filter((node) => node.url === url);
    return known.length > 0 && known.every(({ isLive }) => !isLive);
  }

  begin(endpointId: string | undefined): () => void {
    const shard = endpointId === undefined ? 0 : this.#options.shardOf(endpointId);
    if (shard === undefined) return () => {};
    this.#requests.set(shard, this.countRequests(shard) + 1);
    return () => this.#requests.set(shard, this.countRequests(shard) - 1);
  }

  countRequests(shard: number): number {
    return this.#requests.get(shard) ?? 0;
  }

  async refresh(): Promise<void> {
    await this.#options.reload();
    this.noteChange();
  }

  /** Never rejects: an unknown name then stays unknown. */
  lookUp(): Promise<void> {
    this.#lookingUp ??= this.#lookUp();
    return this.#lookingUp;
  }

  async #lookUp(): Promise<void> {
    await sleep(Math.max(0, this.#lookedUpAt + LOOK_UP_EVERY_MS - performance.now()));
    // Those who asked meanwhile share the read; later ones need another.
    this.#lookingUp = undefined;
    this.#lookedUpAt = performance.now();
    await this.refresh().catch(() => {});
  }

  async untilChange(signal: AbortSignal): Promise<void> {
    await once(this.#changes, 'change', { signal }).catch(() => {});
  }

  /** The view, the open shards or the endpoints have changed. */
  noteChange(): void {
    this.#changes.emit('change');
  }
}
