// The term in which this node leads: the epoch of shard 0. Whatever the leader has others do carries it, so that nobody
// obeys a leader that was replaced.
import { EngineError } from '../../engine/engine.ts';
import type { Cluster } from '../nodes/node-placement.ts';

export class LeadTerm {
  readonly #cluster: Cluster;
  /** Undefined: another node leads. */
  #term: number | undefined;

  constructor(cluster: Cluster) {
    this.#cluster = cluster;
  }

  begin(): void {
    this.#term = this.#shard?.epoch;
  }

  end(): void {
    this.#term = undefined;
  }

  get current(): number | undefined {
    return this.#term;
  }

  /** A node that was paused may still believe that it leads; its lease tells. @throws EngineError */
  require(): number {
    const { id, isServing } = this.#cluster;
    const shard = this.#shard;
    const leads = shard?.owner === id && shard.epoch === this.#term;
    if (this.#term !== undefined && leads && isServing) return this.#term;
    throw replaced();
  }

  /**
   * For a change that takes several requests to a cluster: throws from the moment on at which this node does not lead any
   * more, also if it leads again by then. @throws EngineError, already when it opens
   */
  openFence(): () => void {
    const term = this.require();
    return () => {
      if (this.require() !== term) throw replaced();
    };
  }

  get #shard() {
    return this.#cluster.view.shards.find(({ id }) => id === 0);
  }
}

function replaced(): EngineError {
  return new EngineError('unavailable', 'this node does not lead at the moment');
}
