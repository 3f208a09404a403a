// One node of the simulated cluster: the real membership, shards, placement and queues in a process of its own.
import { type ResumableClock, SteadyTime } from '../../../src/base/clock.ts';
import { silentLog as log } from '../../../src/base/log.ts';
import { LocalShards, ServedShards } from '../../../src/cluster/local-shards.ts';
import { Membership } from '../../../src/cluster/membership.ts';
import type { LiveEndpoint } from '../../../src/control/endpoints/endpoint-records.ts';
import { NodePlacement, ShardOwners } from '../../../src/platform/nodes/node-routing.ts';
import { EndpointCopies, ShardOpener } from '../../../src/platform/nodes/shard-opener.ts';
import type { ShardService } from '../../../src/queue/handover/peers.ts';
import { Queue } from '../../../src/queue/queue.ts';
import { ShardedQueues } from '../../../src/queue/queues.ts';
import { completeSettings, type QueueSettings } from '../../../src/queue/settings.ts';
import type { CachedJobsOptions } from '../../../src/store/live/cached-jobs.ts';
import type { SessionOptions } from '../../../src/store/postgres/session.ts';
import type { MemoryTablesOptions } from '../memory-tables.ts';
import type { VirtualTime } from '../virtual-time.ts';
import type { OnChange } from '../watched-store.ts';
import { TARGET } from './database.ts';
import { CallFailedError } from './entrance.ts';
import { type NodeStore, openNodeStore } from './node-store.ts';
import { NodeNetwork } from './simulated-connection.ts';
import type { SimulatedPostgres } from './simulated-postgres.ts';
import { SimulatedProcess } from './simulated-process.ts';

export interface SimulatedNodeOptions {
  id: string;
  url: string;
  time: VirtualTime;
  random: () => number;
  postgres: SimulatedPostgres;
  endpoints: readonly LiveEndpoint[];
  settings: Partial<QueueSettings>;
  live: CachedJobsOptions;
  tables: MemoryTablesOptions;
  onChange: OnChange;
  /** The node is about to start the queue of the shard. */
  onOpen: (shard: number) => void;
  /** The node has found that it has lost a shard. */
  onLost: () => void;
  /** Calls the node at this URL, from this node. Rejects if it cannot be reached. */
  callNode: (from: SimulatedNode, url: string) => Promise<void>;
  /** Calls the queue of a shard at the node at this URL. */
  callPeer: <T>(
    from: SimulatedNode,
    to: { shard: number; url: string },
    act: (service: ShardService) => Promise<T>,
  ) => Promise<T>;
}

interface Parts {
  membership: Membership;
  placement: NodePlacement;
  queues: ShardedQueues;
  shards: LocalShards;
}

export class SimulatedNode {
  readonly id: string;
  readonly url: string;
  readonly process: SimulatedProcess;
  readonly network = new NodeNetwork();
  /** Difference between the wall clock of this machine and the time of the world, ms. */
  wallOffsetMs = 0;
  isLeaving = false;
  readonly #options: SimulatedNodeOptions;
  #parts: Parts | undefined;

  constructor(options: SimulatedNodeOptions) {
    this.id = options.id;
    this.url = options.url;
    this.#options = options;
    this.process = new SimulatedProcess(options.id, options.time);
    this.process.deliver(() => {
      // As a supervisor does: a node whose start failed ends, and is started again.
      this.#start().catch(() => this.process.kill());
    });
  }

  /** Undefined until the node has joined. */
  get parts(): Parts | undefined {
    return this.#parts;
  }

  /** Reads what the cluster is now, and acts on it. */
  async reload(): Promise<void> {
    await this.#parts?.membership.refresh();
  }

  /** Hands its shards over, leaves, and ends. */
  leave(): void {
    this.isLeaving = true;
    this.process.deliver(() => {
      void this.#leave().then(() => this.process.kill());
    });
  }

