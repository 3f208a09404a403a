// What the scaler of the leader knows of an endpoint's workers, for the endpoint's owner: asked for when a status read needs
// it, and kept for a moment, because status reads are frequent.
import type { Place } from '../../api/forwarding/placement.ts';
import type { NodeClient } from '../../api/nodes/node-client.ts';
import type { Clock } from '../../base/clock.ts';
import { type KnownScaling, scalingFacts } from '../../wire/resources/scaling.ts';
import { callNode } from '../nodes/node-calls.ts';

/** An answer is given without asking again for this time, ms. */
const FRESH_MS = 1_000;
/** After it, the last answer is still given, up to this age, while the leader is asked again, ms. */
const USABLE_MS = 10_000;
/** Endpoints whose answers are kept. */
const MAX_KEPT = 1_000;

export interface LeaderScalingOptions {
  client: NodeClient;
  clock: Clock;
  findLeader: () => Place;
  /** What the scaler of this node knows, if it leads. */
  own: (endpointId: string) => KnownScaling;
}

interface KeptAnswer {
  at: number;
  scaling: KnownScaling;
}

export class LeaderScaling {
  readonly #options: LeaderScalingOptions;
  readonly #kept = new Map<string, KeptAnswer>();
  readonly #asking = new Map<string, Promise<KnownScaling>>();

  constructor(options: LeaderScalingOptions) {
    this.#options = options;
  }

  /** Never rejects. Waits for the leader only if the last answer is too old. */
  find(endpointId: string): KnownScaling | Promise<KnownScaling> {
    const { clock, findLeader, own } = this.#options;
    const leader = findLeader();
    if (leader.kind === 'here') return own(endpointId);
    const kept = this.#kept.get(endpointId);
    const age = kept ? clock.now() - kept.at : Number.POSITIVE_INFINITY;
    if (kept && age < FRESH_MS) return kept.scaling;
    const asked = this.#asking.get(endpointId) ?? this.#ask(endpointId, leader);
    return kept && age < USABLE_MS ? kept.scaling : asked;
  }

  #ask(endpointId: string, leader: Place): Promise<KnownScaling> {
    const asked = this.#call(endpointId, leader).then((scaling) => {
      if (this.#kept.size >= MAX_KEPT) this.#kept.clear();
      this.#kept.set(endpointId, { at: this.#options.clock.now(), scaling });
      this.#asking.delete(endpointId);
      return scaling;
    });
    this.#asking.set(endpointId, asked);
    return asked;
  }

  async #call(endpointId: string, leader: Place): Promise<KnownScaling> {
    if (leader.kind !== 'node') return 'unknown';
    try {
      const answer = await callNode(this.#options.client, leader.url, 'scaling', { endpointId });
      return scalingFacts.parse(answer);
    } catch {
      // The leader does not answer, or has not decided yet.
      return 'unknown';
    }
  }
}
