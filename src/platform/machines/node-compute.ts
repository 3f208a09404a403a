// Pods over nodes: the engine of this machine, with the agent that obeys the leader, and the control plane over the
// machines and engines of all nodes. Records of pods are in the leader's store, containers at the engines of the nodes.

import { z } from 'zod';
import type { NodeClient } from '../../api/nodes/node-client.ts';
import { connectToPod } from '../../api/nodes/node-client.ts';
import type { ResumableClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Connector, WorkerTarget } from '../../control/balancing/balanced-worker.ts';
import type { LivePods } from '../../control/pods/live-pods.ts';
import type { PodState } from '../../control/pods/pods.ts';
import {
  type Container,
  type ContainerSpec,
  type ContainerStats,
  type Engine,
  type EngineCapabilities,
  EngineError,
  type NetworkVolumes,
  type StateVolumes,
} from '../../engine/engine.ts';
import type { PodUser } from '../../engine/process/pod-user.ts';
import type { Store } from '../../store/store.ts';
import { Compute } from '../compute/compute.ts';
import { createNoticeSender, createWebhookSender } from '../create-queue.ts';
import { MachineCatalog } from '../files/catalog-file.ts';
import { openSealer } from '../files/secret-files.ts';
import { type Machine, openMachine } from '../machine.ts';
import { NODE_CALLS, type NodeCalls } from '../nodes/node-calls.ts';
import type { Cluster } from '../nodes/node-routing.ts';
import { findClusterName, type NodePlatformOptions } from '../platform-options.ts';
import {
  container,
  containerStats,
  ids,
  type MachineAct,
  MachineAgent,
  type MachineInfo,
} from './machine-agent.ts';
import { LeadTerm, Machines } from './machines.ts';

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
    hasHistory: platform.history !== undefined,
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

/** Closing it leaves the engine of this machine open. */
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

/** The pod's record, as far as the engine needs it. */
interface PodHome {
  node?: string;
}

export interface NodesEngineOptions {
  kind: Engine['kind'];
  /** Of the engine of this machine; all nodes have the same kind. */
  capabilities: () => EngineCapabilities;
  hasStateVolumes: boolean;
  machines: Pick<Machines, 'act' | 'names' | 'noteList'>;
  /** Undefined if the pod no longer exists. */
  findPod: (id: string) => PodHome | undefined;
  /** Records the node of a pod of a time when the platform had only one. */
  bind: (id: string, node: string) => Promise<void>;
  /** Watches the containers of this machine; those of others are seen at the next pass. */
  watchOwn: Engine['watch'];
  log: Log;
}

/** The engines of all nodes as one: each call goes to the machine of the pod's node. */
export class NodesEngine implements Engine {
  readonly kind: Engine['kind'];
  readonly stateVolumes?: StateVolumes;
  readonly networkVolumes: NetworkVolumes = {
    remove: async (source) => {
      await this.#actAll({ verb: 'removeNetworkVolume', source });
    },
    grow: async (source, sizeGb) => {
      await this.#actAll({ verb: 'growNetworkVolume', source, sizeGb });
    },
    list: async () => {
      const lists = await this.#actAll({ verb: 'listNetworkVolumes' });
      return [...new Set(lists.flatMap((list) => ids.parse(list)))];
    },
  };
  readonly #options: NodesEngineOptions;
  /** Where the last list found containers without a pod. */
  readonly #strays = new Map<string, string>();

  constructor(options: NodesEngineOptions) {
    this.#options = options;
    this.kind = options.kind;
    if (options.hasStateVolumes) {
      this.stateVolumes = {
        listEndpoints: () => this.#listVolumes(),
        remove: (endpointId) => this.#removeVolumes(endpointId),
      };
    }
  }

  get capabilities(): EngineCapabilities {
    return this.#options.capabilities();
  }

  async create(spec: ContainerSpec): Promise<void> {
    await this.#act(spec.id, { verb: 'create', spec });
  }

