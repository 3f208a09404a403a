// Which shards this node serves, and which it fails to open. Requests are routed by it.
import { backoffMs } from '../base/backoff.ts';
import type { ClusterView } from './cluster-rows.ts';

export class ServedShards {
  /** Of the attempts to open shards. */
  readonly failures = new ShardFailures();
  readonly #cluster: { readonly id: string; readonly view: ClusterView };
  readonly #open = new Set<number>();
  readonly #listeners = new Set<() => void>();

  constructor(cluster: { readonly id: string; readonly view: ClusterView }) {
    this.#cluster = cluster;
  }

  has(shard: number): boolean {
    return this.#open.has(shard);
  }

  get open(): number[] {
    return [...this.#open];
  }

  /** Shards that this node owns and could not open. */
  get failing(): number[] {
    const { id: me, view } = this.#cluster;
    const own = new Set(view.shards.filter(({ owner }) => owner === me).map(({ id }) => id));
    return this.failures.all.filter((id) => own.has(id));
  }

  /** Shards that this node could not open and has left to other nodes. */
  get givenUp(): number[] {
    const { id: me, view } = this.#cluster;
    const given = view.shards.filter(({ failedOn, owner }) => failedOn === me && owner !== me);
    return given.map(({ id }) => id);
  }

  add(shard: number): void {
    this.failures.forget(shard);
    this.#open.add(shard);
    this.#notify();
  }

  delete(shard: number): void {
    this.#open.delete(shard);
    this.#notify();
  }

  /** Calls the listener when this node has begun or stopped to serve a shard. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener);
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** Pauses between attempts to open a shard. */
const RETRY = { baseMs: 250, maxMs: 5_000, jitter: 0.2 };
/** A shard that this node owns and cannot open is given up after so many failed attempts in a row, */
const GIVE_UP_TIMES = 3;
/** or at the first failure after this time, ms: the attempts may be long. */
const GIVE_UP_MS = 4_000;

interface Failure {
  /** Failed attempts in a row, whatever the reason. */
  times: number;
  until: number;
  /** Of these, those of a shard that this node had claimed. */
  openings: number;
  /** Begin of the first of them. */
  since: number;
}

interface FailedAttempt {
  startedAt: number;
  now: number;
  /** The node owned the shard and had its lease, so the fault is with the shard or with its connection. */
  isOwner: boolean;
}

class ShardFailures {
  readonly #failures = new Map<number, Failure>();

  /** The shards whose last attempt failed. */
  get all(): number[] {
    return [...this.#failures.keys()];
  }

  note(shard: number, { isOwner, now, startedAt }: FailedAttempt): void {
    const before = this.#failures.get(shard);
    const times = (before?.times ?? 0) + 1;
    this.#failures.set(shard, {
      times,
      until: now + backoffMs(times, RETRY),
      openings: isOwner ? (before?.openings ?? 0) + 1 : 0,
      since: isOwner && before && before.openings > 0 ? before.since : startedAt,
    });
  }

  /** The shard is open. */
  forget(shard: number): void {
    this.#failures.delete(shard);
  }

  mayTry(shard: number, now: number): boolean {
    return now >= (this.#failures.get(shard)?.until ?? 0);
  }

  /** Whether another node should try, if there is one. */
  isHopeless(shard: number, now: number): boolean {
    const failure = this.#failures.get(shard);
    if (!failure || failure.openings === 0) return false;
    return failure.openings >= GIVE_UP_TIMES || now - failure.since >= GIVE_UP_MS;
  }
}
