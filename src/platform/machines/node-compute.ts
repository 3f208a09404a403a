// Pods over nodes: the engine of this machine, with the agent that obeys the leader, and the control plane over the
// machines of all nodes. Records of pods are in the leader's store, containers at the engines of the nodes.
import type { NodeClient } from '../../api/nodes/node-client.ts';
import { connectToPod } from '../../api/nodes/pod-tunnel.ts';
import type { ResumableClock } from '../../base/clock.ts';
import type { Connector, WorkerTarget } from '../../control/balancing/balanced-worker.ts';
import type { LivePods } from '../../control/pods/live-pods.ts';
import type { PodState } from '../../control/pods/pods.ts';
import type { Engine } from '../../engine/engine.ts';
import type { PodUser } from '../../engine/process/pod-user.ts';
import type { Store } from '../../store/store.ts';
import { Compute } from '../compute/compute.ts';
import { createNoticeSender, createWebhookSender } from '../create-queue.ts';
import { MachineCatalog } from '../files/catalog-file.ts';
import { openSealer } from '../files/secret-files.ts';
import { type Machine, openMachine } from '../machine.ts';
import { NODE_CALLS, type NodeCalls } from '../nodes/node-calls.ts';
import { findClusterName, type NodePlatformOptions } from '../nodes/node-options.ts';
import type { Cluster } from '../nodes/node-placement.ts';
import { MachineAgent } from './machine-agent.ts';
import type { MachineInfo } from './machine-messages.ts';
import { LeadTerm, Machines } from './machines.ts';
import { NodesEngine } from './nodes-engine.ts';

export interface NodeComputeOptions {
  /** Of this machine in records of pods; empty without pods. */
  name: string;
  platform: NodePlatformOptions;
  podUser: PodUser | undefined;
  clock: ResumableClock;
  /** Of endpoints and templates. */
  store: Store;
  /** Of pods and scaling decisions. */
  podStore: Store;
  cluster: Cluster;
  calls: NodeCalls;
  /** For calls of machines, which may take minutes. */
  client: NodeClient;
  chooseShard: (endpointId: string) => number;
}

export interface NodeCompute {
  compute: Compute;
  /** Undefined without an engine. */
  pods: NodePods | undefined;
}

/** The machines that run pods. */
export interface NodePods {
  engine: Engine;
  agent: MachineAgent;
  machines: Machines;
  term: LeadTerm;
  /** Workers on this machine keep undelivered outcomes in folders. */
  hasFolders: boolean;
  /** This machine, with the URL at which its workers reach the platform. */
  describe: (workerUrl: string) => MachineInfo;
}

/** Closed by `stack`. Pods keep running. @throws PlatformOptionError */
export async function openNodeCompute(
  options: NodeComputeOptions,
  stack: AsyncDisposableStack,
): Promise<NodeCompute> {
  const { platform } = options;
  const term = new LeadTerm(options.cluster);
  // A cluster has no agent that refuses the calls of an earlier leader.
  const machine = await openMachine(platform, options.podUser, () => term.openFence());
  const { engine } = machine;
  stack.defer(() => engine?.close());
  const pods = engine && openPods(options, { engine, machine, term });
  const { catalogFile: path, devices = [], readVariable = () => undefined } = platform.compute;
  const { log } = platform;
  const ofEngine = platform.compute.engine;
  const catalog = new MachineCatalog({ path, devices, engine: ofEngine, readVariable, log });
  const compute = await openCompute(options, { catalog, pods });
  stack.defer(() => compute.close());
  pods?.machines.onChange(() => {
    const { machines } = pods;
    catalog.update(machines.names.flatMap((name) => machines.info(name) ?? []));
    compute.noteMachines();
  });
  return { compute, pods };
}

interface OwnMachine {
  engine: Engine;
  machine: Machine;
  term: LeadTerm;
}

function openPods(
  { calls, client, clock, cluster, name, platform }: NodeComputeOptions,
  { engine, machine, term }: OwnMachine,
): NodePods {
  const { log } = platform;
  const { limits = NO_LIMITS, workerFolders } = machine;
  const agent = new MachineAgent({
    engine,
    workerFolders,
    readTerm: () => cluster.view.shards.find(({ id }) => id === 0)?.epoch ?? 0,
    async readUse() {
      const { endpoints, pods } = await calls.askLeader(NODE_CALLS.use, null);
      return { endpoints: new Set(endpoints), pods: new Map(pods) };
    },
  });
  calls.answer(NODE_CALLS.machine, (body) => agent.answer(body));
  const isShared = findClusterName(platform.compute) !== undefined;
  const machines = new Machines({ cluster, client, clock, log, agent, term, isShared });
  const devices = [...(platform.compute.devices ?? [])];
  const facts = { engine: engine.kind, name, limits, devices };
  return {
    engine,
    agent,
    machines,
    term,
    hasFolders: workerFolders !== undefined,
    describe: (workerUrl) => ({ ...facts, workerUrl }),
  };
}

interface ComputeFrom {
  catalog: MachineCatalog;
  pods: NodePods | undefined;
}

function openCompute(options: NodeComputeOptions, from: ComputeFrom): Promise<Compute> {
  const { chooseShard, clock, platform, podStore, store } = options;
  const { log, quotas } = platform;
  const { catalog, pods } = from;
  return Compute.open({
    store,
    clock,
    log,
    quotas,
    chooseShard,
    engine: pods && ((live) => joinEngines(options, pods, live)),
    sealer: openSealer(platform.secretsKeyFile),
    noticeSender: pods && createNoticeSender(createWebhookSender(platform), clock),
    catalog: catalog.catalog,
    processUsers: platform.compute.trustUsers ? 'all' : 'owner',
    ...(pods && {
      nodes: {
        store: podStore,
        listMachines: () => pods.machines.listMachines(),
        gpusOfNode: (node: string) => pods.machines.devicesOf(node),
        connectorOf: (target: WorkerTarget) => findConnector(options, pods.machines, target),
      },
    }),
  });
}

/** The engines of all nodes as one. Closing it leaves that of this machine open. */
function joinEngines(
  { platform: { log } }: NodeComputeOptions,
  { engine, machines }: NodePods,
  live: LivePods,
): NodesEngine {
  return new NodesEngine({
    kind: engine.kind,
    hasStateVolumes: engine.stateVolumes !== undefined,
    machines,
    log,
    capabilities: () => engine.capabilities,
    findPod: (id) => live.get(id),
    bind: async (id, node) => {
      const bindTo = (pod: PodState) => (pod.node === undefined ? { ...pod, node } : pod);
      await live.change(id, bindTo);
    },
    watchOwn: (onChange) => engine.watch(onChange),
  });
}

/** How the balancer connects to a worker on another machine. */
function findConnector(
  { name, platform }: NodeComputeOptions,
  machines: Machines,
  { node, podId, port }: WorkerTarget,
): Connector | undefined {
  if (node === undefined || node === name) return undefined;
  const { secrets } = platform.nodes;
  return (_options, callback) => {
    const url = machines.urlOf(node);
    if (url === undefined) {
      callback(new Error(`node ${node} does not answer`), null);
      return;
    }
    connectToPod({ url, podId, port, secrets }).then(
      (socket) => callback(null, socket),
      (error: unknown) => {
        callback(error instanceof Error ? error : new Error(String(error)), null);
      },
    );
  };
}

/** Without a data folder. */
const NO_LIMITS = { memoryGb: 0, vcpus: 0, diskGb: 0 };
