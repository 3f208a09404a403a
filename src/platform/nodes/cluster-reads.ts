// Reads over all nodes: the list of nodes, the activity of a user's endpoints, and their schedules, which it also changes.
import type { Placement } from '../../api/forwarding/forwarding-options.ts';
import { NodeCallError, type NodeClient } from '../../api/nodes/node-client.ts';
import type { ScheduleHost } from '../../api/schedules.ts';
import type { ClusterView, NodeView } from '../../cluster/cluster-rows.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import { describeMachine } from '../../control/limits/capacity.ts';
import type { Pods } from '../../control/pods/pods.ts';
import { readActivity } from '../../queue/activity/activity.ts';
import { type FailedListing, type FailedPage, mergeFailed } from '../../queue/job-lists.ts';
import type { Queues } from '../../queue/queues.ts';
import { cutSchedules } from '../../queue/schedules/schedules.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { EndpointActivity } from '../../wire/resources/activity.ts';
import type { NodeRecord, NodeSelf } from '../../wire/resources/nodes.ts';
import { findNameInId } from '../files/data-folder.ts';
import type { MachineInfo } from '../machines/machine-agent.ts';
import type { ReadSelf } from '../node-list.ts';
import { askNode, NODE_CALLS } from './node-calls.ts';

export interface NodeListOptions {
  cluster: { readonly id: string; readonly view: ClusterView };
  client: NodeClient;
  endpoints: Pick<Endpoints, 'all'>;
  pods: Pick<Pods, 'live'> | undefined;
  /** By ID of the node; undefined if its machine is not known. */
  findMachine: (nodeId: string) => MachineInfo | undefined;
  readSelf: ReadSelf;
}

/** Nodes that do not answer in time have no `self`. Never rejects. */
export async function listNodes(options: NodeListOptions): Promise<NodeRecord[]> {
  const { cluster, endpoints, findMachine, pods } = options;
  const { nodes, shards } = cluster.view;
  const ofShards = new Map<number, number>();
  for (const { shard } of endpoints.all()) ofShards.set(shard, (ofShards.get(shard) ?? 0) + 1);
  return Promise.all(
    nodes.map(async (node): Promise<NodeRecord> => {
      const own = shards.filter(({ owner }) => owner === node.id).map(({ id }) => id);
      const info = findMachine(node.id);
      const facts = info && { ...info, node: info.name };
      return {
        id: node.id,
        name: info?.name ?? findNameInId(node.id),
        url: node.url,
        state: judge(node),
        isLeader: own.includes(0),
        shards: own,
        endpoints: own.reduce((sum, shard) => sum + (ofShards.get(shard) ?? 0), 0),
        self: await readSelf(node, options),
        machine: facts && pods ? describeMachine(facts, pods.live) : null,
      };
    }),
  );
}

function judge({ isLeaving, isLive }: NodeView): NodeRecord['state'] {
  if (!isLive) return 'gone';
  return isLeaving ? 'leaving' : 'serving';
}

async function readSelf(
  { id, isLive, url }: NodeView,
  { client, cluster, readSelf: readOwn }: NodeListOptions,
): Promise<NodeSelf | null> {
  if (!isLive) return null;
  try {
    return id === cluster.id ? await readOwn() : await askNode(client, url, NODE_CALLS.self, null);
  } catch {
    // The node does not answer.
    return null;
  }
}

export interface ClusterActivityOptions {
  queues: Pick<Queues, 'activity' | 'jobs'>;
  placement: Pick<Placement, 'find'>;
  client: NodeClient;
}

/** Each node is asked once. Endpoints of a node that does not answer are missing. Never rejects. */
export async function readClusterActivity(
  { client, placement, queues }: ClusterActivityOptions,
  endpointIds: readonly string[],
): Promise<Record<string, EndpointActivity>> {
  const { elsewhere, here } = group(placement, endpointIds);
  const found = await Promise.all([
    readActivity(queues, here),
    ...[...elsewhere].map(([url, ids]) =>
      // Nothing, if the node is gone.
      askNode(client, url, NODE_CALLS.activity, { endpointIds: ids }).catch(() => ({})),
    ),
  ]);
  return Object.assign({}, ...found);
}

