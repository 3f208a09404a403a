// Queues of several shards in one process, each with a database of its own, whose calls to each other can fail.
import { ManualClock } from '../../src/base/clock.ts';
import { silentLog } from '../../src/base/log.ts';
import type { ShardService } from '../../src/queue/handover/peers.ts';
import { Queue } from '../../src/queue/queue.ts';
import type { QueueSettings } from '../../src/queue/settings.ts';
import { openSqliteStore } from '../../src/store/sqlite/sqlite.ts';
import { type Store, type StoredJob, StoreUnavailableError } from '../../src/store/store.ts';
import type { ParentReference } from '../../src/wire/job/job.ts';
import type { Outcome } from '../../src/wire/link/worker-link.ts';
import { endpointSettings } from '../../src/wire/resources/endpoint.ts';
import { completed, Hand, NEVER } from './queue-platform.ts';

/** How a call between shards fails: before it has its effect, or after that. */
export type CallFate = 'answered' | 'lost_call' | 'lost_answer' | 'repeated';

interface Shard {
  store: Store;
  queue: Queue;
  worker: Hand;
  incarnation: number;
}

/** Rounds of the event loop until `settle` gives up. */
const MAX_ROUNDS = 400;

/** The endpoint of shard 0 is `e0`, that of shard 1 `e1`; further ones begin with that name. */
export class Shards {
  readonly clock = new ManualClock();
  readonly #shards: Shard[];
  readonly #settings: Partial<QueueSettings>;
  /** Nobody serves these. */
  readonly away = new Set<number>();
  chooseFate: (verb: keyof ShardService) => CallFate = () => 'answered';

  constructor(count: number, settings: Partial<QueueSettings> = {}) {
    this.#settings = settings;
    this.#shards = Array.from({ length: count }, (_, shard) => {
      const store = openSqliteStore({ path: ':memory:' });
      const queue = this.#createQueue(shard, store);
      return { store, queue, worker: this.#createWorker(shard, 1), incarnation: 1 };
    });
  }

  async start(): Promise<void> {
    const settings = endpointSettings.parse({ maxAttempts: 1 });
    for (const [shard, { queue, store, worker }] of this.#shards.entries()) {
      const endpoint = { id: `e${shard}`, settings, createdAt: 0, shard };
      await store.write((tx) => tx.putEndpoint(endpoint));
      await queue.start();
      await worker.hello();
    }
  }

  async close(): Promise<void> {
    for (const { queue, store } of this.#shards) {
      await queue.close();
      await store.close();
    }
  }

  /** As after a takeover: a new queue continues on the database. */
  async restart(shard: number): Promise<void> {
    const now = this.#at(shard);
    this.away.add(shard);
    await now.queue.close();
    now.queue = this.#createQueue(shard, now.store);
    now.incarnation += 1;
    now.worker = this.#createWorker(shard, now.incarnation);
    await now.queue.start();
    await now.worker.hello();
    this.away.delete(shard);
  }

  #createQueue(shard: number, store: Store): Queue {
    return new Queue({
      ...{ store, clock: this.clock, log: silentLog, settings: this.#settings },
      random: () => 0.5,
      owns: (id) => id === `e${shard}`,
      peers: {
        shard,
        shardOf: (id) => (/^e\d/.test(id) ? Number(id.charAt(1)) : undefined),
        at: (other) => this.#reach(other),
      },
    });
  }

  #createWorker(shard: number, incarnation: number): Hand {
    const link = () => this.queue(shard).link(`e${shard}`);
    return new Hand(link, { id: `w${shard}`, incarnation, slots: 1_000 });
  }

  #reach(shard: number): ShardService {
    const call = async <T>(verb: keyof ShardService, act: (to: ShardService) => Promise<T>) => {
      const fate = this.chooseFate(verb);
      const isLost = fate === 'lost_call' || this.away.has(shard);
      if (isLost) throw new StoreUnavailableError('nobody answers');
      const answer = await act(this.queue(shard).shardService);
      if (fate === 'lost_answer') throw new StoreUnavailableError('no answer came');
      return fate === 'repeated' ? act(this.queue(shard).shardService) : answer;
    };
    return {
      receive: (batch) => call('receive', (to) => to.receive(structuredClone(batch))),
      describeParents: (asked) => call('describeParents', (to) => to.describeParents(asked)),
      judgeJobs: (asked) => call('judgeJobs', (to) => to.judgeJobs(asked)),
      describeJobs: (asked) => call('describeJobs', (to) => to.describeJobs(asked)),
      readOutput: (asked) => call('readOutput', (to) => to.readOutput(asked)),
    };
  }

  #at(shard: number): Shard {
    const found = this.#shards[shard];
    if (!found) throw new Error(`there is no shard ${shard}`);
    return found;
  }

  queue(shard: number): Queue {
    return this.#at(shard).queue;
  }

  store(shard: number): Store {
    return this.#at(shard).store;
  }

  worker(shard: number): Hand {
    return this.#at(shard).worker;
  }

  async add(shard: number, after: readonly ParentReference[] = [], input = '{}'): Promise<string> {
    const { id } = await this.queue(shard).submissions.submit({
      ...{ endpointId: `e${shard}`, mode: 'run', input: Buffer.from(input), policy: {} },
      idempotency: undefined,
      ...(after.length > 0 && { after }),
    });
    return id;
  }

  job(shard: number, id: string): Promise<StoredJob | undefined> {
    return this.store(shard).read((tx) => tx.job({ endpointId: `e${shard}`, id }));
  }

  async statusOf(shard: number, id: string): Promise<string> {
    return (await this.job(shard, id))?.status ?? 'REMOVED';
  }

  waitForEnd(shard: number, id: string) {
    return this.queue(shard).jobs.waitForEnd({ endpointId: `e${shard}`, id }, 60_000, NEVER);
  }

  /** Runs the next job of the shard, as soon as there is one. @returns its ID and its input */
  async run(
    shard: number,
    end: Outcome = completed,
    body = '1',
  ): Promise<{ id: string; input: unknown }> {
    const lease = await this.worker(shard).takeOne({ waitMs: 60_000 });
    await this.worker(shard).finish(lease, end, { body: end.kind === 'completed' ? body : '' });
    return { id: lease.jobId, input: JSON.parse(Buffer.from(lease.input ?? '').toString()) };
  }

  countMessages(shard: number): Promise<number> {
    return this.store(shard).read((tx) => {
      const all = tx.resources({ kind: 'handover', limit: 9_999 });
      return all.filter(({ parent }) => !this.away.has(Number(parent))).length;
    });
  }

  /** Until no message waits for a shard that is served. */
  async settle(): Promise<void> {
    for (let round = 0; round < MAX_ROUNDS; round++) {
      await this.clock.advance(100);
      const counts = await Promise.all(
        this.#shards.map((_, shard) => (this.away.has(shard) ? 0 : this.countMessages(shard))),
      );
      if (counts.every((count) => count === 0)) return;
    }
    throw new Error('messages between shards do not end');
  }
}
