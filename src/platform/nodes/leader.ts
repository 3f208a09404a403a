// The part of a platform that only the owner of shard 0 has: it removes deleted endpoints from all shards, and manages
// the pods of all nodes.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { OpenShard } from '../../cluster/local-shards.ts';
import type { Keys } from '../../control/keys/keys.ts';
import type { Queue } from '../../queue/queue.ts';
import type { Compute } from '../compute/compute.ts';
import type { EndpointDeletion, EndpointJobs } from '../compute/endpoint-remains.ts';
import type { WorkerHost } from '../compute/pod-control.ts';
import type { MachineInfo } from '../machines/machine-messages.ts';
import type { Machines } from '../machines/machines.ts';
import type { NodeWork } from '../machines/node-work.ts';
import type { ControlStore } from './control-store.ts';

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
