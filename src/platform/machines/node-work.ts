// The work of endpoints across nodes: the leader scales workers, and the owner of each endpoint has its jobs. The leader
// asks the owners for their load and to drain workers. The owners report endpoints that have new jobs, and ask the leader
// what its scaler knows.
import { setTimeout as pause } from 'node:timers/promises';
import type { OwnerNode } from '../../api/forwarding/forwarding-options.ts';
import type { NodeClient } from '../../api/nodes/node-client.ts';
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { ParkWish, WorkLoad, WorkView } from '../../control/scaling/work-view.ts';
import type { Queues } from '../../queue/queues.ts';
import { StoreUnavailableError } from '../../store/store.ts';
import type { KnownScaling } from '../../wire/resources/scaling.ts';
import type { WorkerHost } from '../compute/pod-control.ts';
import { askNode, NODE_CALLS, type NodeCalls } from '../nodes/node-calls.ts';
import { leaseRefs } from './machine-agent.ts';
import type { LeadTerm, Machines } from './machines.ts';

/** Endpoints that got jobs within this time are told in one call, ms. */
const GATHER_MS = 20;
const RETRY_MS = 500;
const OUTBOX_MS = 10_000;

export interface NodeWorkOptions {
  queues: Queues;
  client: NodeClient;
  calls: NodeCalls;
  findOwner: (endpointId: string) => OwnerNode;
  /** Whether the platform starts workers of the endpoint. */
  isDeployed: (endpointId: string) => boolean;
  log: Log;
}

interface EndedPod {
  endpointId: string;
  podId: string;
  /** Node on whose machine its undelivered outcomes are; null: nobody can read them. */
  outbox: { url: string; term: number } | null;
}

export class NodeWork implements WorkView {
  readonly #options: NodeWorkOptions;
  readonly #listeners = new Set<(endpointId: string) => void>();
  /** Endpoints that the leader has not been told of. */
  #untold = new Set<string>();
  #isTelling = false;
  readonly #closing = new AbortController();
  /** Aborts when this node no longer leads. */
  #interrupted = new AbortController();
  readonly #stopListening: () => void;

  constructor(options: NodeWorkOptions) {
    this.#options = options;
    this.#stopListening = options.queues.workerLoads.onWork((id) => this.#noteWork(id));
  }

  /** @throws StoreUnavailableError if no node serves the endpoint, or its node does not answer */
  async load(endpointId: string): Promise<WorkLoad> {
    const { client, findOwner, queues } = this.#options;
    const owner = findOwner(endpointId);
    if (owner.kind === 'here') return queues.workerLoads.load(endpointId);
    if (owner.kind === 'none') throw unserved(endpointId);
    const { signal } = this.#interrupted;
    return askNode(client, owner.url, NODE_CALLS.load, { endpointId }, { signal }).catch(
      (cause: unknown) => {
        const problem = `the node of endpoint ${endpointId} does not answer`;
        throw new StoreUnavailableError(problem, { cause });
      },
    );
  }

  /** If the owner misses it, the next pass finds a worker that does not drain, and repeats it. */
  drain(endpointId: string, podId: string): void {
    const { client, findOwner, log, queues } = this.#options;
    const owner = findOwner(endpointId);
    if (owner.kind === 'here') queues.workerLoads.drain(endpointId, podId);
    if (owner.kind !== 'node') return;
    const drained = askNode(client, owner.url, NODE_CALLS.drain, { endpointId, podId });
    drained.catch((error: unknown) => {
      log.debug({ err: error, pod: podId }, 'draining a worker through its node failed, retrying');
    });
  }

  /** If the owner misses it, the next pass finds a worker with another wish, and repeats it. */
  park(endpointId: string, podId: string, wish: ParkWish): void {
    const { client, findOwner, log, queues } = this.#options;
    const owner = findOwner(endpointId);
    if (owner.kind === 'here') queues.workerLoads.park(endpointId, podId, wish);
    if (owner.kind !== 'node') return;
    const parked = askNode(client, owner.url, NODE_CALLS.park, { endpointId, podId, wish });
    parked.catch((error: unknown) => {
      log.debug({ err: error, pod: podId }, 'parking a worker through its node failed, retrying');
    });
  }

