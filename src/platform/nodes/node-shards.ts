// Begins to serve the shards of a node: from now on it claims those of its plan, and leads if it gets shard 0. The leader
// removes deleted endpoints from all shards, and manages the pods of all nodes.

import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { LocalShards, type OpenShard } from '../../cluster/local-shards.ts';
import type { Keys } from '../../control/keys/keys.ts';
import type { LoanAnswer, LoanMessage } from '../../queue/limits/shared/loans.ts';
import type { Queue } from '../../queue/queue.ts';
import type { Compute } from '../compute/compute.ts';
import type { EndpointDeletion, EndpointJobs } from '../compute/endpoint-remains.ts';
import type { WorkerHost } from '../compute/pod-control.ts';
import { createQueue } from '../create-queue.ts';
import type { MachineInfo } from '../machines/machine-agent.ts';
import type { Machines } from '../machines/machines.ts';
import { createWorkerHost, type NodeWork } from '../machines/node-work.ts';
import { createLimitSources } from '../shared-limit-source.ts';
import type { ControlStore } from './control-store.ts';
import type { JoinedNode } from './joined-node.ts';
import { askNode, NODE_CALLS } from './node-calls.ts';
import { createPeers } from './node-peers.ts';
import type { Routing } from './node-routing.ts';
import { openShardStore, ShardOpener, type ShardStore } from './shard-opener.ts';

interface ServingNode extends JoinedNode, Routing {
  /** URL at which workers on this machine reach the platform. */
  workerUrl: string;
}

/** Closing hands all shards over to other nodes: requests for them are forwarded then. */
export function serveShards(node: ServingNode, stack: AsyncDisposableStack): Leader {
  const { calls, client, clock, compute, control, keys, membership, options, pods, served } = node;
  const { log } = options;
  const opener = createOpener(node);
  const leader = new Leader({
    clock,
    log,
    store: control,
    keys,
    compute,
    pods: describePods(node),
    open: (onLost) => opener.open(0, onLost),
    removeFromShard: (shard, id, signal) =>
      unlessAborted(removeFromShard(node, opener, { shard, endpointId: id }), signal),
  });
  const shards = new LocalShards({
    membership,
    clock,
    log,
    served,
    open: (shard, onLost) => (shard === 0 ? leader.open(onLost) : opener.open(shard, onLost)),
    async callNode(url) {
      await askNode(client, url, NODE_CALLS.shards, null).catch((error: unknown) => {
        log.warn({ err: error, node: url }, 'could not notify a node; it will poll');
      });
    },
  });
  calls.answer(NODE_CALLS.remove, async ({ endpointId, shard }) => {
    await node.placement.refresh();
    await removeHere(opener, { shard, endpointId });
  });
  membership.onView((view) => {
    shards.follow(view);
    pods?.machines.follow(view);
  });
  stack.defer(() => shards.leave());
  shards.follow(membership.view);
  return leader;
}

function createOpener(node: ServingNode): ShardOpener {
  const { clock, compute, control, controlCopies, endpointCopies, membership, options } = node;
  const { placement, queues, status } = node;
  const { endpoints } = compute;
  const limitSource = createLimitSources(compute);
  return new ShardOpener({
    clock,
    log: options.log,
    endpoints,
    queues,
    copies: endpointCopies,
    reloadControl: () => controlCopies.reload(),
    countRequests: (shard) => placement.countRequests(shard),
    noteClosed: (shard) => status.noteClosed(shard),
    async openStore(shard, onLost): Promise<ShardStore> {
      // Rejects without a lease: then only a renewal tells whether another node has claimed the shard.
      const isOwner = () => membership.isMine(shard);
      const { failures, target } = node;
      const { log, storeLimits: limits = {} } = options;
      const ofShard = { shard, isOwner, onLost, target, limits, failures, log };
      const opened = await openShardStore(ofShard);
      status.noteOpen(shard, opened.size);
      if (shard === 0) control.own(opened.store);
      return opened;
    },
    createQueue: (store, shard) =>
      createQueue({
        ...options,
        store,
        clock,
        wrapLink: node.wrapLink,
        tracing: node.tracing,
        findScaling: node.findScaling,
        sharedLimits: limitSource({ shard, lend: (message) => lend(node, message) }),
        owns: (id) => endpoints.find(id)?.shard === shard,
        peers: createPeers({ ...node, shardOf: (id) => endpoints.find(id)?.shard }, shard),
      }),
  });
}

/** On whichever node serves the shard of the limits. @throws if none does */
async function lend(
  { client, owners, queues }: Pick<ServingNode, 'client' | 'owners' | 'queues'>,
  message: LoanMessage,
): Promise<LoanAnswer> {
  const owner = owners.find(message.home);
  if (owner.kind === 'node') return askNode(client, owner.url, NODE_CALLS.lend, message);
  return queues.lend(message);
}

/** Tells other nodes of this machine, too. */
function describePods(node: ServingNode): LeaderPods | undefined {
  const { calls, clock, compute, options, pods, queues, work, workerUrl } = node;
  if (!pods || !work) {
    const machine = { engine: 'none', name: '', workerUrl: '', limits: NO_LIMITS } as const;
    const devices = [...(options.compute.devices ?? [])];
    calls.answer(NODE_CALLS.describe, async () => ({ ...machine, devices }));
    return undefined;
  }
  const info = pods.describe(workerUrl);
  calls.answer(NODE_CALLS.describe, async () => info);
  const { hasFolders, machines, term } = pods;
  const hasVolumes = compute.engine?.stateVolumes !== undefined;
  const host = createWorkerHost({
    clock,
    machines,
    term,
    queues,
    replaceWorkersMs: options.nodes.replaceWorkersMs,
    work,
    workerUrl,
    hasFolders,
    tidyVolumes: hasVolumes ? () => compute.remains.tidyVolumes() : undefined,
  });
  return { machines, work, host, info };
}

