// Limits the resources that all pods together may use. Memory is never overcommitted; CPUs and disk
// are, by factors that the operator sets.
import type { Container } from '../../engine/engine.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { PodSpec, PodState } from '../pods/pod-state.ts';

/** Amounts of the resources that pods share. */
export interface Amounts {
  memoryGb: number;
  vcpus: number;
  diskGb: number;
}

/** How often the same processor and the same GB of disk may be assigned. */
export interface Overcommit {
  vcpus: number;
  disk: number;
}

export const DEFAULT_OVERCOMMIT: Overcommit = { vcpus: 8, disk: 4 };

export function limitAmounts(machine: Amounts, overcommit: Overcommit): Amounts {
  return {
    memoryGb: machine.memoryGb,
    vcpus: machine.vcpus * overcommit.vcpus,
    diskGb: machine.diskGb * overcommit.disk,
  };
}

/** Resources of a running pod. A GPU pod requests no memory and no processors. */
export function demandOf({ cpu, disk, mounts }: Pick<PodSpec, 'cpu' | 'disk' | 'mounts'>): Amounts {
  return {
    memoryGb: cpu?.memory ?? 0,
    vcpus: cpu?.vcpuCount ?? 0,
    diskGb: disk + (mounts.persistent?.size ?? 0),
  };
}

/** A stopped pod keeps its disk. A stopping pod keeps its memory until it has stopped. */
export function holdingOf(
  { desired, spec }: Pick<PodState, 'desired' | 'spec'>,
  seen: Pick<Container, 'state'> | undefined,
): Amounts {
  const { diskGb, memoryGb, vcpus } = demandOf(spec);
  const isUp = desired === 'running' || seen?.state === 'running';
  return {
    memoryGb: isUp ? memoryGb : 0,
    vcpus: isUp ? vcpus : 0,
    diskGb: desired === 'gone' ? 0 : diskGb,
  };
}

const NAMES: readonly { key: keyof Amounts; unit: string; name: string }[] = [
  { key: 'memoryGb', unit: ' GB', name: 'memory' },
  { key: 'vcpus', unit: '', name: 'vCPUs' },
  { key: 'diskGb', unit: ' GB', name: 'disk' },
];

/** Names the resource that is short, with the numbers; undefined if everything fits. */
export function findShortage(demand: Amounts, held: Amounts, limits: Amounts): string | undefined {
  const short = NAMES.find(({ key }) => demand[key] > 0 && held[key] + demand[key] > limits[key]);
  if (!short) return undefined;
  const { key, name, unit } = short;
  const free = Math.max(0, limits[key] - held[key]);
  return `${name}: ${demand[key]}${unit} wanted, ${free}${unit} of ${limits[key]}${unit} free`;
}

export interface CapacityOptions {
  /** Default: nothing is limited. */
  limits: Amounts | undefined;
  /** Resources that pods hold now. */
  listHeld: () => readonly Amounts[];
}

/** Number of pods of one kind that still fit; `shortage` says why not more. */
export interface Headroom {
  places: number;
  shortage: string;
}

export class Capacity {
  readonly #options: CapacityOptions;
  /** Reserved for changes that are being written. */
  readonly #reserved = new Set<Amounts>();

  constructor(options: CapacityOptions) {
    this.#options = options;
  }

  /**
   * Reserves what `after` holds beyond `before`. Call the returned function as soon as `listHeld` has it,
   * or the change has failed. @throws ProblemError `over_capacity`
   */
  reserve(after: Amounts, before: Amounts = NOTHING): () => void {
    const { limits } = this.#options;
    if (!limits) return () => {};
    const more = subtract(after, before);
    const shortage = findShortage(more, this.#sumHeld(), limits);
    if (shortage !== undefined) {
      throw new ProblemError(
        'over_capacity',
        `The machine has too little left for the pod: ${shortage}. Ask for less, or stop another pod.`,
      );
    }
    this.#reserved.add(more);
    return () => this.#reserved.delete(more);
  }

  /** Undefined: nothing is limited. */
  headroomFor(demand: Amounts, wanted: number): Headroom | undefined {
    const { limits } = this.#options;
    if (!limits) return undefined;
    const held = this.#sumHeld();
    for (let places = 0; places < wanted; places++) {
      const shortage = findShortage(demand, add(held, scale(demand, places)), limits);
      if (shortage !== undefined) return { places, shortage };
    }
    return undefined;
  }

  #sumHeld(): Amounts {
    return [...this.#options.listHeld(), ...this.#reserved].reduce(add, NOTHING);
  }
}

const NOTHING: Amounts = { memoryGb: 0, vcpus: 0, diskGb: 0 };

function add(one: Amounts, other: Amounts): Amounts {
  return combine(one, other, (a, b) => a + b);
}

function subtract(one: Amounts, other: Amounts): Amounts {
  return combine(one, other, (a, b) => Math.max(0, a - b));
}

function scale(one: Amounts, factor: number): Amounts {
  return combine(one, one, (a) => a * factor);
}

function combine(one: Amounts, other: Amounts, join: (a: number, b: number) => number): Amounts {
  return {
    memoryGb: join(one.memoryGb, other.memoryGb),
    vcpus: join(one.vcpus, other.vcpus),
    diskGb: join(one.diskGb, other.diskGb),
  };
}
