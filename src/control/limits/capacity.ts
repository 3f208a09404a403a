// The capacity of machines: limits the resources that all pods of one may use together, chooses the machine of a new
// pod, and assigns GPUs. Memory is never overcommitted; CPUs and disk are, by factors that the operator sets.
import type { Container } from '../../engine/engine.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { NodeMachine } from '../../wire/resources/nodes.ts';
import type { LivePods, PromisedGpus } from '../pods/live-pods.ts';
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

/** A machine that runs pods. */
export interface PodMachine {
  /** Its node; null if the platform has only one. */
  node: string | null;
  /** Undefined: nothing is limited. */
  limits: Amounts | undefined;
}

/** What a pod holds, and where. */
interface Holding {
  node: string | null;
  amounts: Amounts;
}

export interface CapacityOptions {
  /** The machines that take pods now. */
  listMachines: () => readonly PodMachine[];
  /** Resources that pods hold now. */
  listHeld: () => readonly Holding[];
}

/** Number of pods of one kind that still fit; `shortage` says why not more. */
export interface Headroom {
  places: number;
  shortage: string;
}

interface Reservation {
  node: string | null;
  after: Amounts;
  /** Default: nothing. */
  before?: Amounts;
}

export class Capacity {
  readonly #options: CapacityOptions;
  /** Reserved for changes that are being written. */
  readonly #reserved = new Set<Holding>();

  constructor(options: CapacityOptions) {
    this.#options = options;
  }

  /**
   * Chooses the machine for a new pod: the one that is least full with the pod on it. The first name wins a tie.
   * `mayTake`: whether the machine of a node may have the pod. Default: every machine may.
   * @returns its node. @throws ProblemError `over_capacity`, `unavailable`
   */
  choose(demand: Amounts, mayTake: (node: string | null) => boolean = () => true): string | null {
    const machines = this.#options.listMachines().filter(({ node }) => mayTake(node));
    const judged = machines.map((machine) => {
      const held = this.#sumHeld(machine.node);
      return { ...machine, ...judge(demand, held, machine.limits) };
    });
    const [best] = judged.toSorted(
      (one, other) => one.share - other.share || compareNames(one.node, other.node),
    );
    if (!best) throw noMachine();
    if (best.shortage !== undefined) throw refuse(best.node, best.shortage);
    return best.node;
  }

  /** Of the machines that take pods now. */
  listNodes(): (string | null)[] {
    return this.#options.listMachines().map(({ node }) => node);
  }

  /**
   * Reserves what `after` holds beyond `before`. Call the returned function as soon as `listHeld` has it,
   * or the change has failed. @throws ProblemError `over_capacity`, `unavailable`
   */
  reserve({ after, before = NOTHING, node }: Reservation): () => void {
    const more = subtract(after, before);
    if (NAMES.every(({ key }) => more[key] === 0)) return () => {};
    const machine = this.#options.listMachines().find((each) => each.node === node);
    if (!machine) throw noMachine();
    if (!machine.limits) return () => {};
    const shortage = findShortage(more, this.#sumHeld(node), machine.limits);
    if (shortage !== undefined) throw refuse(node, shortage);
    const reserved = { node, amounts: more };
    this.#reserved.add(reserved);
    return () => this.#reserved.delete(reserved);
  }

  /** How many of `wanted` pods fit; undefined: all of them. */
  headroomFor(demand: Amounts, wanted: number): Headroom | undefined {
    let places = 0;
    let shortage = NO_MACHINES;
    for (const machine of this.#options.listMachines()) {
      const headroom = this.#headroomAt(machine, demand, wanted - places);
      if (!headroom) return undefined;
      places += headroom.places;
      shortage = headroom.shortage;
    }
    return { places, shortage };
  }

  #headroomAt({ limits, node }: PodMachine, demand: Amounts, wanted: number): Headroom | undefined {
    if (!limits) return undefined;
    const held = this.#sumHeld(node);
    for (let places = 0; places < wanted; places++) {
      const shortage = findShortage(demand, add(held, scale(demand, places)), limits);
      if (shortage !== undefined) return { places, shortage };
    }
    return undefined;
  }

  #sumHeld(node: string | null): Amounts {
    return [...this.#options.listHeld(), ...this.#reserved]
      .filter((holding) => holding.node === node)
      .reduce((sum, { amounts }) => add(sum, amounts), NOTHING);
  }
}

const NO_MACHINES = 'no node whose engine could run it answers at the moment';

function noMachine(): ProblemError {
  const detail = `The pod cannot run now: ${NO_MACHINES}; try again.`;
  return new ProblemError('unavailable', detail, { retryAfterMs: 1_000 });
}

function refuse(node: string | null, shortage: string): ProblemError {
  const where =
    node === null
      ? 'The machine has too little left for the pod'
      : `No node has enough left for the pod; the closest is ${node}`;
  const detail = `${where}: ${shortage}. Ask for less, or stop another pod.`;
  return new ProblemError('over_capacity', detail);
}

