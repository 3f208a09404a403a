// Assembles a platform that is one of several nodes on a Postgres database: it serves the shards that it owns, and
// forwards everything else.
import { setTimeout as sleep } from 'node:timers/promises';
import { NodeClient, readNodeAddress } from '../../api/nodes/node-client.ts';
import { type ResumableClock, SteadyTime, systemClock } from '../../base/clock.ts';
import type { ClusterView } from '../../cluster/cluster-view.ts';
import { Membership } from '../../cluster/membership.ts';
import { chooseShard } from '../../cluster/plan-shards.ts';
import { Keys } from '../../control/keys/keys.ts';
import { Sessions } from '../../control/keys/sessions.ts';
import { countUse } from '../../control/limits/quotas.ts';
import type { PodUser } from '../../engine/process/pod-user.ts';
import { completeSettings } from '../../queue/settings.ts';
import type { TracingOptions } from '../../queue/tracing/job-tracing.ts';
import type { PostgresTarget } from '../../store/postgres/connection-url.ts';
import { PostgresReader } from '../../store/postgres/postgres-reader.ts';
import { logMigration, type MigrationListener } from '../../store/schema-migration.ts';
import { openWorkerAccess } from '../compute/worker-access.ts';
import { createQueue } from '../create-queue.ts';
import { declare } from '../declare-endpoint.ts';
import { useWebhookSecrets } from '../files/secret-files.ts';
import { createNodeId, readNodeName } from '../files/stored-names.ts';
import { listen } from '../listeners.ts';
import { NodeCompute } from '../machines/node-compute.ts';
import { createSelfReader } from '../node-list.ts';
import { PlatformOptionError } from '../option-error.ts';
import type { PlatformSeams, RunningPlatform } from '../platform.ts';
import { explainOpening, PostgresFailures, readTarget } from '../postgres-store.ts';
import { ClusterNode } from './cluster-node.ts';
import { listNodes, readClusterActivity, readClusterFailed } from './cluster-reads.ts';
import { ControlStore } from './control-store.ts';
import { Leader, readLeaderUse, sendToLeader } from './leader.ts';
import { callNode } from './node-calls.ts';
import { findClusterName, type NodeOptions, type NodePlatformOptions } from './node-options.ts';
import type { NodePlacement } from './node-placement.ts';
import { NodeStatus } from './node-status.ts';
import { boundTimes, openShardStore } from './shard-opener.ts';
import { checkEngines, checkWebhookSecrets } from './start-checks.ts';

/** Longest wait at the start for a node that leads, ms. */
const LEADER_WAIT_MS = 60_000;
const LEADER_STEP_MS = 20;
/** Short calls of one machine at a time. */
const MACHINE_CALLS = 128;

/** Postgres cuts names after 63 bytes, and a shard appends up to 4: `_255`. */
const MAX_SCHEMA_LENGTH = 59;

type Closers = (() => unknown)[];

interface NodeParts extends PlatformSeams {
  podUser: PodUser | undefined;
  tracing: TracingOptions | undefined;
}

