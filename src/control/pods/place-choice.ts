// Chooses the machine of a new pod: capacity.ts judges memory, processors and disk, this file the GPUs.
import { ProblemError } from '../../wire/problem.ts';
import { type Capacity, demandOf } from '../limits/capacity.ts';
import type { LivePods, PromisedGpus } from './live-pods.ts';
import type { PodSpec } from './pod-state.ts';

export interface PlaceChoiceOptions {
  capacity: Pick<Capacity, 'choose' | 'listNodes'>;
  live: Pick<LivePods, 'countGpus'>;
  /** The platform has several nodes, each with GPUs of its own. */
  hasNodes: boolean;
}

export interface ChosenPlace {
  /** Null: the only machine. */
  node: string | null;
  /** Call it when the pod is written, or could not be. */
  free: () => void;
}

export class PlaceChoice {
  readonly #options: PlaceChoiceOptions;
  /** For pods that are being written. */
  readonly #promised = new Set<PromisedGpus>();

  constructor(options: PlaceChoiceOptions) {
    this.#options = options;
  }

  /**
   * A pod that wants GPUs goes where enough are free; if they are free nowhere, it waits where there are enough.
   * @throws ProblemError `over_capacity`, `unavailable`
   */
  choose(spec: PodSpec): ChosenPlace {
    const { capacity, hasNodes, live } = this.#options;
    const demand = demandOf(spec);
    const { gpu } = spec;
    if (!gpu || !hasNodes) return { node: capacity.choose(demand), free: () => {} };
    const count = live.countGpus(gpu.id);
    const hasFree = (node: string | null) => count(node, this.#promised).free >= gpu.count;
    const hasAny = (node: string | null) => count(node, this.#promised).all >= gpu.count;
    const nodes = capacity.listNodes();
    if (nodes.length > 0 && !nodes.some(hasAny)) {
      const detail = `No node that answers has ${gpu.count} of ${gpu.id}. Ask for fewer, or try again later.`;
      throw new ProblemError('over_capacity', detail);
    }
    const node = capacity.choose(demand, nodes.some(hasFree) ? hasFree : hasAny);
    const promise = { node, gpu };
    this.#promised.add(promise);
    return { node, free: () => this.#promised.delete(promise) };
  }
}
