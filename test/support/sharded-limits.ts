// Queues of several shards that share limits, on stores in memory and a clock that the test controls. Messages between them can be
// lost, and a queue can be replaced by another one on the same store, as by a kill or a takeover.
import { ManualClock } from '../../src/base/clock.ts';
import { silentLog } from '../../src/base/log.ts';
import type { SharedLimit } from '../../src/queue/limits/shared/buckets.ts';
import type { LoanAnswer, LoanMessage } from '../../src/queue/limits/shared/loans.ts';
import { Queue } from '../../src/queue/queue.ts';
import { openSqliteStore } from '../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../src/store/store.ts';
import type { JobPolicy } from '../../src/wire/job/job.ts';
import type { JobRecord } from '../../src/wire/job/job-records.ts';
import { type EndpointSettings, endpointSettings } from '../../src/wire/resources/endpoint.ts';
import { Hand, type HandOptions } from './queue-platform.ts';

interface Shard {
  store: Store;
  queue: Queue;
}

interface Placed {
  shard: number;
  settings: EndpointSettings;
}

export class LimitedShards {
  readonly clock = new ManualClock();
  readonly limits = new Map<string, SharedLimit>();
  readonly #shards = new Map<number, Shard>();
  readonly #endpoints = new Map<string, Placed>();
  /** Passes each message on; a test may lose, delay or repeat it. */
  carry: (message: LoanMessage, deliver: () => Promise<LoanAnswer>) => Promise<LoanAnswer> = (
    _message,
    deliver,
  ) => deliver();

  addLimit(limit: Partial<SharedLimit> & { id: string }): void {
    const none = { name: limit.id, rateLimit: null, concurrency: null, key: null, home: 0 };
    this.limits.set(limit.id, { ...none, ...limit });
  }

  async addEndpoint(id: string, shard: number, settings: Partial<EndpointSettings>): Promise<void> {
    const parsed = endpointSettings.parse(settings);
    this.#endpoints.set(id, { shard, settings: parsed });
    const { store } = this.#shards.get(shard) ?? (await this.#open(shard));
    await store.write((tx) =>
      tx.putEndpoint({ id, settings: parsed, createdAt: this.clock.now() }),
    );
  }

  of(endpointId: string): Queue {
    return this.#find(this.#endpoints.get(endpointId)?.shard ?? -1).queue;
  }

  /** Another queue takes the shard over; the one before can no longer write. */
  async takeOver(shard: number, awayMs = 0): Promise<void> {
    const { queue, store } = this.#find(shard);
    this.#shards.delete(shard);
    await queue.close();
    await this.clock.advance(awayMs);
    await this.#start(shard, store);
  }

  async hand(endpointId: string, options: HandOptions = {}): Promise<Hand> {
    const hand = new Hand(() => this.of(endpointId).link(endpointId), { slots: 1_000, ...options });
    await hand.hello();
    return hand;
  }

  async submit(endpointId: string, count = 1, policy: JobPolicy = {}): Promise<string[]> {
    const ids: string[] = [];
    for (let i = 0; i < count; i++) {
      const job = { endpointId, mode: 'run', idempotency: undefined, policy } as const;
      const { id } = await this.of(endpointId).submissions.submit({ ...job, input: EMPTY });
      ids.push(id);
    }
    return ids;
  }

  async record(endpointId: string, id: string): Promise<JobRecord> {
    const { body } = await this.of(endpointId).jobs.record({ endpointId, id });
    return JSON.parse(body.toString());
  }

  async close(): Promise<void> {
    for (const { queue, store } of this.#shards.values()) {
      await queue.close();
      await store.close();
    }
  }

  #find(shard: number): Shard {
    const found = this.#shards.get(shard);
    if (!found) throw new Error(`shard ${shard} is not open`);
    return found;
  }

  #open(shard: number): Promise<Shard> {
    return this.#start(shard, openSqliteStore({ path: ':memory:' }));
  }

  async #start(shard: number, store: Store): Promise<Shard> {
    const { clock } = this;
    const queue = new Queue({
      ...{ store, clock, log: silentLog, random: () => 0.5 },
      sharedLimits: {
        shard,
        find: (id) => this.limits.get(id),
        usersOf: (id) =>
          [...this.#endpoints]
            .filter(([, each]) => each.shard === shard && each.settings.limits.includes(id))
            .map(([name]) => name),
        homes: () => [...new Set([...this.limits.values()].map(({ home }) => home))],
        lend: (message) =>
          this.carry(message, async () =>
            this.#find(message.home).queue.sharedLimits.lend(message),
          ),
      },
    });
    const opened = { store, queue };
    await queue.start();
    this.#shards.set(shard, opened);
    return opened;
  }
}

const EMPTY = Buffer.from('{}');