/** @throws PlatformOptionError */
export async function openNode(
  options: NodePlatformOptions,
  { podUser, tracing, wrapLink }: NodeParts,
  closers: Closers,
): Promise<Omit<RunningPlatform, 'close'>> {
  const { log, nodes, store: url, storeLimits: limits = {}, storePassword } = options;
  const target = readTarget(url, storePassword);
  checkSchema(target);
  const failures = new PostgresFailures(log);
  let node: ClusterNode | undefined;
  let nodeCompute: NodeCompute | undefined;
  const cluster = findClusterName(options.compute);
  const { compute: given, dataFolder } = options;
  const hasPods = given.engine !== 'none' && dataFolder !== undefined;
  const name = hasPods ? (cluster ?? readNodeName(dataFolder)) : '';
  const membership = await join({
    target,
    nodes,
    name,
    failures,
    waitMs: limits.lockWaitMs,
    onMigrated: (migration) => logMigration(log, migration),
    onEnd: (error) => options.onNodeEnd?.(explainOpening(error, target)),
    onView: (view) => {
      node?.follow(view);
      nodeCompute?.follow(view);
    },
  });
  closers.push(() => membership.leave());
  const clock = createNodeClock(() => membership.databaseNow());
  const webhookSecrets = useWebhookSecrets(options.webhooks.secretFile);
  const client = new NodeClient({ secrets: nodes.secrets });
  closers.push(() => client.close());
  await checkEngines({ engine: options.compute.engine, cluster }, { membership, client });
  // A shard is opened after a read of the control plane.
  const reader = new PostgresReader({ target, ...boundTimes(limits) });
  closers.push(() => reader.close());
  const control = new ControlStore({ reader, announce: async () => node?.announce() });
  const keys = await Keys.open({ store: control, clock });
  const sessions = await Sessions.open({
    store: control,
    clock,
    keys,
    times: options.sessions,
    send: (change) => sendToLeader(change, { client, findLeader: () => node?.placement }),
  });
  const machineClient = new NodeClient({ secrets: nodes.secrets, maxSockets: MACHINE_CALLS });
  closers.push(() => machineClient.close());
  nodeCompute = await NodeCompute.open({
    name,
    platform: options,
    podUser,
    clock,
    store: control,
    podStore: control.unannounced,
    keys,
    cluster: membership,
    client: machineClient,
    chooseShard: (id) => chooseShard(id, membership.view.shards.length),
  });
  const ofPods = nodeCompute;
  closers.push(() => ofPods.close());
  const { compute } = ofPods;
  const { endpoints, pods, served, versions } = compute;
  const countUseHere = (userId: string) =>
    countUse(userId, { endpoints, pods, served, versions, keys, clock });
  const status = new NodeStatus({
    failures,
    findFault: () => findFault(membership, node),
    findShards: () => node?.shards,
  });
  const readSelf = createSelfReader(status, clock.now());
  const declareHere = async (id: string, maxAttempts: number | undefined) =>
    declare(endpoints, id, maxAttempts);
  let isStart = true;
  const leader = new Leader({
    compute,
    keys,
    store: control,
    keyFile: options.keyFile,
    names: options.endpoints,
    declare: (id) => declareHere(id, options.maxAttempts),
    removeFromShard: async (shard, id, signal) =>
      (await node?.removeFromShard(shard, id, signal)) ?? false,
  });
  node = new ClusterNode({
    membership,
    client,
    control,
    endpoints,
    clock,
    log,
    declare: declareHere,
    webhookSecrets,
    sessions,
    readSelf,
    countUse: countUseHere,
    reloads: [() => keys.reload(), () => sessions.reload(), () => compute.reload()],
    settings: completeSettings(options.settings),
    openStore: async (shard, onLost) => {
      // Rejects without a lease: then only a renewal tells whether another node has claimed the shard.
      const isOwner = () => membership.isMine(shard);
      const ofShard = { shard, isOwner, onLost };
      const opened = await openShardStore({ ...ofShard, target, limits, failures, log });
      status.noteOpen(shard, opened.size);
      return opened;
    },
    noteClosed: (shard) => status.noteClosed(shard),
    createQueue: (store, shard) =>
      createQueue({
        ...options,
        store,
        clock,
        wrapLink,
        tracing,
        findScaling: (id) => ofPods.scalingOf(id),
        owns: (id) => endpoints.find(id)?.shard === shard,
      }),
    leader: {
      async begin(queue, lost) {
        // Before deletions of endpoints, which end their workers.
        await ofPods.load();
        await leader.begin(queue, { isStart, lost });
        ofPods.begin(lost);
      },
      async end() {
        await ofPods.end();
        await leader.end();
      },
      ended: () => ofPods.forget(),
    },
    machineCalls: () => ofPods.calls,
  });
  const { onCall, placement, queues, rates } = node;
  const serving = node;
  const { engine, trustKeys = false } = options.compute;
  // Before other nodes call: they know this one from now on.
  const { listenAlso, ...urls } = await listen(
    {
      ...options,
      queue: queues,
      keys,
      sessions,
      compute,
      clock,
      data: { store: control, status, close: async () => {} },
      codeAccess: { engine, trustKeys, podUser: podUser?.name },
      forwarding: {
        placement,
        secrets: nodes.secrets,
        listen: listenTo(nodes),
        onCall,
        advertised: { url: nodes.advertiseUrl, grpcUrl: nodes.advertiseGrpcUrl },
        findPodPort: (podId, port) => ofPods.findPodPort(podId, port),
      },
      createCounter: rates.createCounter,
      readFailed: (ids, listing) => readClusterFailed({ client, placement, queues }, ids, listing),
      readActivity: (ids) => readClusterActivity({ client, placement, queues }, ids),
      readUse: (userId) => readLeaderUse(userId, { client, placement, countHere: countUseHere }),
      listNodes: () =>
        listNodes({
          cluster: membership,
          client,
          endpoints,
          pods,
          readSelf,
          findMachine: (id) => ofPods.findMachine(id),
        }),
      countNodes: () => membership.view.nodes.filter(({ isLive }) => isLive).length,
    },
    closers,
  );
  // After this node listens: of two nodes that start together, one finds the other.
  const others = (await membership.refresh()).nodes
    .filter(({ id, isLive }) => isLive && id !== membership.id)
    .map((other) => other.url);
  await checkWebhookSecrets({ client, others, secrets: webhookSecrets, log });
  closers.push(() => serving.leave());
  const access = { options, url: urls.url, listenAlso, clock };
  const workers = await openWorkerAccess({ ...access, engine: ofPods.ownEngine });
  closers.push(() => workers.close());
  ofPods.serve({
    queues,
    workerUrl: workers.url,
    findOwner: (id) => placement.find(id),
    findLeader: () => placement.find(undefined),
  });
  serving.start();
  await untilLed(placement);
  const { maxAttempts } = options;
  const declareEndpoint = async (endpointId: string) => {
    const leads = placement.find(undefined);
    if (leads.kind !== 'node') return declareHere(endpointId, maxAttempts);
    const body = { endpointId, ...(maxAttempts !== undefined && { maxAttempts }) };
    await callNode(client, leads.url, 'declare', body);
  };
  for (const id of options.endpoints) if (!endpoints.has(id)) await declareEndpoint(id);
  isStart = false;
  return { ...urls, firstKeys: leader.firstKeys, queue: queues, keys, endpoints, declareEndpoint };
}

