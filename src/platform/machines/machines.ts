// The machines of the nodes, as the leader sees them: which there are, which are gone, and calls to their agents. Only
// the node that leads calls them; each call carries its term, so that agents refuse a leader that was replaced.
import type { NodeClient } from '../../api/nodes/node-client.ts';
import type { ResumableClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { ClusterView, NodeView } from '../../cluster/cluster-rows.ts';
import type { PodMachine } from '../../control/limits/capacity.ts';
import type { Unreachable } from '../../control/pods/pod-lifecycle.ts';
import type { PodState } from '../../control/pods/pods.ts';
import { EngineError } from '../../engine/engine.ts';
import { askNode, NODE_CALLS } from '../nodes/node-calls.ts';
import type { Cluster } from '../nodes/node-routing.ts';
import type {
  MachineAct,
  MachineAgent,
  MachineAnswer,
  MachineInfo,
  MachineVerb,
} from './machine-agent.ts';

/** Longest waits for an answer, ms. A creation may pull an image. */
const CREATE_MS = 30 * 60_000;
const TIMEOUTS_MS: Partial<Record<MachineVerb, number>> = {
  create: CREATE_MS,
  list: 5_000,
  stats: 2_000,
  tidyFolders: 60_000,
};
const TIMEOUT_MS = 30_000;
/**
 * An image that arrives slowly, or a container that stops slowly, must not hold up the calls of other pods. The next
 * change of the same container waits for it.
 */
const LONG: ReadonlySet<MachineVerb> = new Set([
  ...(['create', 'start', 'stop', 'remove', 'removeVolumes', 'tidyFolders'] as const),
]);
/** A machine that has not answered for this long has its pods reported, ms. As long as a node's lease. */
const SILENT_MS = 8_000;

export interface MachinesOptions {
  cluster: { readonly id: string; readonly view: ClusterView; readonly isServing: boolean };
  /** With connections of its own: acts may take minutes. */
  client: NodeClient;
  /** Of this machine. */
  agent: MachineAgent;
  term: LeadTerm;
  /** The nodes have one machine together, a cluster: this node's agent acts for it. Default: each has its own. */
  isShared?: boolean;
  clock: ResumableClock;
  log: Log;
}

interface Machine {
  nodeId: string;
  url: string;
  info: MachineInfo;
  /** Aborts when its node is gone, or when another node leads. */
  lost: AbortController;
  /** Since when it has answered no list, by `monotonic`; undefined: it has answered the last one. */
  silentSince: number | undefined;
}

export class Machines {
  readonly #options: MachinesOptions;
  /** By ID of the node. */
  readonly #machines = new Map<string, Machine>();
  readonly #asking = new Map<string, Promise<void>>();
  /** IDs of nodes with another engine. */
  readonly #unusable = new Set<string>();
  readonly #listeners = new Set<() => void>();
  /** This machine. Undefined: another node leads. */
  #own: MachineInfo | undefined;

  constructor(options: MachinesOptions) {
    this.#options = options;
  }

  /** Calls the listener when a machine was found, or is gone. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /**
   * This node, whose machine is `own`, leads from now on. Resolves when every live node has answered, or has not in
   * time.
   */
  async begin(own: MachineInfo): Promise<void> {
    const { cluster, term } = this.#options;
    this.#own = own;
    term.begin();
    this.follow(cluster.view);
    await Promise.all(this.#asking.values());
  }

  /** Another node leads from now on: open calls are broken off. */
  end(): void {
    this.#own = undefined;
    this.#options.term.end();
    for (const { lost } of this.#machines.values()) lost.abort();
    this.#machines.clear();
    this.#unusable.clear();
  }

  follow(view: ClusterView): void {
    if (!this.#own) return;
    const live = this.#listWithMachine(view);
    const ids = new Set(live.map(({ id }) => id));
    const gone = [...this.#machines.values()].filter(({ nodeId }) => !ids.has(nodeId));
    for (const machine of gone) this.#drop(machine);
    for (const { id, url } of live) {
      if (this.#isKnown(id) || this.#asking.has(id)) continue;
      const asking = this.#ask(id, url).finally(() => this.#asking.delete(id));
      this.#asking.set(id, asking);
    }
    if (gone.length > 0) this.#notify();
  }

  /** Names of the nodes whose machines can be called. */
  get names(): string[] {
    return [...this.#machines.values()].flatMap(({ info }) =>
      this.#find(info.name) ? [info.name] : [],
    );
  }

  info(name: string): MachineInfo | undefined {
    return this.#find(name)?.info;
  }

  /** Of a node by its ID. */
  infoOf(nodeId: string): MachineInfo | undefined {
    return this.#machines.get(nodeId)?.info;
  }

  /** URL of the node for other nodes. */
  urlOf(name: string): string | undefined {
    return this.#find(name)?.url;
  }

  /** The machines that take new pods. */
  listMachines(): PodMachine[] {
    return this.names.flatMap((name) => {
      const machine = this.#find(name);
      return machine && machine.silentSince === undefined
        ? [{ node: name, limits: machine.info.limits }]
        : [];
    });
  }

  findUnreachable({ node }: Pick<PodState, 'node'>): Unreachable | undefined {
    const machine = node === undefined ? undefined : this.#find(node);
    if (machine && !this.#isSilent(machine)) return undefined;
    if (machine) return { why: `the engine of node ${node} does not answer`, isGone: false };
    const isAmbiguous = this.#list(node).length > 1;
    if (isAmbiguous) {
      const why = `two nodes have copies of the data folder of ${node}, and both are unused`;
      return { why, isGone: false };
    }
    // A live node that has not answered yet may be the one.
    const isGone = this.#listWithMachine(this.#options.cluster.view).every(({ id }) =>
      this.#isKnown(id),
    );
    if (node === undefined) return { why: 'no node has the container of this pod', isGone };
    return { why: isGone ? `node ${node} is gone` : `node ${node} does not answer`, isGone };
  }

  /** The machine has answered a list, or not. */
  noteList(name: string, { isAnswered }: { isAnswered: boolean }): void {
    const machine = this.#find(name);
    if (!machine || isAnswered === (machine.silentSince === undefined)) return;
    const { clock, log } = this.#options;
    machine.silentSince = isAnswered ? undefined : clock.monotonic();
    if (isAnswered) log.info({ node: name }, 'engine of a node answers again');
    else log.warn({ node: name }, 'engine of a node does not answer');
  }

  /** @throws EngineError, also if this node does not lead */
  async act(name: string, act: MachineAct): Promise<unknown> {
    const { agent, client, cluster } = this.#options;
    const machine = this.#find(name);
    if (!machine) throw new EngineError('unavailable', `node ${name} does not answer`);
    const term = this.#options.term.require();
    let answer: MachineAnswer;
    try {
      const timeoutMs = TIMEOUTS_MS[act.verb] ?? TIMEOUT_MS + waitOf(act);
      if (machine.nodeId === cluster.id) {
        answer = await this.#within(timeoutMs, machine.lost.signal, agent.answer({ act, term }));
      } else {
        const options = { timeoutMs, signal: machine.lost.signal, isLong: LONG.has(act.verb) };
        answer = await askNode(client, machine.url, NODE_CALLS.machine, { term, act }, options);
      }
    } catch (cause) {
      throw new EngineError('unavailable', `the engine of node ${name} does not answer`, { cause });
    }
    if ('failed' in answer) throw new EngineError(answer.failed.code, answer.failed.message);
    return answer.value;
  }

  /** An engine that hangs must not keep the pods of other machines waiting. Rejects when the time is over. */
  #within<T>(ms: number, lost: AbortSignal, answer: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const giveUp = () => reject(new Error(`no answer within ${ms} ms, or another node leads`));
      const cancel = this.#options.clock.after(ms, giveUp);
      const end = () => {
        cancel();
        lost.removeEventListener('abort', end);
        giveUp();
      };
      // Without it, the timer of a creation would keep the process running for long.
      lost.addEventListener('abort', end);
      answer.then(resolve, reject).finally(end);
    });
  }

  /** The live nodes whose agents are called. */
  #listWithMachine({ nodes }: ClusterView): NodeView[] {
    const { cluster, isShared = false } = this.#options;
    return nodes.filter(({ id, isLive }) => isLive && (!isShared || id === cluster.id));
  }

  #isSilent({ silentSince }: Machine): boolean {
    return silentSince !== undefined && this.#options.clock.monotonic() - silentSince >= SILENT_MS;
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }

  #isKnown(nodeId: string): boolean {
    return this.#machines.has(nodeId) || this.#unusable.has(nodeId);
  }

  #list(name: string | undefined): Machine[] {
    return [...this.#machines.values()].filter(({ info }) => info.name === name);
  }

  /** UUIDs of the devices of a node's machine; none if it cannot be called. */
  devicesOf(name: string): ReadonlySet<string> {
    return new Set(this.#find(name)?.info.devices.map(({ uuid }) => uuid));
  }

  /** Two nodes with one name have copies of a data folder: neither is to be trusted. */
  #find(name: string): Machine | undefined {
    const [machine, other] = this.#list(name);
    return other ? undefined : machine;
  }

  #drop(machine: Machine): void {
    this.#machines.delete(machine.nodeId);
    machine.lost.abort();
    this.#options.log.warn({ node: machine.info.name, url: machine.url }, 'node is gone');
  }

  /** Never rejects. */
  async #ask(nodeId: string, url: string): Promise<void> {
    const { client, cluster, log } = this.#options;
    const own = this.#own;
    if (!own) return;
    try {
      const info =
        nodeId === cluster.id ? own : await askNode(client, url, NODE_CALLS.describe, null);
      if (own !== this.#own) return;
      if (info.engine !== own.engine) {
        const note = { node: url, engine: info.engine };
        this.#unusable.add(nodeId);
        log.error(note, 'node has another engine; its machine is not used');
        return;
      }
      const other = this.#list(info.name)[0];
      this.#machines.set(nodeId, {
        nodeId,
        url,
        info,
        lost: new AbortController(),
        silentSince: undefined,
      });
      log.info({ node: info.name, engine: info.engine }, 'node found');
      if (other) {
        const urls = [url, other.url];
        log.error({ node: info.name, urls }, 'two nodes have copies of one data folder');
      }
      this.#notify();
    } catch (error) {
      log.warn({ err: error, url }, 'asking a node about its machine failed, retrying');
    }
  }
}