  async #leave(): Promise<void> {
    await this.#parts?.shards.leave();
    await this.#parts?.membership.leave();
  }

  async #start(): Promise<void> {
    const { callNode, endpoints, onOpen, postgres, settings, time } = this.#options;
    const connect: NonNullable<SessionOptions['connect']> = (options) =>
      postgres.connect(this, options);
    const membership = await Membership.open({
      ...{ target: TARGET, id: this.id, url: this.url, connect },
      clocks: { monotonic: time.now, wall: () => time.now() + this.wallOffsetMs },
      onFailure: () => {},
      onEnd: () => this.process.kill(),
    });
    const clock = this.#createClock(membership);
    const shardOf = (id: string) => endpoints.find((endpoint) => endpoint.id === id)?.shard;
    const queues = new ShardedQueues({ settings: completeSettings(settings), shardOf });
    queues.reached();
    const served = new ServedShards(membership);
    const owners = new ShardOwners(membership, served);
    const placement = new NodePlacement({ shardOf, owners, reload: () => this.reload() });
    served.onChange(() => placement.noteChange());
    const copied = {
      all: () => [...endpoints],
      find: (id: string) => endpoints.find((endpoint) => endpoint.id === id),
      onChange: () => () => {},
    };
    const opener = new ShardOpener({
      ...{ clock, log, queues, noteClosed: () => {}, reloadControl: async () => {} },
      endpoints: { has: (id) => shardOf(id) !== undefined },
      copies: new EndpointCopies({ endpoints: copied, log }),
      openStore: async (shard, onLost) => {
        const opened = await this.#openStore(shard, { connect, membership, onLost });
        onOpen(shard);
        return opened;
      },
      createQueue: (store, shard) =>
        new Queue({
          ...{ store, clock, log, settings, random: this.#options.random },
          peers: { shard, shardOf, at: (other) => this.#reach(other, { owners, queues }) },
        }),
      countRequests: (shard) => placement.countRequests(shard),
    });
    const shards = new LocalShards({
      ...{ membership, clock, log },
      open: (shard, onLost) => opener.open(shard, onLost),
      callNode: (url) => callNode(this, url).catch(() => {}),
      served,
    });
    membership.onView((view) => {
      shards.follow(view);
      placement.noteChange();
    });
    this.#parts = { membership, placement, queues, shards };
    shards.follow(membership.view);
  }

  /** As node-peers.ts does. */
  #reach(shard: number, { owners, queues }: { owners: ShardOwners; queues: ShardedQueues }) {
    const here = queues.serviceOf(shard);
    if (here) return here;
    const call = async <T>(act: (service: ShardService) => Promise<T>): Promise<T> => {
      const owner = owners.find(shard);
      if (owner.kind !== 'node') throw new CallFailedError('nobody serves the shard');
      return this.#options.callPeer(this, { shard, url: owner.url }, act);
    };
    return {
      receive: (batch) => call((service) => service.receive(structuredClone(batch))),
      describeParents: (asked) => call((service) => service.describeParents(asked)),
      judgeJobs: (asked) => call((service) => service.judgeJobs(asked)),
      describeJobs: (asked) => call((service) => service.describeJobs(asked)),
      readOutput: (asked) => call((service) => service.readOutput(asked)),
    } satisfies ShardService;
  }

  #openStore(
    shard: number,
    given: Pick<Parts, 'membership'> & {
      connect: NonNullable<SessionOptions['connect']>;
      onLost: () => void;
    },
  ): Promise<NodeStore> {
    const { connect, membership, onLost } = given;
    const { endpoints, live, onChange, postgres, tables } = this.#options;
    const lose = () => {
      this.#options.onLost();
      onLost();
    };
    const own = endpoints.filter((endpoint) => endpoint.shard === shard);
    return openNodeStore({
      ...{ postgres, node: this.id, shard, live, tables, connect, onChange },
      onLost: lose,
      endpointIds: own.map(({ id }) => id),
      isOwner: () => membership.isMine(shard),
    });
  }

  /** As the clock of a node. */
  #createClock(membership: Membership): ResumableClock {
    const { time } = this.#options;
    const steady = new SteadyTime({
      wall: () => membership.databaseNow(),
      monotonic: time.now,
    });
    const { monotonic, now, startFrom } = steady;
    return { monotonic, now, startFrom, after: (ms, act) => this.process.after(ms, act) };
  }
}