/** The schemas of the shards must have different names. @throws PlatformOptionError */
function checkSchema({ schema }: PostgresTarget): void {
  if (schema.length <= MAX_SCHEMA_LENGTH) return;
  throw new PlatformOptionError(
    'invalid',
    'store',
    `search_path has ${schema.length} characters; with nodes, use at most ${MAX_SCHEMA_LENGTH}: each shard appends its number`,
  );
}

interface JoinOptions {
  target: PostgresTarget;
  nodes: NodeOptions;
  /** Of the node's machine in records of pods; empty without pods. */
  name: string;
  failures: PostgresFailures;
  /** How long to wait for other nodes that keep this one out, ms. */
  waitMs: number | undefined;
  onMigrated: MigrationListener;
  onView: (view: ClusterView) => void;
  onEnd: (error: unknown) => void;
}

/** @throws PlatformOptionError */
async function join(options: JoinOptions): Promise<Membership> {
  const { failures, name, nodes, onEnd, onMigrated, onView, target, waitMs } = options;
  // Without a number, a later node takes the one that the database has.
  const { shards, url } = nodes;
  const identity = { id: createNodeId(name), url, shards };
  const timings = waitMs === undefined ? {} : { joinWaitMs: waitMs };
  try {
    return await Membership.open({
      target,
      ...identity,
      timings,
      onMigrated,
      onView,
      onEnd,
      onFailure: failures.note,
    });
  } catch (error) {
    throw explainOpening(error, target);
  }
}

function listenTo({ listen: given, url }: NodeOptions): { host: string; port: number } {
  if (given) return given;
  const { hostname, port } = readNodeAddress(url);
  return { host: hostname, port: Number(port) };
}

function findFault(membership: Membership, node: ClusterNode | undefined): string | undefined {
  if (!membership.isServing)
    return 'this node cannot renew its place among the nodes: no connection to the database';
  return node?.placement.find(undefined).kind === 'none'
    ? 'no node leads at the moment'
    : undefined;
}

/** @throws PlatformOptionError */
async function untilLed(placement: NodePlacement): Promise<void> {
  const end = performance.now() + LEADER_WAIT_MS;
  while (placement.find(undefined).kind === 'none') {
    if (performance.now() > end) {
      throw new PlatformOptionError(
        'unusable',
        'store',
        'no node leads; see the logs of the nodes',
      );
    }
    await sleep(LEADER_STEP_MS);
  }
}

/** The clock of a node: the database's time, so that the nodes agree however their own clocks are set. `databaseNow`: Unix ms. */
export function createNodeClock(databaseNow: () => number): ResumableClock {
  const time = new SteadyTime({ wall: databaseNow, monotonic: () => performance.now() });
  const { monotonic, now, startFrom } = time;
  return { monotonic, now, startFrom, after: (ms, act) => systemClock.after(ms, act) };
}
