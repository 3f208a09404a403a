// A node that has joined its cluster and does not serve yet: its membership, the records that the leader writes, and the
// machines that run pods.
import { NodeClient } from '../../api/nodes/node-client.ts';
import { type ResumableClock, SteadyTime, systemClock } from '../../base/clock.ts';
import { ServedShards } from '../../cluster/local-shards.ts';
import { Membership } from '../../cluster/membership.ts';
import { chooseShard } from '../../cluster/plan-shards.ts';
import { Keys } from '../../control/keys/keys.ts';
import { Sessions } from '../../control/keys/sessions.ts';
import type { PodUser } from '../../engine/process/pod-user.ts';
import type { TracingOptions } from '../../queue/job-tracing.ts';
import type { PostgresTarget } from '../../store/postgres/connection-url.ts';
import { PostgresReader } from '../../store/postgres/postgres-tables.ts';
import { logMigration } from '../../store/schema-migration.ts';
import { createNodeId, readNodeName } from '../files/data-folder.ts';
import { useWebhookSecrets } from '../files/secret-files.ts';
import { type NodeCompute, openNodeCompute } from '../machines/node-compute.ts';
import { PlatformOptionError } from '../option-error.ts';
import { findClusterName, type NodePlatformOptions } from '../platform-options.ts';
import { explainOpening, PostgresFailures, readTarget } from '../postgres-store.ts';
import type { PlatformSeams } from '../running-platform.ts';
import { ControlNews, ControlStore } from './control-store.ts';
import { NODE_CALLS, NodeCalls } from './node-calls.ts';
import { ShardOwners } from './node-routing.ts';
import { boundTimes } from './shard-opener.ts';
import { checkEngines } from './start-checks.ts';

/** Short calls of one machine at a time. */
const MACHINE_CALLS = 128;

/** Postgres cuts names after 63 bytes, and a shard appends up to 4: `_255`. */
const MAX_SCHEMA_LENGTH = 59;

export interface NodeParts extends Pick<PlatformSeams, 'wrapLink'> {
  podUser: PodUser | undefined;
  tracing: TracingOptions | undefined;
}

export type JoinedNode = NodeParts & JoinedCluster & OpenControl & NodeCompute;

/** Closed by `stack`. @throws PlatformOptionError */
export async function joinCluster(
  options: NodePlatformOptions,
  given: NodeParts,
  stack: AsyncDisposableStack,
): Promise<JoinedNode> {
  const joined = await join(options, stack);
  const control = await openControl(joined, stack);
  const machines = await openMachines(joined, control, given.podUser, stack);
  return { ...given, ...joined, ...control, ...machines };
}

interface JoinedCluster {
  options: NodePlatformOptions;
  target: PostgresTarget;
  failures: PostgresFailures;
  /** Of this node's machine in records of pods; empty without pods. */
  name: string;
  membership: Membership;
  /** The database's time. */
  clock: ResumableClock;
  served: ServedShards;
  owners: ShardOwners;
  client: NodeClient;
  /** For calls of machines, which may take minutes. */
  machineClient: NodeClient;
  calls: NodeCalls;
  webhookSecrets: readonly string[];
}

/** @throws PlatformOptionError */
async function join(
  options: NodePlatformOptions,
  stack: AsyncDisposableStack,
): Promise<JoinedCluster> {
  const { dataFolder, log, nodes } = options;
  const target = readTarget(options.store, options.storePassword);
  checkSchema(target);
  const failures = new PostgresFailures(log);
  const cluster = findClusterName(options.compute);
  const { engine } = options.compute;
  const hasPods = engine !== 'none' && dataFolder !== undefined;
  const name = hasPods ? (cluster ?? readNodeName(dataFolder)) : '';
  const membership = await openMembership({ options, target, failures, name });
  stack.defer(() => membership.leave());
  const clock = createNodeClock(() => membership.databaseNow());
  const webhookSecrets = useWebhookSecrets(options.webhooks.secretFile);
  const { secrets } = nodes;
  const client = new NodeClient({ secrets });
  stack.defer(() => client.close());
  const machineClient = new NodeClient({ secrets, maxSockets: MACHINE_CALLS });
  stack.defer(() => machineClient.close());
  await checkEngines({ engine, cluster }, { membership, client });
  const served = new ServedShards(membership);
  const owners = new ShardOwners(membership, served);
  const calls = new NodeCalls({ client, findLeader: owners.findLeader });
  const ofNode = { options, target, failures, name, membership, clock, webhookSecrets };
  return { ...ofNode, served, owners, client, machineClient, calls };
}

/** @throws PlatformOptionError */
async function openMembership({
  failures,
  name,
  options,
  target,
}: Pick<JoinedCluster, 'failures' | 'name' | 'options' | 'target'>): Promise<Membership> {
  const { log, nodes, storeLimits = {} } = options;
  const { lockWaitMs: waitMs } = storeLimits;
  try {
    return await Membership.open({
      target,
      id: createNodeId(name),
      url: nodes.url,
      // Without a number, a later node takes the one that the database has.
      shards: nodes.shards,
      // How long to wait for other nodes that keep this one out.
      timings: waitMs === undefined ? {} : { joinWaitMs: waitMs },
      onMigrated: (migration) => logMigration(log, migration),
      onEnd: (error) => options.onNodeEnd?.(explainOpening(error, target)),
      onFailure: failures.note,
    });
  } catch (error) {
    throw explainOpening(error, target);
  }
}

/** What the leader writes and all nodes read. */
interface OpenControl {
  control: ControlStore;
  keys: Keys;
  sessions: Sessions;
}

async function openControl(
  { calls, client, clock, membership, options, owners, target }: JoinedCluster,
  stack: AsyncDisposableStack,
): Promise<OpenControl> {
  // A shard is opened after a read of the control plane.
  const reader = new PostgresReader({ target, ...boundTimes(options.storeLimits ?? {}) });
  stack.defer(() => reader.close());
  const news = new ControlNews({ membership, client });
  membership.onView(() => news.repeat());
  const control = new ControlStore({ reader, announce: () => news.announce() });
  const keys = await Keys.open({ store: control, clock });
  const sessions = await Sessions.open({
    store: control,
    clock,
    keys,
    times: options.sessions,
    async send(change) {
      if (owners.findLeader().kind === 'here') return false;
      await calls.askLeader(NODE_CALLS.session, change);
      return true;
    },
  });
  calls.answer(NODE_CALLS.session, (change) => sessions.apply(change));
  return { control, keys, sessions };
}

function openMachines(
  { calls, clock, machineClient, membership, name, options }: JoinedCluster,
  { control }: OpenControl,
  podUser: PodUser | undefined,
  stack: AsyncDisposableStack,
): Promise<NodeCompute> {
  return openNodeCompute(
    {
      name,
      platform: options,
      podUser,
      clock,
      store: control,
      podStore: control.unannounced,
      cluster: membership,
      calls,
      client: machineClient,
      chooseShard: (id) => chooseShard(id, membership.view.shards.length),
    },
    stack,
  );
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

/** The clock of a node: the database's time, so that the nodes agree however their own clocks are set. `databaseNow`: Unix ms. */
export function createNodeClock(databaseNow: () => number): ResumableClock {
  const time = new SteadyTime({ wall: databaseNow, monotonic: () => performance.now() });
  const { monotonic, now, startFrom } = time;
  return { monotonic, now, startFrom, after: (ms, act) => systemClock.after(ms, act) };
}