  /** Rejects if the leases cannot be released now; then they expire. */
  async endPod(ended: EndedPod): Promise<void> {
    const { client, findOwner } = this.#options;
    const owner = findOwner(ended.endpointId);
    if (owner.kind === 'here') return this.endPodHere(ended);
    if (owner.kind === 'none') throw unserved(ended.endpointId);
    await askNode(client, owner.url, NODE_CALLS.endPod, ended);
  }

  async endPodHere({ endpointId, outbox, podId }: EndedPod): Promise<void> {
    const { client, queues } = this.#options;
    const readOutbox = outbox
      ? async (workerId: string) => {
          const act = { verb: 'readLeft', endpointId, workerId } as const;
          const body = { term: outbox.term, act };
          const timing = { timeoutMs: OUTBOX_MS };
          const read = await askNode(client, outbox.url, NODE_CALLS.machine, body, timing);
          if ('failed' in read) throw new Error(read.failed.message);
          return leaseRefs.parse(read.value);
        }
      : undefined;
    await queues.endPod(endpointId, podId, readOutbox);
  }

  /**
   * While this node leads: calls the listener with endpoints that get jobs, on any node.
   * @returns the function that stops it
   */
  onWork(listener: (endpointId: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Another node tells this one, which leads. */
  noteTold(endpointIds: readonly string[]): void {
    for (const id of endpointIds) for (const listener of this.#listeners) listener(id);
  }

  /** This node no longer leads: open calls for loads are broken off. */
  interrupt(): void {
    this.#interrupted.abort();
    this.#interrupted = new AbortController();
  }

  close(): void {
    this.#closing.abort();
    this.#stopListening();
  }

  #noteWork(endpointId: string): void {
    if (!this.#options.isDeployed(endpointId)) return;
    this.#untold.add(endpointId);
    if (!this.#isTelling) void this.#tell();
  }

  /** Repeats a call that fails: without it, jobs of an endpoint without workers would wait. Never rejects. */
  async #tell(): Promise<void> {
    const { calls } = this.#options;
    const { signal } = this.#closing;
    this.#isTelling = true;
    while (this.#untold.size > 0 && !signal.aborted) {
      await pause(GATHER_MS, undefined, { signal }).catch(() => {});
      const told = this.#untold;
      this.#untold = new Set();
      try {
        await calls.askLeader(NODE_CALLS.work, { endpointIds: [...told] });
      } catch {
        this.#untold = this.#untold.union(told);
        await pause(RETRY_MS, undefined, { signal }).catch(() => {});
      }
    }
    this.#isTelling = false;
  }
}

function unserved(endpointId: string): StoreUnavailableError {
  return new StoreUnavailableError(`no node serves endpoint ${endpointId} at the moment`);
}

/** An answer is given without asking again for this time, ms. */
const FRESH_MS = 1_000;
/** After it, the last answer is still given, up to this age, while the leader is asked again, ms. */
const USABLE_MS = 10_000;
/** Endpoints whose answers are kept. */
const MAX_CACHED = 1_000;

export interface LeaderScalingOptions {
  calls: Pick<NodeCalls, 'askLeader'>;
  clock: Clock;
  findLeader: () => OwnerNode;
  /** What the scaler of this node knows, if it leads. */
  own: (endpointId: string) => KnownScaling;
}

interface CachedScaling {
  at: number;
  scaling: KnownScaling;
}

/**
 * What the scaler of the leader knows of an endpoint's workers, for the endpoint's owner: asked for when a status read
 * needs it, and kept for a moment, because status reads are frequent.
 */
export class LeaderScaling {
  readonly #options: LeaderScalingOptions;
  readonly #cached = new Map<string, CachedScaling>();
  readonly #asking = new Map<string, Promise<KnownScaling>>();

  constructor(options: LeaderScalingOptions) {
    this.#options = options;
  }

  /** Never rejects. Waits for the leader only if the last answer is too old. */
  find(endpointId: string): KnownScaling | Promise<KnownScaling> {
    const { clock, findLeader, own } = this.#options;
    const leader = findLeader();
    if (leader.kind === 'here') return own(endpointId);
    const cached = this.#cached.get(endpointId);
    const age = cached ? clock.now() - cached.at : Number.POSITIVE_INFINITY;
    if (cached && age < FRESH_MS) return cached.scaling;
    const asked = this.#asking.get(endpointId) ?? this.#ask(endpointId);
    return cached && age < USABLE_MS ? cached.scaling : asked;
  }

  #ask(endpointId: string): Promise<KnownScaling> {
    const asked = this.#call(endpointId).then((scaling) => {
      if (this.#cached.size >= MAX_CACHED) this.#cached.clear();
      this.#cached.set(endpointId, { at: this.#options.clock.now(), scaling });
      this.#asking.delete(endpointId);
      return scaling;
    });
    this.#asking.set(endpointId, asked);
    return asked;
  }

  async #call(endpointId: string): Promise<KnownScaling> {
    try {
      const known = await this.#options.calls.askLeader(NODE_CALLS.scaling, { endpointId });
      return known ?? 'unknown';
    } catch {
      // No leader answers.
      return 'unknown';
    }
  }
}