const NO_LIMITS = { memoryGb: 0, vcpus: 0, diskGb: 0 };

interface DeletedEndpoint {
  shard: number;
  endpointId: string;
}

/** On whichever node that is. @throws if it is not possible now */
async function removeFromShard(
  { client, owners, served }: ServingNode,
  opener: ShardOpener,
  deleted: DeletedEndpoint,
): Promise<void> {
  const { shard } = deleted;
  if (served.has(shard)) return removeHere(opener, deleted);
  const owner = owners.find(shard);
  if (owner.kind !== 'node') throw new Error(`no node serves shard ${shard} now`);
  await askNode(client, owner.url, NODE_CALLS.remove, deleted);
}

async function removeHere(
  opener: ShardOpener,
  { endpointId, shard }: DeletedEndpoint,
): Promise<void> {
  if (await opener.removeEndpoint(shard, endpointId)) return;
  throw new Error(`endpoint ${endpointId} cannot be removed from shard ${shard} at the moment`);
}

/** @returns false if the signal aborts first. @throws what `work` rejects with */
function unlessAborted(work: Promise<void>, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const stop = () => resolve(false);
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
    work.then(() => resolve(true), reject).finally(() => signal.removeEventListener('abort', stop));
  });
}

const RETRY_MS = 1_000;

export interface LeaderOptions {
  clock: Clock;
  log: Log;
  store: ControlStore;
  keys: Keys;
  compute: Compute;
  /** Undefined without an engine. */
  pods: LeaderPods | undefined;
  /** Opens shard 0, with the store of the control plane. */
  open: (onLost: () => void) => Promise<OpenShard & { queue: Queue }>;
  /** Removes an endpoint's jobs and rows from its shard, on whichever node that is. Rejects if it cannot now. */
  removeFromShard: (shard: number, endpointId: string, signal: AbortSignal) => Promise<boolean>;
}

export interface LeaderPods {
  machines: Machines;
  work: NodeWork;
  host: WorkerHost;
  /** Of this machine. */
  info: MachineInfo;
}

/** The part of a platform that only the owner of shard 0 has. */
export class Leader {
  readonly #options: LeaderOptions;
  #deletion: EndpointDeletion | undefined;
  /** Counts the times that this node began to lead, and ended. */
  #turn = 0;

  constructor(options: LeaderOptions) {
    this.#options = options;
  }

  /** Opens shard 0: this node leads until it is closed or lost. */
  async open(onLost: () => void): Promise<OpenShard> {
    const { compute, open, store } = this.#options;
    // Without it, a deletion that can never end would keep this node from leading again.
    const lost = new AbortController();
    const lose = () => {
      store.own(undefined);
      lost.abort();
      onLost();
    };
    const opened = await open(lose).catch((error: unknown) => {
      store.own(undefined);
      throw error;
    });
    const close = async () => {
      try {
        await this.#end();
      } finally {
        await opened.close().finally(() => store.own(undefined));
        // This node no longer serves requests for pods.
        compute.pods?.live.clear();
      }
    };
    try {
      await this.#begin(opened.queue, lost.signal);
    } catch (error) {
      await close();
      throw error;
    }
    return { close, abandon: opened.abandon };
  }

  /** Resolves when all of these endpoints are removed, so that they may be declared again. */
  async settled(endpointIds: readonly string[]): Promise<void> {
    for (const id of endpointIds) await this.#deletion?.settled(id);
  }

  async #begin(queue: Queue, lost: AbortSignal): Promise<void> {
    const { compute } = this.#options;
    // Before deletions of endpoints, which end their workers.
    await compute.load();
    this.#deletion = await compute.remains.startDeletion(this.#jobsOf(queue), lost);
    this.#beginPods(lost);
  }

  /** Other nodes may be slow: it does not wait for them. */
  #beginPods(lost: AbortSignal): void {
    const { pods } = this.#options;
    if (!pods) return;
    lost.addEventListener('abort', () => this.#interrupt(), { once: true });
    if (lost.aborted) return;
    const turn = ++this.#turn;
    void pods.machines.begin(pods.info).then(() => this.#manage(pods.host, turn));
  }

  /** Never rejects. */
  async #manage(host: WorkerHost, turn: number): Promise<void> {
    const { clock, compute, keys, log } = this.#options;
    while (turn === this.#turn) {
      try {
        await compute.begin(keys, host);
        return;
      } catch (error) {
        log.error({ err: error }, 'starting to manage pods failed, retrying');
        await compute.end();
        await sleep(clock, RETRY_MS);
      }
    }
  }

  /** Another node leads from now on: this one no longer calls or writes anything. */
  async #end(): Promise<void> {
    const { compute } = this.#options;
    this.#interrupt();
    compute.balancer?.refuseWaiting();
    await compute.end();
    await this.#deletion?.close();
    this.#deletion = undefined;
  }

  #interrupt(): void {
    this.#turn += 1;
    this.#options.pods?.machines.end();
    this.#options.pods?.work.interrupt();
  }

  #jobsOf(queue: Queue): EndpointJobs {
    const { removeFromShard, store } = this.#options;
    return {
      async drop(id, signal) {
        const endpoint = await store.read((tx) => tx.endpoint(id));
        const shard = endpoint?.shard ?? 0;
        return shard === 0 ? queue.removal.drop(id, signal) : removeFromShard(shard, id, signal);
      },
      forget: (id) => queue.removal.forget(id),
    };
  }
}
