// One node of a cluster: follows the view of the cluster, serves the shards that it owns, and leads while it owns
// shard 0.
import { setTimeout as sleep } from 'node:timers/promises';
import type { NodeClient } from '../../api/nodes/node-client.ts';
import type { ResumableClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { ClusterView } from '../../cluster/cluster-view.ts';
import { LocalShards, type OpenShard } from '../../cluster/local-shards.ts';
import type { Membership } from '../../cluster/membership.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Sessions } from '../../control/keys/sessions.ts';
import { readActivity } from '../../queue/activity/activity.ts';
import type { Queue } from '../../queue/queue.ts';
import type { QueueSettings } from '../../queue/settings.ts';
import { ShardedQueues } from '../../queue/sharded-queues.ts';
import type { Store } from '../../store/store.ts';
import type { UseCounts } from '../../wire/resources/limits.ts';
import type { ReadSelf } from '../node-list.ts';
import { ControlCopies, type ControlStore } from './control-store.ts';
import {
  answerCalls,
  callNode,
  forwardMachineCalls,
  type MachineCallHandlers,
} from './node-calls.ts';
import { NodePlacement } from './node-placement.ts';
import { ShardOpener, type ShardStore } from './shard-opener.ts';
import { SharedRates } from './shared-rates.ts';
import { compareSecrets } from './start-checks.ts';

/** Longest wait for other nodes to learn what the leader wrote, ms; later they learn it by themselves. */
const ANNOUNCE_MS = 500;

export interface ClusterNodeOptions {
  membership: Membership;
  client: NodeClient;
  control: ControlStore;
  endpoints: Endpoints;
  sessions: Pick<Sessions, 'apply'>;
  /** Each reads records of the control plane again. */
  reloads: readonly (() => Promise<void>)[];
  settings: QueueSettings;
  clock: ResumableClock;
  log: Log;
  openStore: (shard: number, onLost: () => void) => Promise<ShardStore>;
  /** The store of the shard is closed. */
  noteClosed: (shard: number) => void;
  createQueue: (store: Store, shard: number) => Queue;
  /** Answers the calls about pods and their machines. */
  machineCalls: () => MachineCallHandlers;
  leader: {
    /** This node leads until `lost` aborts or `end` is called; `queue` is that of shard 0. */
    begin(queue: Queue, lost: AbortSignal): Promise<void>;
    end(): Promise<void>;
    /** Follows `end`: no request is served any more. */
    ended(): void;
  };
  readSelf: ReadSelf;
  /** What a user uses of the quotas; only the leader knows all of it. */
  countUse: (userId: string) => Promise<UseCounts>;
  /** Of this node; other nodes compare theirs when they start. */
  webhookSecrets: readonly string[];
  /** Declares an endpoint on the leader, which this node is. */
  declare: (endpointId: string, maxAttempts: number | undefined) => Promise<void>;
}

export class ClusterNode {
  readonly queues: ShardedQueues;
  readonly placement: NodePlacement;
  readonly rates: SharedRates;
  /** Answers calls of other nodes. */
  readonly onCall: (name: string, body: unknown) => Promise<unknown>;
  readonly #options: ClusterNodeOptions;
  readonly #shards: LocalShards;
  readonly #opener: ShardOpener;
  readonly #copies: ControlCopies;
  /** Changes of endpoints that are being written to their shards. */
  readonly #copying = new Set<Promise<void>>();
  /** Endpoints whose last change could not be written to their shard. */
  readonly #uncopied = new Set<string>();
  #controlNumber = 0;
  /** The last control number that the database has. */
  #announced = 0;
  #announcing = 0;

  constructor(options: ClusterNodeOptions) {
    const { clock, createQueue, endpoints, log, membership, noteClosed, reloads, settings } =
      options;
    this.#options = options;
    const shardOf = (endpointId: string) => endpoints.find(endpointId)?.shard;
    this.queues = new ShardedQueues({ settings, shardOf });
    this.#copies = new ControlCopies({ clock, log, reloads });
    this.placement = new NodePlacement({
      shardOf,
      cluster: membership,
      serves: (shard) => this.#shards.serves(shard),
      reload: () => this.#reload(),
    });
    const findLeader = () => this.placement.find(undefined);
    this.rates = new SharedRates({ cluster: membership, client: options.client, findLeader });
    this.#opener = new ShardOpener({
      clock,
      log,
      createQueue,
      noteClosed,
      endpoints,
      queues: this.queues,
      openStore: (shard, onLost) => this.#openStore(shard, onLost),
      reloadControl: () => this.#copies.reload(),
      countRequests: (shard) => this.placement.countRequests(shard),
    });
    this.#shards = new LocalShards({
      membership,
      clock,
      log,
      open: (shard, onLost) => this.#open(shard, onLost),
      callNode: (url) => this.#callForShards(url),
      onChange: () => this.placement.noteChange(),
    });
    this.onCall = answerCalls({
      shards: () => this.#reload(),
      changed: () => this.#reload(),
      remove: ({ endpointId, shard }) => this.#removeHere(shard, endpointId),
      declare: ({ endpointId, maxAttempts }) => options.declare(endpointId, maxAttempts),
      activity: async ({ endpointIds }) => readActivity(this.queues, endpointIds),
      failed: ({ endpointIds, listing }) => this.queues.jobs.listFailed(endpointIds, listing),
      self: () => options.readSelf(),
      userUse: ({ userId }) => options.countUse(userId),
      rates: async (body) => this.rates.answer(body),
      session: (change) => options.sessions.apply(change),
      ...forwardMachineCalls(options.machineCalls),
      webhooks: async (body) => ({ secrets: compareSecrets(body, options.webhookSecrets) }),
    });
    endpoints.onChange(({ id, kind }) => this.#noteEndpoint(id, kind));
  }

  /** IDs of shards. `failing`: owned and not open; `givenUp`: left to other nodes. */
  get shards(): { open: number[]; failing: number[]; givenUp: number[] } {
    const { failing, givenUp, served } = this.#shards;
    return { open: served, failing, givenUp };
  }

  /** Begins to serve: the node answers calls from now on. */
  start(): void {
    this.follow(this.#options.membership.view);
  }

  /** A new view of the cluster. */
  follow(view: ClusterView): void {
    this.#shards.follow(view);
    this.placement.noteChange();
    this.rates.follow();
    if (this.#announced < this.#controlNumber && this.#announcing === 0) void this.announce();
    for (const id of this.#uncopied) this.#copyToShard(id);
    if (this.#isLeader) return;
    void this.#copies.follow(view).then((isNew) => {
      if (isNew) this.placement.noteChange();
    });
  }

  /** Hands all shards over to other nodes. Requests for them are forwarded then. Never rejects. */
  async leave(): Promise<void> {
    await this.#shards.leave();
  }

  /** Tells the other nodes that the leader has written. Never rejects. */
  async announce(): Promise<void> {
    const { client, membership } = this.#options;
    const number = ++this.#controlNumber;
    this.#announcing += 1;
    const written = membership
      .noteControl(number)
      .then(
        () => {
          this.#announced = Math.max(this.#announced, number);
        },
        () => {},
      )
      .finally(() => {
        this.#announcing -= 1;
      });
    const others = membership.view.nodes.filter(({ id, isLive }) => isLive && id !== membership.id);
    const told = others.map(async ({ url }) => {
      await written;
      await callNode(client, url, 'changed', null).catch(() => {});
    });
    await Promise.race([Promise.all([written, ...told]), sleep(ANNOUNCE_MS)]);
  }

  /**
   * Removes a deleted endpoint from its shard, on whichever node that is. @returns false if the signal has aborted; the
   * removal may continue then. @throws if it is not possible now
   */
  removeFromShard(shard: number, endpointId: string, signal: AbortSignal): Promise<boolean> {
    return unlessAborted(this.#removeFromShard(shard, endpointId), signal);
  }

  async #removeFromShard(shard: number, endpointId: string): Promise<void> {
    if (this.#shards.serves(shard)) return this.#removeLocally(shard, endpointId);
    const { client, membership } = this.#options;
    const owner = membership.view.shards.find(({ id }) => id === shard)?.owner;
    const node = membership.view.nodes.find(({ id, isLive }) => id === owner && isLive);
    if (!node || node.id === membership.id) throw new Error(`no node serves shard ${shard} now`);
    await callNode(client, node.url, 'remove', { shard, endpointId });
  }

  get #isLeader(): boolean {
    return this.#shards.serves(0);
  }

  async #reload(): Promise<void> {
    const view = await this.#options.membership.refresh();
    this.#shards.follow(view);
    if (!this.#isLeader) await this.#copies.follow(view);
    await Promise.all(this.#copying);
    this.placement.noteChange();
  }

  async #openStore(shard: number, onLost: () => void): Promise<ShardStore> {
    const opened = await this.#options.openStore(shard, onLost);
    if (shard === 0) this.#options.control.own(opened.store);
    return opened;
  }

  async #open(shard: number, onLost: () => void): Promise<OpenShard> {
    if (shard !== 0) return this.#opener.open(shard, onLost);
    const { control, leader } = this.#options;
    const lost = new AbortController();
    const lose = () => {
      control.own(undefined);
      lost.abort();
      onLost();
    };
    const opened = await this.#opener.open(0, lose).catch((error: unknown) => {
      control.own(undefined);
      throw error;
    });
    const close = async () => {
      try {
        await leader.end();
      } finally {
        await opened.close().finally(() => control.own(undefined));
        leader.ended();
      }
    };
    try {
      await leader.begin(opened.queue, lost.signal);
    } catch (error) {
      await close();
      throw error;
    }
    return { close, abandon: opened.abandon };
  }

  #noteEndpoint(id: string, kind: 'put' | 'deleted'): void {
    this.placement.noteChange();
    if (kind === 'put') this.#copyToShard(id);
  }

  /** After a failure, the next view of the cluster repeats it. */
  #copyToShard(id: string): void {
    const { endpoints, log } = this.#options;
    this.#uncopied.delete(id);
    const endpoint = endpoints.find(id);
    if (!endpoint) return;
    const copying = this.#opener.putEndpoint(endpoint).catch((error: unknown) => {
      this.#uncopied.add(id);
      log.warn({ err: error, endpoint: id }, 'writing an endpoint to its shard failed, retrying');
    });
    this.#copying.add(copying);
    void copying.finally(() => this.#copying.delete(copying));
  }

  async #removeHere(shard: number, endpointId: string): Promise<void> {
    await this.#reload();
    await this.#removeLocally(shard, endpointId);
  }

  async #removeLocally(shard: number, endpointId: string): Promise<void> {
    if (await this.#opener.removeEndpoint(shard, endpointId)) return;
    throw new Error(`endpoint ${endpointId} cannot be removed from shard ${shard} at the moment`);
  }

  async #callForShards(url: string): Promise<void> {
    const { client, log } = this.#options;
    await callNode(client, url, 'shards', null).catch((error: unknown) => {
      log.warn({ err: error, node: url }, 'could not notify a node; it will poll');
    });
  }
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
