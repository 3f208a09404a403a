// Puts together a platform that is one of several nodes on a Postgres database: it serves the shards that it owns, and
// forwards everything else. Each part is opened after those that it needs.
import { setTimeout as sleep } from 'node:timers/promises';
import { openForwarder } from '../../api/forwarding/forwarder.ts';
import { readNodeAddress } from '../../api/nodes/node-client.ts';
import type { ApiServerOptions } from '../../api/server-options.ts';
import { openWorkerAccess } from '../compute/worker-access.ts';
import { prepareKeys } from '../files/secret-files.ts';
import { type Listening, listen } from '../listeners.ts';
import { PlatformOptionError } from '../option-error.ts';
import type { NodeOptions, NodePlatformOptions } from '../platform-options.ts';
import { declare, type RunningPlatform } from '../running-platform.ts';
import {
  createScheduleHost,
  listNodes,
  readClusterActivity,
  readClusterFailed,
} from './cluster-reads.ts';
import { type JoinedNode, joinCluster, type NodeParts } from './joined-node.ts';
import { askNode, NODE_CALLS } from './node-calls.ts';
import { openRouting, type Routing, type ShardOwners } from './node-routing.ts';
import { serveShards } from './node-shards.ts';
import { checkWebhookSecrets } from './start-checks.ts';

/** Longest wait at the start for a node that leads, ms. */
const LEADER_WAIT_MS = 60_000;
const LEADER_STEP_MS = 20;
/** Closed by `stack`. @throws PlatformOptionError */
export async function openNode(
  options: NodePlatformOptions,
  given: NodeParts,
  stack: AsyncDisposableStack,
): Promise<Omit<RunningPlatform, 'close'>> {
  const node = await joinCluster(options, given, stack);
  const { compute, keys, owners } = node;
  const routing = openRouting(node, stack);
  const { listenAlso, ...urls } = await openPorts({ ...node, ...routing }, stack);
  await compareSecrets(node);
  const access = { options, url: urls.url, listenAlso, clock: node.clock };
  const workers = await openWorkerAccess({ ...access, engine: node.pods?.engine });
  stack.defer(() => workers.close());
  const leader = serveShards({ ...node, ...routing, workerUrl: workers.url }, stack);
  await untilLed(owners);
  const { endpoints } = compute;
  const declareEndpoint = (id: string) => declareSomewhere(id, node);
  const leads = owners.findLeader().kind === 'here';
  if (leads) await leader.settled(options.endpoints);
  for (const id of options.endpoints) if (leads || !endpoints.has(id)) await declareEndpoint(id);
  const firstKeys = leads ? await prepareKeys(keys, options) : undefined;
  return { ...urls, firstKeys, queue: routing.queues, keys, endpoints, declareEndpoint };
}

/** Before other nodes call: they know this one from now on. @throws PlatformOptionError */
function openPorts(node: JoinedNode & Routing, stack: AsyncDisposableStack): Promise<Listening> {
  const { calls, compute, membership, options, placement, pods, queues } = node;
  const { engine, trustKeys = false } = options.compute;
  const { nodes } = options;
  const { clock, keys, sessions, status: store } = node;
  const services = {
    clock,
    keys,
    sessions,
    store,
    queue: queues,
    codeAccess: { engine, trustKeys, podUser: node.podUser?.name },
    forwarding: {
      open: openForwarder,
      placement,
      secrets: nodes.secrets,
      listen: listenTo(nodes),
      onCall: calls.receive,
      advertised: { url: nodes.advertiseUrl, grpcUrl: nodes.advertiseGrpcUrl },
      findPodPort: async (podId: string, port: number) => pods?.agent.findPort(podId, port),
    },
    ...readCluster(node),
  };
  const countNodes = () => membership.view.nodes.filter(({ isLive }) => isLive).length;
  const { createCounter } = node.rates;
  return listen({ options, compute, services, countNodes, createCounter }, stack);
}

/** What the API reads from all nodes. */
function readCluster(
  node: JoinedNode & Routing,
): Pick<
  ApiServerOptions,
  'listNodes' | 'readActivity' | 'readFailed' | 'readUse' | 'scheduleHost'
> {
  const { calls, client, compute, membership: cluster, placement, pods, queues, readSelf } = node;
  const findMachine = (id: string) => pods?.machines.infoOf(id);
  const { endpoints } = compute;
  const listed = { client, cluster, endpoints, findMachine, pods: compute.pods, readSelf };
  return {
    listNodes: () => listNodes(listed),
    readActivity: (ids) => readClusterActivity({ client, placement, queues }, ids),
    readFailed: (ids, listing) => readClusterFailed({ client, placement, queues }, ids, listing),
    scheduleHost: createScheduleHost({ client, endpoints, placement, queues }),
    readUse: (userId) => calls.askLeader(NODE_CALLS.userUse, { userId }),
  };
}

/** After this node listens: of two nodes that start together, one finds the other. @throws PlatformOptionError */
async function compareSecrets({
  client,
  membership,
  options: { log },
  webhookSecrets: secrets,
}: JoinedNode): Promise<void> {
  const others = (await membership.refresh()).nodes
    .filter(({ id, isLive }) => isLive && id !== membership.id)
    .map((other) => other.url);
  await checkWebhookSecrets({ client, others, secrets, log });
}

/** @throws PlatformOptionError */
async function untilLed(owners: ShardOwners): Promise<void> {
  const end = performance.now() + LEADER_WAIT_MS;
  while (owners.findLeader().kind === 'none') {
    if (performance.now() > end) {
      const problem = 'no node leads; see the logs of the nodes';
      throw new PlatformOptionError('unusable', 'store', problem);
    }
    await sleep(LEADER_STEP_MS);
  }
}

/** Here, or by the node that leads. @throws PlatformOptionError, NodeCallError */
async function declareSomewhere(
  endpointId: string,
  { client, compute, options: { maxAttempts }, owners }: JoinedNode,
): Promise<void> {
  const leader = owners.findLeader();
  if (leader.kind !== 'node') return declare(compute.endpoints, endpointId, maxAttempts);
  const body = { endpointId, ...(maxAttempts !== undefined && { maxAttempts }) };
  await askNode(client, leader.url, NODE_CALLS.declare, body);
}

function listenTo({ listen: given, url }: NodeOptions): { host: string; port: number } {
  if (given) return given;
  const { hostname, port } = readNodeAddress(url);
  return { host: hostname, port: Number(port) };
}
