// Serves the shards that the plan gives to this node: claims and opens them, hands them over, and drops those that it
// has lost.
import { backoffMs } from '../base/backoff.ts';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { ClusterView } from './cluster-view.ts';
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
  membership: Pick<Membership, 'id' | 'view' | 'beginLeaving' | 'claim' | 'offer'>;
  clock: Clock;
  log: Log;
  /** Opens the shard's store and starts its queue. `onLost`: another node has taken the shard over. */
  open: (shard: number, onLost: () => void) => Promise<OpenShard>;
  /** Calls the node at this URL, which then looks for its shards at once. Never rejects. */
  callNode: (url: string) => Promise<void>;
  /** Called when this node has begun or stopped to serve a shard. */
  onChange: () => void;
}

/** Pauses between attempts to open a shard. */
const RETRY = { baseMs: 250, maxMs: 5_000, jitter: 0.2 };

type Held = { state: 'opening' } | { state: 'open'; shard: OpenShard } | { state: 'closing' };

export class LocalShards {
  readonly #options: LocalShardsOptions;
  readonly #held = new Map<number, Held>();
  /** Failed attempts to open a shard, and when the next one may be made. */
  readonly #failed = new Map<number, { times: number; until: number }>();
  readonly #running = new Set<Promise<void>>();
  #isLeaving = false;

  constructor(options: LocalShardsOptions) {
    this.#options = options;
  }

  serves(shard: number): boolean {
    return this.#held.get(shard)?.state === 'open';
  }

  get served(): number[] {
    return [...this.#held].filter(([, { state }]) => state === 'open').map(([id]) => id);
  }

  /** Starts to open, hand over and drop shards until this node has those of the plan. */
  follow(view: ClusterView): void {
    const { membership } = this.#options;
    for (const { id, owner } of view.shards) {
      // Another node has counted this one dead.
      if (owner !== membership.id && this.serves(id)) this.#run(this.#drop(id));
    }
    if (this.#isLeaving) return;
    const { claim, offer } = planShards(view, membership.id);
    for (const id of claim) if (this.#mayOpen(id)) this.#run(this.#open(id));
    for (const { id, owner } of view.shards) {
      // This node claimed the shard and failed to open it.
      if (owner === membership.id && this.#mayOpen(id)) this.#run(this.#open(id));
    }
    for (const { shard, to } of offer) if (this.serves(shard)) this.#run(this.#handOver(shard, to));
  }

  /** Hands all shards over. Resolves when they are closed; never rejects. */
  async leave(): Promise<void> {
    const { log, membership } = this.#options;
    this.#isLeaving = true;
    // Otherwise the others would offer it shards.
    await membership.beginLeaving().catch((error: unknown) => {
      log.warn({ err: error }, 'announcing the end of this node failed');
    });
    await Promise.all(this.#running);
    const others = membership.view.nodes.filter(
      ({ id, isLeaving, isLive }) => isLive && !isLeaving && id !== membership.id,
    );
    const handovers = this.served.map((id, index) => {
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
    const retryAt = this.#failed.get(id)?.until ?? 0;
    return !this.#held.has(id) && this.#options.clock.now() >= retryAt;
  }

  /** Never rejects. */
  async #open(id: number): Promise<void> {
    const { clock, log, membership, onChange, open } = this.#options;
    this.#held.set(id, { state: 'opening' });
    let isLost = false;
    const onLost = () => {
      isLost = true;
      if (this.serves(id)) this.#run(this.#drop(id));
    };
    try {
      if (!(await membership.claim(id))) {
        this.#held.delete(id);
        return;
      }
      const shard = await open(id, onLost);
      this.#failed.delete(id);
      this.#held.set(id, { state: 'open', shard });
      log.info({ shard: id }, 'shard opened');
      onChange();
      if (isLost) await this.#drop(id);
    } catch (error) {
      const times = (this.#failed.get(id)?.times ?? 0) + 1;
      this.#failed.set(id, { times, until: clock.now() + backoffMs(times, RETRY) });
      this.#held.delete(id);
      log.error({ err: error, shard: id }, 'opening a shard failed, retrying');
    }
  }

  /** Never rejects. */
  async #drop(id: number): Promise<void> {
    this.#options.log.warn({ shard: id }, 'shard lost');
    await this.#close(id, { isLost: true });
  }

  async #close(id: number, { isLost = false } = {}): Promise<void> {
    const { log, onChange } = this.#options;
    const held = this.#held.get(id);
    if (held?.state !== 'open') return;
    this.#held.set(id, { state: 'closing' });
    onChange();
    try {
      // A connection that is frozen would keep the shard closing for long, and this node could not serve it again.
      if (isLost) held.shard.abandon();
      await held.shard.close();
    } catch (error) {
      log.error({ err: error, shard: id }, 'closing a shard failed');
    }
    this.#held.delete(id);
    onChange();
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
      log.warn({ err: error, shard: id }, 'handing a shard over failed');
    }
  }
}
