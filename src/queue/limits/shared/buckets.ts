// The counts of shared limits that a queue has in memory: one for each limit, or for each of its groups.
import { DueHeap } from '../../../base/due-heap.ts';
import type { Reader } from '../../../store/store.ts';
import type { SharedLimitRecord } from '../../../wire/resources/shared-limit.ts';
import { BorrowedLimit } from './borrowed.ts';
import { LimitLedger } from './ledger.ts';
import type { LoanAnswer, LoanMessage } from './loans.ts';

/** Groups of one limit. Further ones start no jobs until others are idle. */
export const MAX_GROUPS = 10_000;

/** A limit with the shard that it belongs to. */
export interface SharedLimit
  extends Pick<SharedLimitRecord, 'concurrency' | 'id' | 'key' | 'name' | 'rateLimit'> {
  home: number;
}

/** What a queue has to know of the shared limits and of other shards. */
export interface SharedLimitSource {
  /** That of the queue. */
  readonly shard: number;
  /** Undefined: this node does not know it yet. */
  find(id: string): SharedLimit | undefined;
  /** IDs of the endpoints of this shard that name the limit. */
  usersOf(id: string): readonly string[];
  /** The shards that limits belong to. */
  homes(): readonly number[];
  /** Sends a message to the shard of limits. */
  lend(message: LoanMessage): Promise<LoanAnswer>;
}

export interface Bucket {
  limitId: string;
  /** Null: for all jobs. */
  group: string | null;
  /** A ledger: the limit belongs to this shard. */
  state: LimitLedger | BorrowedLimit;
  /** Jobs of this shard that run, as counted last. */
  running: number;
  /** Endpoints that may have passed over jobs of the group. */
  passed: Set<string>;
  /** The store has a row of it. */
  hasRow: boolean;
}

type BucketKey = Pick<Bucket, 'group' | 'limitId'>;

export class Buckets {
  /** By the time at which something changes by itself. */
  readonly due = new DueHeap<Bucket>();
  readonly #limits = new Map<string, Map<string | null, Bucket>>();

  find({ group, limitId }: BucketKey): Bucket | undefined {
    return this.#limits.get(limitId)?.get(group);
  }

  /** Undefined: the limit has too many groups. */
  open(
    { id: limitId, home }: SharedLimit,
    group: string | null,
    shard: number,
  ): Bucket | undefined {
    const known = this.find({ limitId, group });
    if (known) return known;
    if ((this.#limits.get(limitId)?.size ?? 0) >= MAX_GROUPS) return undefined;
    const state = home === shard ? new LimitLedger() : new BorrowedLimit();
    return this.put({ limitId, group, state, running: 0, passed: new Set(), hasRow: false });
  }

  put(bucket: Bucket): Bucket {
    const { group, limitId } = bucket;
    const ofLimit = this.#limits.get(limitId) ?? new Map<string | null, Bucket>();
    this.#limits.set(limitId, ofLimit.set(group, bucket));
    return bucket;
  }

  delete(bucket: Bucket): void {
    const { group, limitId } = bucket;
    const ofLimit = this.#limits.get(limitId);
    ofLimit?.delete(group);
    if (ofLimit?.size === 0) this.#limits.delete(limitId);
    this.due.delete(bucket);
  }

  *all(): Iterable<Bucket> {
    for (const ofLimit of this.#limits.values()) yield* ofLimit.values();
  }
}

/** Jobs of this shard that run under the limit. Reads lists: call it before the operation changes jobs. */
export function countRunning(
  tx: Reader,
  source: SharedLimitSource,
  { group, limitId }: BucketKey,
): number {
  let running = 0;
  for (const id of source.usersOf(limitId)) running += tx.countLeases(id, group ?? undefined);
  return running;
}