/** `share`: of the resource that is scarcest with the pod; very large if the pod does not fit. */
function judge(demand: Amounts, held: Amounts, limits: Amounts | undefined) {
  if (!limits) return { share: 0, shortage: undefined };
  const shortage = findShortage(demand, held, limits);
  const after = add(held, demand);
  const share = Math.max(...NAMES.map(({ key }) => after[key] / limits[key]));
  return { share: shortage === undefined ? share : OVERFULL + share, shortage };
}

/** A machine without capacity comes after all that have some. */
const OVERFULL = 1_000_000;

function compareNames(one: string | null, other: string | null): number {
  return (one ?? '') < (other ?? '') ? -1 : 1;
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

export interface MachineChoiceOptions {
  capacity: Pick<Capacity, 'choose' | 'listNodes'>;
  live: Pick<LivePods, 'countGpus'>;
  /** The platform has several nodes, each with GPUs of its own. */
  hasNodes: boolean;
}

interface ChosenMachine {
  /** Null: the only machine. */
  node: string | null;
  /** Call it when the pod is written, or could not be. */
  free: () => void;
}

/**
 * Chooses the machine of a new pod: `Capacity` judges memory, processors and disk, this class the GPUs.
 */
export class MachineChoice {
  readonly #options: MachineChoiceOptions;
  /** For pods that are being written. */
  readonly #promised = new Set<PromisedGpus>();

  constructor(options: MachineChoiceOptions) {
    this.#options = options;
  }

  /**
   * A pod that wants GPUs goes where enough are free; if they are free nowhere, it waits where there are enough.
   * @throws ProblemError `over_capacity`, `unavailable`
   */
  choose(spec: PodSpec): ChosenMachine {
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

export interface GpuWish {
  podId: string;
  count: number;
  /** UUIDs of the GPUs that it needs, all of them; null: any. */
  among: readonly string[] | null;
}

interface GpuAllocation {
  /** UUIDs of all GPUs of the type. */
  devices: readonly string[];
  held: ReadonlySet<string>;
  /** Wishes for this type, the longest waiting first. */
  wishes: readonly GpuWish[];
}

/**
 * Assigns free GPUs to waiting pods: returns the GPUs of each pod that gets any. A pod that waits for several GPUs of any kind is not
 * overtaken, otherwise many small wishes would starve a large one; a pod that waits for particular
 * GPUs does not block others.
 */
export function allocateGpus({
  devices,
  held,
  wishes,
}: GpuAllocation): Map<string, readonly string[]> {
  const given = new Map<string, readonly string[]>();
  const free = new Set(devices.filter((device) => !held.has(device)));
  for (const { among, count, podId } of wishes) {
    const gpus = among ?? [...free].slice(0, count);
    const isEnough = gpus.length >= count && gpus.every((gpu) => free.has(gpu));
    if (isEnough) {
      given.set(podId, gpus);
      for (const gpu of gpus) free.delete(gpu);
    } else if (!among) break;
  }
  return given;
}

/** In the order in which they are given away: the last ones are those to which a parked worker would come back. */
export function spareParked(
  devices: readonly string[],
  pods: readonly Pick<PodState, 'parked'>[],
): string[] {
  const bound = new Set(pods.flatMap(({ parked }) => parked?.gpus ?? []));
  return devices.toSorted((one, other) => Number(bound.has(one)) - Number(bound.has(other)));
}

const BYTES_PER_GB = 1_073_741_824;

interface MachineFacts {
  engine: string;
  /** Name of its node; null if the platform has only one. */
  node: string | null;
  /** Undefined: nothing is limited. */
  limits: Amounts | undefined;
  devices: readonly Pick<Device, 'kind' | 'uuid' | 'name' | 'memoryBytes'>[];
}

/** What the pods on one machine hold of it. */
export function describeMachine(
  { devices, engine, limits, node }: MachineFacts,
  live: Pick<LivePods, 'all' | 'seen'>,
): NodeMachine {
  const here = live.all().filter((pod) => (pod.node ?? null) === node);
  const held = here.map((pod) => holdingOf(pod, live.seen(pod.id)));
  const share = (key: keyof Amounts) => ({
    // A file system without a size has no limit.
    limit: limits && limits[key] < Number.MAX_SAFE_INTEGER ? limits[key] : null,
    used: held.reduce((sum, amounts) => sum + amounts[key], 0),
  });
  const holders = new Map(here.flatMap(({ gpus, id }) => gpus.map((uuid) => [uuid, id] as const)));
  return {
    engine,
    pods: here.filter(({ desired }) => desired === 'running').length,
    memoryGb: share('memoryGb'),
    vcpus: share('vcpus'),
    diskGb: share('diskGb'),
    gpus: devices
      .filter(({ kind }) => kind === 'gpu')
      .map(({ memoryBytes, name, uuid }) => ({
        uuid,
        name,
        memoryGb: Math.round(memoryBytes / BYTES_PER_GB),
        podId: holders.get(uuid) ?? null,
      })),
  };
}
