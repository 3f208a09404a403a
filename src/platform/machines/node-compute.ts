// Pods over nodes: this node's machine with its agent and, while the node leads, the management of all pods. Records
// of pods are in the leader's store, containers at the engines of the nodes.
import type { NodeClient } from '../../api/nodes/node-client.ts';
import { connectToPod } from '../../api/nodes/pod-tunnel.ts';
import { type ResumableClock, sleep } from '../../base/clock.ts';
import type { ClusterView } from '../../cluster/cluster-view.ts';
import type { Connector, WorkerTarget } from '../../control/balancing/balanced-worker.ts';
import type { Keys } from '../../control/keys/keys.ts';
import type { PodState } from '../../control/pods/pods.ts';
import type { Engine } from '../../engine/engine.ts';
import type { PodUser } from '../../engine/process/pod-user.ts';
import type { Store } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { KnownScaling } from '../../wire/resources/scaling.ts';
import { Compute } from '../compute/compute.ts';
import type { WorkerHost } from '../compute/pod-control.ts';
import type { FolderUse } from '../compute/worker-folders.ts';
import { createNoticeSender, createWebhookSender } from '../create-queue.ts';
import { MachineCatalog } from '../files/catalog-file.ts';
import { openSealer } from '../files/secret-files.ts';
import { type Machine, openMachine } from '../machine.ts';
import { callNode, type MachineCallHandlers } from '../nodes/node-calls.ts';
import { findClusterName, type NodePlatformOptions } from '../nodes/node-options.ts';
import { MachineAgent } from './machine-agent.ts';
import { type MachineInfo, type UseAnswer, useAnswer } from './machine-messages.ts';
import { Machines } from './machines.ts';
import { createWorkerHost, LeaderScaling, NodeWork, type NodeWorkOptions } from './node-work.ts';
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
  keys: Keys;
  cluster: { readonly id: string; readonly view: ClusterView; readonly isServing: boolean };
  /** For calls of machines, which may take minutes. */
  client: NodeClient;
  chooseShard: (endpointId: string) => number;
}

/** The parts of the node that exist once it serves requests. */
interface ServingParts extends Pick<NodeWorkOptions, 'queues' | 'findOwner' | 'findLeader'> {
  /** URL at which workers on this machine reach the platform. */
  workerUrl: string;
}

/** The engine of this machine, and those of all. */
interface EngineParts {
  own: Engine;
  agent: MachineAgent;
  machines: Machines;
  engine: Engine;
}

export class NodeCompute {
  readonly #options: NodeComputeOptions;
  readonly #machine: Machine;
  readonly #parts: EngineParts | undefined;
  readonly #name: string;
  #compute: Compute | undefined;
  #catalog: MachineCatalog | undefined;
  /** Counts the times that this node began to lead, and ended. */
  #term = 0;
  #serving: { parts: ServingParts; work: NodeWork; scaling: LeaderScaling } | undefined;

  private constructor(options: NodeComputeOptions, machine: Machine) {
    this.#options = options;
    this.#machine = machine;
    this.#name = options.name;
    this.#parts = machine.engine && this.#createParts(machine.engine);
  }