/** Each node is asked once. Endpoints of a node that does not answer are `unreachable`. */
export async function readClusterFailed(
  { client, placement, queues }: ClusterActivityOptions,
  endpointIds: readonly string[],
  listing: FailedListing,
): Promise<FailedPage & { unreachable: string[] }> {
  const { elsewhere, here, nowhere } = group(placement, endpointIds);
  const { before, errorCode, limit, since, tags, text, until } = listing;
  const sent = {
    limit,
    ...(before !== undefined && { before }),
    ...(errorCode !== undefined && { errorCode }),
    ...(tags && { tags }),
    ...(since !== undefined && { since }),
    ...(until !== undefined && { until }),
    ...(text !== undefined && { text }),
  };
  const unreachable = [...nowhere];
  const pages = await Promise.all([
    queues.jobs.listFailed(here, listing),
    ...[...elsewhere].map(async ([url, ids]): Promise<FailedPage> => {
      try {
        const asked = { endpointIds: ids, listing: sent };
        return await askNode(client, url, NODE_CALLS.failed, asked);
      } catch {
        // The node is gone.
        unreachable.push(...ids);
        return { jobs: [] };
      }
    }),
  ]);
  return { ...mergeFailed(pages, limit), unreachable };
}

interface ScheduleHostOptions extends Pick<ClusterActivityOptions, 'client' | 'placement'> {
  queues: Pick<Queues, 'schedules'>;
  endpoints: Pick<Endpoints, 'all'>;
}

const RETRY = { retryAfterMs: 1_000 };

/** Reaches the schedules of all nodes. */
export function createScheduleHost(options: ScheduleHostOptions): ScheduleHost {
  const { client, endpoints, placement, queues } = options;
  const groupOf = (userId: string) => {
    const own = endpoints.all().filter((endpoint) => endpoint.userId === userId);
    return group(
      placement,
      own.map(({ id }) => id),
    );
  };
  return {
    async call(endpointId, call) {
      const owner = placement.find(endpointId);
      if (owner.kind === 'here') return queues.schedules.call(endpointId, call);
      if (owner.kind === 'none') throw unreachable();
      const asked = { endpointId, call };
      const answer = await askNode(client, owner.url, NODE_CALLS.schedule, asked).catch(refuse);
      if (!('problem' in answer)) return answer;
      const { code, detail, errors } = answer.problem;
      throw new ProblemError(code, detail, { ...(errors && { errors }) });
    },
    async entries(userId) {
      const { elsewhere, nowhere } = groupOf(userId);
      let isComplete = nowhere.length === 0;
      const others = [...elsewhere.keys()].map((url) =>
        askNode(client, url, NODE_CALLS.scheduleEntries, { userId }).catch(() => {
          isComplete = false;
          return [];
        }),
      );
      const entries = [queues.schedules.entries(userId), ...(await Promise.all(others))].flat();
      return { entries, isComplete };
    },
    async page(userId, page) {
      const { elsewhere, nowhere } = groupOf(userId);
      if (nowhere.length > 0) throw unreachable();
      const { before, limit } = page;
      const asked = { userId, limit, ...(before !== undefined && { before }) };
      const pages = await Promise.all([
        queues.schedules.page(userId, page),
        ...[...elsewhere.keys()].map((url) =>
          askNode(client, url, NODE_CALLS.schedulePage, asked).catch(refuse),
        ),
      ]);
      return cutSchedules(pages, limit);
    },
  };
}

function refuse(cause: unknown): never {
  throw cause instanceof NodeCallError ? unreachable(cause) : cause;
}

function unreachable(cause?: unknown): ProblemError {
  const detail = 'the node that has the schedule does not answer';
  return new ProblemError('unavailable', detail, { ...RETRY, cause });
}

/** Groups endpoints by the URL of the node that serves them. */
function group(placement: Pick<Placement, 'find'>, endpointIds: readonly string[]) {
  const [here, nowhere]: [string[], string[]] = [[], []];
  const elsewhere = new Map<string, string[]>();
  for (const id of endpointIds) {
    const owner = placement.find(id);
    if (owner.kind === 'here') here.push(id);
    else if (owner.kind !== 'node') nowhere.push(id);
    else elsewhere.set(owner.url, [...(elsewhere.get(owner.url) ?? []), id]);
  }
  return { here, elsewhere, nowhere };
}