  async start(id: string, gpus?: readonly string[]): Promise<void> {
    await this.#act(id, { verb: 'start', id, ...(gpus && { gpus: [...gpus] }) });
  }

  async stop(id: string, graceMs: number): Promise<void> {
    await this.#act(id, { verb: 'stop', id, graceMs });
  }

  async remove(id: string, volumes: 'keep' | 'remove'): Promise<void> {
    await this.#act(id, { verb: 'remove', id, volumes });
  }

  async inspect(id: string): Promise<Container | undefined> {
    return container.nullable().parse(await this.#act(id, { verb: 'inspect', id })) ?? undefined;
  }

  /** Of the nodes that answer. @throws EngineError if none does */
  async list(): Promise<Container[]> {
    const { machines } = this.#options;
    const { names } = machines;
    this.#strays.clear();
    const lists = await Promise.allSettled(names.map((name) => this.#listAt(name)));
    const failed = lists.find((list) => list.status === 'rejected');
    if (failed && lists.every((list) => list.status === 'rejected')) throw failed.reason;
    return lists.flatMap((list) => (list.status === 'fulfilled' ? list.value : []));
  }

  async stats(id: string): Promise<ContainerStats | undefined> {
    return containerStats.nullable().parse(await this.#act(id, { verb: 'stats', id })) ?? undefined;
  }

  async readLog(id: string, maxBytes: number): Promise<Uint8Array> {
    const text = z.string().parse(await this.#act(id, { verb: 'readLog', id, maxBytes }));
    return Buffer.from(text, 'base64');
  }

  watch(onChange: (id: string) => void): () => void {
    return this.#options.watchOwn(onChange);
  }

  /** Each node closes its own engine. */
  async close(): Promise<void> {}

  async #act(id: string, act: MachineAct): Promise<unknown> {
    const { findPod, machines } = this.#options;
    const pod = findPod(id);
    const node = pod ? pod.node : this.#strays.get(id);
    if (node === undefined)
      throw new EngineError('unavailable', 'no node has the container of this pod');
    return machines.act(node, act);
  }

  /** On each machine that can be called. @throws EngineError also if there is none */
  async #actAll(act: MachineAct): Promise<unknown[]> {
    const { machines } = this.#options;
    const { names } = machines;
    if (names.length === 0) throw new EngineError('unavailable', 'no node answers');
    return Promise.all(names.map((name) => machines.act(name, act)));
  }

  async #listAt(node: string): Promise<Container[]> {
    const { machines } = this.#options;
    try {
      const found = z.array(container).parse(await machines.act(node, { verb: 'list' }));
      machines.noteList(node, { isAnswered: true });
      const kept: Container[] = [];
      for (const each of found) if (await this.#belongs(each, node)) kept.push(each);
      return kept;
    } catch (error) {
      machines.noteList(node, { isAnswered: false });
      throw error;
    }
  }

  /** False: the pod is another node's, so this container is a copy of an old data folder. */
  async #belongs({ id }: Container, node: string): Promise<boolean> {
    const { bind, findPod, log, machines } = this.#options;
    const pod = findPod(id);
    if (!pod) {
      this.#strays.set(id, node);
      return true;
    }
    this.#strays.delete(id);
    if (pod.node === undefined) await bind(id, node);
    const home = findPod(id)?.node;
    if (home === node) return true;
    log.warn({ container: id, node, podNode: home }, 'removing container of a pod of another node');
    await machines.act(node, { verb: 'remove', id, volumes: 'keep' });
    return false;
  }

  async #listVolumes(): Promise<string[]> {
    const { machines } = this.#options;
    const lists = machines.names.map(async (name) =>
      ids.parse(await machines.act(name, { verb: 'listVolumes' })),
    );
    return [...new Set((await Promise.all(lists)).flat())];
  }

  async #removeVolumes(endpointId: string): Promise<void> {
    const { machines } = this.#options;
    const acts = machines.names.map((name) =>
      machines.act(name, { verb: 'removeVolumes', endpointId }),
    );
    await Promise.all(acts);
  }
}