/** Default of `replaceWorkersMs`. */
const REPLACE_MS = 300_000;
/** Workers that end within this time share a removal of folders, ms. */
const TIDY_MS = 1_000;

export interface NodeWorkerHostOptions {
  machines: Machines;
  term: LeadTerm;
  work: NodeWork;
  queues: Queues;
  /** For a pod whose node has not told its own. */
  workerUrl: string;
  /** Workers keep undelivered outcomes in folders of their node. */
  hasFolders: boolean;
  /** Undefined: the engine has no state volumes. */
  tidyVolumes: (() => Promise<void>) | undefined;
  replaceWorkersMs: number | undefined;
  clock: Clock;
}

/** What workers need from the machine of their node, and from the node that has their endpoint's queue. */
export function createWorkerHost(options: NodeWorkerHostOptions): WorkerHost {
  const { hasFolders, machines, queues, work, workerUrl } = options;
  const { replaceWorkersMs: replaceMs = REPLACE_MS } = options;
  const certainUrlOf: WorkerHost['certainUrlOf'] = ({ node }) =>
    node === undefined ? undefined : machines.info(node)?.workerUrl;
  return {
    urlOf: (pod) => certainUrlOf(pod) ?? workerUrl,
    certainUrlOf,
    ...(hasFolders && {
      stateDirOf: async (endpointId, { node = '' }) =>
        String(await machines.act(node, { verb: 'provideFolder', endpointId })),
    }),
    endWorker: async ({ endpointId, node, podId }) => {
      const url = node === undefined ? undefined : machines.urlOf(node);
      const term = options.term.current;
      const isRead = hasFolders && url !== undefined && term !== undefined;
      await work.endPod({ endpointId, podId, outbox: isRead ? { url, term } : null });
    },
    tidy: createTidy(options),
    listWorkers: () => queues.workerLoads.listPresent(),
    view: work,
    onWork: (listener) => work.onWork(listener),
    findUnreachable: (pod) => machines.findUnreachable(pod),
    replaceAfterMs: replaceMs > 0 ? replaceMs : undefined,
    leaseMs: queues.settings.leaseMs,
  };
}

function createTidy({ clock, hasFolders, machines, tidyVolumes }: NodeWorkerHostOptions) {
  let isDue = false;
  const tidyFolders = async () => {
    await sleep(clock, TIDY_MS);
    isDue = false;
    // A node that is gone now gets its turn at the end of a later worker.
    await Promise.allSettled(
      machines.names.map((name) => machines.act(name, { verb: 'tidyFolders' })),
    );
  };
  return async () => {
    await tidyVolumes?.();
    if (!hasFolders || isDue) return;
    isDue = true;
    void tidyFolders();
  };
}
