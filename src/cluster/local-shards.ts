// The shards of this node: LocalShards claims and opens those that the plan gives to it, hands them over, and drops those
// that it has lost. ServedShards says which are open; requests are routed by it.
import { backoffMs } from '../base/backoff.ts';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { ClusterView } from './cluster-rows.ts';
import type { Membership } from './membership.ts';
import { planShards } from './plan-shards.ts';

/** A shard that this node serves. */
export interface OpenShard {
  /** Ends its open waits and closes its store. */
  close(): Promise<void>;
  /** Another node owns the shard: nothing is read or written from now on. `close` follows. */
  abandon(): void;
}

export interface LocalShardsOptions {
  membership: Pick<
    Membership,
    'id' | 'view' | 'isServing' | 'beginLeaving' | 'claim' | 'giveUp' | 'offer'
  >;
  clock: Clock;
  log: Log;
  /** Opens the shard's store and starts its queue. `onLost`: another node has taken the shard over. */
  open: (shard: number, onLost: () => void) => Promise<OpenShard>;
  /** Calls the node at this URL, which then looks for its shards at once. Never rejects. */
  callNode: (url: string) => Promise<void>;
  /** Learns which shards this node serves. */
  served: ServedShards;
}

type Held = { state: 'opening' } | { state: 'open'; shard: OpenShard } | { state: 'closing' };

export class LocalShards {
  readonly #options: LocalShardsOptions;
  readonly #held = new Map<number, Held>();
  readonly #running = new Set<Promise<void>>();
  #isLeaving = false;

  constructor(options: LocalShardsOptions) {
    this.#options = options;
  }

  /** Starts to open, hand over and drop shards until this node has those of the plan. */
  follow(view: ClusterView): void {
    const { membership, served } = this.#options;
    for (const { id, owner } of view.shards) {
      // Another node has counted this one dead.
      if (owner !== membership.id && served.has(id)) this.#run(this.#drop(id));
    }
    if (this.#isLeaving) return;
    const { claim, offer } = planShards(view, membership.id);
    for (const id of claim) if (this.#mayOpen(id)) this.#run(this.#open(id));
    for (const { id, owner } of view.shards) {
      // This node claimed the shard and failed to open it.
      if (owner === membership.id && this.#mayOpen(id)) this.#run(this.#open(id));
    }
    for (const { shard, to } of offer) if (served.has(shard)) this.#run(this.#handOver(shard, to));
  }

  /** Hands all shards over. Resolves when they are closed; never rejects. */
  async leave(): Promise<void> {
    const { log, membership, served } = this.#options;
    this.#isLeaving = true;
    // Otherwise the others would offer it shards.
    await membership.beginLeaving().catch((error: unknown) => {
      log.warn({ err: error }, 'announcing the end of this node failed');
    });
    await Promise.all(this.#running);
    const others = membership.view.nodes.filter(
      ({ id, isLeaving, isLive }) => isLive && !isLeaving && id !== membership.id,
    );
    const handovers = served.open.map((id, index) => {
      const to = others[index % Math.max(1, others.length)];
      return this.#handOver(id, to?.id ?? null);
    });
    await Promise.all(handovers);
  }

  #run(work: Promise<void>): void {
    this.#running.add(work);
    void work.finally(() => this.#running.delete(work));
  }

  #mayOpen(id: number): boolean {
    return (
      !this.#held.has(id) && this.#options.served.failures.mayTry(id, this.#options.clock.now())
    );
  }

  /** Never rejects. */
  async #open(id: number): Promise<void> {
    const { clock, log, membership, open, served } = this.#options;
    const startedAt = clock.now();
    this.#held.set(id, { state: 'opening' });
    let isOwner = false;
    let isLost = false;
    const onLost = () => {
      isLost = true;
      if (served.has(id)) this.#run(this.#drop(id));
    };
    try {
      if (!(await membership.claim(id))) {
        this.#held.delete(id);
        return;
      }
      isOwner = true;
      const shard = await open(id, onLost);
      this.#held.set(id, { state: 'open', shard });
      log.info({ shard: id }, 'shard opened');
      served.add(id);
      if (isLost) await this.#drop(id);
    } catch (error) {
      isOwner &&= membership.isServing && !isLost;
      const now = clock.now();
      served.failures.note(id, { startedAt, now, isOwner });
      log.error({ err: error, shard: id }, 'opening a shard failed, retrying');
      if (served.failures.isHopeless(id, now)) await this.#giveUp(id);
      this.#held.delete(id);
    }
  }

  /** Lets the next node try; its connections or its rights may be better. Never rejects. */
  async #giveUp(id: number): Promise<void> {
    const { callNode, log, membership } = this.#options;
    const { id: me, view } = membership;
    const others = view.nodes
      .filter((node) => node.isLive && !node.isLeaving && node.id !== me)
      .toSorted((a, b) => (a.id < b.id ? -1 : 1));
    const to = others.find((node) => node.id > me) ?? others[0];
    if (!to) return;
    try {
      await membership.giveUp(id, to.id);
      log.error({ shard: id, to: to.id }, 'shard given up: this node could not open it');
      await callNode(to.url);
    } catch (error) {
      log.warn({ err: error, shard: id }, 'giving up a shard failed');
    }
  }

  /** Never rejects. */
  async #drop(id: number): Promise<void> {
    this.#options.log.warn({ shard: id }, 'shard lost');
    await this.#close(id, { isLost: true });
  }

  async #close(id: number, { isLost = false } = {}): Promise<void> {
    const { log, served } = this.#options;
    const held = this.#held.get(id);
    if (held?.state !== 'open') return;
    this.#held.set(id, { state: 'closing' });
    served.delete(id);
    try {
      // A connection that is frozen would keep the shard closing for long, and this node could not serve it again.
      if (isLost) held.shard.abandon();
      await held.shard.close();
    } catch (error) {
      log.error({ err: error, shard: id }, 'closing a shard failed');
    }
    this.#held.delete(id);
  }

  /** Never rejects. */
  async #handOver(id: number, to: string | null): Promise<void> {
    const { callNode, log, membership } = this.#options;
    await this.#close(id);
    try {
      await membership.offer(id, to);
      const node = membership.view.nodes.find((each) => each.id === to);
      if (node) await callNode(node.url);
      log.info({ shard: id, to }, 'shard handed over');
    } catch (error) {
      log.warn({ err: error, shard: id }, 'shard handover failed');
    }
  }
}

/** Which shards this node serves, and which it fails to open. */
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
