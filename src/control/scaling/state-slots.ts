// Assigns state volumes of an endpoint to its worker pods. The volumes belong to the machine of the pod's node. A pod's record holds its volume from
// before its container is created until the container is gone, so two containers never use the same
// one, whatever the engine, its runtime or a crash of the platform does. A free volume goes to the
// next pod.
import { EngineError } from '../../engine/engine.ts';
import type { PodState, Pods } from '../pods/pods.ts';

export interface StateSlotsOptions {
  pods: Pick<Pods, 'live'>;
}

export class StateSlots {
  readonly #options: StateSlotsOptions;
  /** Chosen for a pod, but not in its record yet. */
  readonly #promised = new Map<string, { home: string; slot: number }>();
  /** By endpoint and node: volumes in which a dead worker may have left outcomes. */
  readonly #left = new Map<string, Set<number>>();

  constructor(options: StateSlotsOptions) {
    this.#options = options;
  }

  /** @throws EngineError if the pod no longer exists */
  async take(pod: PodState, endpointId: string): Promise<number> {
    if (pod.stateSlot !== undefined) return pod.stateSlot;
    const home = nameHome(endpointId, pod.node);
    const left = this.#left.get(home) ?? new Set<number>();
    const slot = chooseSlot({ held: this.#listHeld(home), left });
    this.#promised.set(pod.id, { home, slot });
    try {
      const { live } = this.#options.pods;
      const changed = await live.change(pod.id, (known) => ({ stateSlot: slot, ...known }));
      if (changed?.stateSlot === undefined) throw new EngineError('unavailable', 'the pod is gone');
      left.delete(changed.stateSlot);
      return changed.stateSlot;
    } finally {
      this.#promised.delete(pod.id);
    }
  }

  /** The container is gone; its worker was killed or could not deliver everything. */
  noteLeft(endpointId: string, { node, slot }: { node: string | undefined; slot: number }): void {
    const home = nameHome(endpointId, node);
    const left = this.#left.get(home) ?? new Set<number>();
    this.#left.set(home, left.add(slot));
  }

  forget(endpointId: string): void {
    for (const home of this.#left.keys()) {
      if (home.startsWith(nameHome(endpointId, ''))) this.#left.delete(home);
    }
  }

  #listHeld(home: string): Set<number> {
    const { live } = this.#options.pods;
    const recorded = live
      .all()
      .filter(({ endpointId, node }) => endpointId !== null && nameHome(endpointId, node) === home);
    const promised = [...this.#promised.values()].filter((each) => each.home === home);
    return new Set([
      ...recorded.flatMap(({ stateSlot }) => stateSlot ?? []),
      ...promised.map(({ slot }) => slot),
    ]);
  }
}

/** The volumes of an endpoint on one node. Neither name contains a space. */
function nameHome(endpointId: string, node = ''): string {
  return `${endpointId} ${node}`;
}

interface Slots {
  held: ReadonlySet<number>;
  left: ReadonlySet<number>;
}

/**
 * Prefers a volume with outcomes to deliver; otherwise the lowest number, to keep their number
 * small.
 */
export function chooseSlot({ held, left }: Slots): number {
  const waiting = [...left].filter((slot) => !held.has(slot));
  if (waiting.length > 0) return Math.min(...waiting);
  let slot = 0;
  while (held.has(slot)) slot++;
  return slot;
}