function waitOf(act: MachineAct): number {
  return act.verb === 'stop' ? act.graceMs : 0;
}

/**
 * The term in which this node leads: the epoch of shard 0. Whatever the leader has others do carries it, so that nobody obeys a
 * leader that was replaced.
 */
export class LeadTerm {
  readonly #cluster: Cluster;
  /** Undefined: another node leads. */
  #term: number | undefined;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  begin(): void {
    this.#term = this.#shard?.epoch;
  }

  end(): void {
    this.#term = undefined;
  }

  get current(): number | undefined {
    return this.#term;
  }

  /** A node that was paused may still believe that it leads; its lease tells. @throws EngineError */
  require(): number {
    const { id, isServing } = this.#cluster;
    const shard = this.#shard;
    const leads = shard?.owner === id && shard.epoch === this.#term;
    if (this.#term !== undefined && leads && isServing) return this.#term;
    throw replaced();
  }

  /**
   * For a change that takes several requests to a cluster: throws from the moment on at which this node does not lead any
   * more, also if it leads again by then. @throws EngineError, already when it opens
   */
  openFence(): () => void {
    const term = this.require();
    return () => {
      if (this.require() !== term) throw replaced();
    };
  }

  get #shard() {
    return this.#cluster.view.shards.find(({ id }) => id === 0);
  }
}

function replaced(): EngineError {
  return new EngineError('unavailable', 'this node does not lead at the moment');
}