  /** @throws PlatformOptionError */
  static async open(options: NodeComputeOptions): Promise<NodeCompute> {
    const { chooseShard, clock, platform, podStore, podUser, store } = options;
    const { compute, log, quotas } = platform;
    const { catalogFile, readVariable = () => undefined, trustUsers } = compute;
    let machines: Machines | undefined;
    // A cluster has no agent that refuses the calls of an earlier leader.
    const openFence = () => machines?.openFence() ?? (() => {});
    const machine = await openMachine(platform, podUser, openFence);
    const node = new NodeCompute(options, machine);
    machines = node.#parts?.machines;
    const parts = node.#parts;
    const { devices = [], engine } = compute;
    const given = { path: catalogFile, devices, engine, readVariable, log };
    const ofMachines = new MachineCatalog(given);
    node.#catalog = ofMachines;
    node.#compute = await Compute.open({
      store,
      clock,
      log,
      quotas,
      chooseShard,
      engine: parts && (() => parts.engine),
      sealer: openSealer(platform.secretsKeyFile),
      noticeSender: parts && createNoticeSender(createWebhookSender(platform), clock),
      catalog: ofMachines.catalog,
      processUsers: trustUsers ? 'all' : 'owner',
      ...(parts && {
        nodes: {
          store: podStore,
          listMachines: () => parts.machines.listMachines(),
          gpusOfNode: (name: string) => parts.machines.devicesOf(name),
          connectorOf: (target: WorkerTarget) => node.#findConnector(target, parts.machines),
        },
      }),
    });
    return node;
  }

  get compute(): Compute {
    if (!this.#compute) throw new Error('the control plane is not open');
    return this.#compute;
  }

  /** Of this machine. */
  get ownEngine(): Engine | undefined {
    return this.#parts?.own;
  }

  /** The machine of a node, while this node leads. */
  findMachine(nodeId: string): MachineInfo | undefined {
    return this.#parts?.machines.infoOf(nodeId);
  }

  /** Answers other nodes from now on. */
  serve(parts: ServingParts): void {
    const { client, clock, platform } = this.#options;
    const isDeployed = (id: string) => this.compute.endpoints.find(id)?.deployment != null;
    if (!this.#parts) return;
    const work = new NodeWork({ ...parts, client, isDeployed, log: platform.log });
    const { findLeader } = parts;
    const own = (id: string) => this.compute.scalingOf(id);
    const scaling = new LeaderScaling({ client, clock, findLeader, own });
    this.#serving = { parts, work, scaling };
  }

  /** What the scaler knows of the endpoint's workers, on whichever node it runs. Never rejects. */
  scalingOf(endpointId: string): KnownScaling | Promise<KnownScaling> {
    if (!this.compute.endpoints.find(endpointId)?.deployment) return 'none';
    return this.#serving?.scaling.find(endpointId) ?? 'unknown';
  }

  follow(view: ClusterView): void {
    this.#parts?.machines.follow(view);
  }

  /** Reads the pods, and what budgets have left: this node is about to lead. */
  async load(): Promise<void> {
    await this.compute.load();
  }

  /** This node leads until `lost` aborts or `end` is called. Other nodes may be slow: it does not wait for them. */
  begin(lost: AbortSignal): void {
    if (!this.#parts || !this.#serving) return;
    const { machines } = this.#parts;
    const { work } = this.#serving;
    lost.addEventListener('abort', () => this.#interrupt(), { once: true });
    if (lost.aborted) return;
    const host = this.#createHost(this.#parts, work);
    const term = ++this.#term;
    void machines.begin().then(() => this.#manage(host, term));
  }

  /** Never rejects. */
  async #manage(host: WorkerHost, term: number): Promise<void> {
    const { clock, keys, platform } = this.#options;
    while (term === this.#term) {
      try {
        await this.compute.begin(keys, host);
        return;
      } catch (error) {
        platform.log.error({ err: error }, 'starting to manage pods failed, retrying');
        await this.compute.end();
        await sleep(clock, RETRY_MS);
      }
    }
  }

  /** Another node leads from now on: nothing is called and written any more. */
  async end(): Promise<void> {
    this.#interrupt();
    this.compute.balancer?.refuseWaiting();
    await this.compute.end();
  }

  /** Follows `end`, when no request for pods is served any more. */
  forget(): void {
    this.compute.pods?.live.clear();
  }

  /** Resolves with the address of a port of a pod on this machine. */
  async findPodPort(podId: string, port: number) {
    return this.#parts?.agent.findPort(podId, port);
  }

  readonly calls: MachineCallHandlers = {
    describe: async () => this.#describe(),
    machine: async (body) => this.#requireParts().agent.answer(body),
    work: async ({ endpointIds }) => {
      this.#requireLead();
      this.#requireServing().work.noteTold(endpointIds);
    },
    load: async ({ endpointId }) =>
      this.#requireServing().parts.queues.workerLoads.load(endpointId),
    scaling: async ({ endpointId }) => {
      this.#requireLead();
      const scaling = this.compute.scalingOf(endpointId);
      return typeof scaling === 'object' ? scaling : undefined;
    },
    drain: async ({ endpointId, podId }) =>
      this.#requireServing().parts.queues.workerLoads.drain(endpointId, podId),
    endPod: async (ended) => this.#requireServing().work.endPodHere(ended),
    use: async () => this.#listUse(),
  };

  /** Pods keep running. */
  async close(): Promise<void> {
    this.#serving?.work.close();
    await this.#compute?.close();
    await this.#parts?.own.close();
  }

  #createParts(own: Engine): EngineParts {
    const { client, clock, cluster, platform } = this.#options;
    const { compute, log } = platform;
    const readTerm = () => cluster.view.shards.find(({ id }) => id === 0)?.epoch ?? 0;
    const readUse = () => this.#readUse();
    const { workerFolders } = this.#machine;
    const agent = new MachineAgent({ engine: own, workerFolders, readTerm, readUse });
    const machines = new Machines({
      cluster,
      client,
      clock,
      log,
      own: { agent, info: () => this.#describe() },
      isShared: findClusterName(compute) !== undefined,
      onChange: () => this.#noteMachines(machines),
    });
    const engine = new NodesEngine({
      kind: own.kind,
      hasStateVolumes: own.stateVolumes !== undefined,
      machines,
      log,
      capabilities: () => own.capabilities,
      findPod: (id) => this.#compute?.pods?.live.get(id),
      bind: async (id, node) => {
        const bindTo = (pod: PodState) => (pod.node === undefined ? { ...pod, node } : pod);
        await this.#compute?.pods?.live.change(id, bindTo);
      },
      watchOwn: (onChange) => own.watch(onChange),
    });
    return { own, agent, machines, engine };
  }

  #createHost({ engine, machines }: EngineParts, work: NodeWork): WorkerHost {
    const { clock, platform } = this.#options;
    const { queues, workerUrl } = this.#requireServing().parts;
    const { replaceWorkersMs } = platform.nodes;
    return createWorkerHost({
      clock,
      machines,
      queues,
      replaceWorkersMs,
      work,
      workerUrl,
      hasFolders: this.#machine.workerFolders !== undefined,
      tidyVolumes: engine.stateVolumes ? () => this.compute.remains.tidyVolumes() : undefined,
    });
  }

  #noteMachines(machines: Machines): void {
    this.#catalog?.update(machines.names.flatMap((name) => machines.info(name) ?? []));
    this.#compute?.noteMachines();
  }

  #interrupt(): void {
    this.#term += 1;
    this.#parts?.machines.end();
    this.#serving?.work.interrupt();
  }

  #findConnector({ node, podId, port }: WorkerTarget, machines: Machines): Connector | undefined {
    if (node === undefined || node === this.#name) return undefined;
    const { secrets } = this.#options.platform.nodes;
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

  /** @throws ProblemError `unavailable` */
  #describe(): MachineInfo {
    const { devices: own = [], engine } = this.#options.platform.compute;
    const devices = [...own];
    const { limits } = this.#machine;
    const workerUrl = this.#serving?.parts.workerUrl;
    if (engine === 'none') return { engine, name: '', workerUrl: '', limits: NO_LIMITS, devices };
    if (workerUrl === undefined || !limits) throw starting();
    return { engine, name: this.#name, workerUrl, limits, devices };
  }

  async #readUse(): Promise<FolderUse> {
    const leader = this.#requireServing().parts.findLeader();
    if (leader.kind === 'none') throw new Error('no node leads');
    const answer =
      leader.kind === 'here'
        ? this.#listUse()
        : useAnswer.parse(await callNode(this.#options.client, leader.url, 'use', null));
    return { endpoints: new Set(answer.endpoints), pods: new Map(answer.pods) };
  }

  #listUse(): UseAnswer {
    this.#requireLead();
    const { endpoints, pods } = this.compute.remains.listUse();
    return { endpoints: [...endpoints], pods: [...pods] };
  }

  /** @throws ProblemError `unavailable` */
  #requireLead(): void {
    if (this.#requireServing().parts.findLeader().kind === 'here') return;
    throw new ProblemError('unavailable', 'this node does not lead', { retryAfterMs: 1_000 });
  }

  #requireServing() {
    if (this.#serving) return this.#serving;
    throw starting();
  }

  #requireParts(): EngineParts {
    if (this.#parts) return this.#parts;
    throw new ProblemError('not_found', 'this node has no engine');
  }
}

const RETRY_MS = 1_000;
/** Without an engine. */
const NO_LIMITS = { memoryGb: 0, vcpus: 0, diskGb: 0 };

function starting(): ProblemError {
  return new ProblemError('unavailable', 'this node is starting', { retryAfterMs: 1_000 });
}
