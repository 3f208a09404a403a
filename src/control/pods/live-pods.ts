// All pods, in memory and in the store: a change is on disk before anybody sees it.
// pod-lifecycle.ts decides which changes are allowed.
import { isDeepStrictEqual } from 'node:util';
import { ChangeNumbers } from '../../base/change-numbers.ts';
import type { Clock } from '../../base/clock.ts';
import type { Container } from '../../engine/engine.ts';
import { ENDING, type Store, type StoredResource } from '../../store/store.ts';
import { RESOURCES } from '../../wire/routes/routes.ts';
import { allocateGpus, type GpuWish, spareParked } from '../limits/capacity.ts';
import { SecretSealer } from '../registries/sealed-secret.ts';
import { type NamedRecords, NameIndex, Positions } from '../user-resources.ts';
import { giveGpus, isParked, listBoundGpus, returnGpus } from './pod-lifecycle.ts';
import { type Bill, type BilledChange, billedAs } from './pod-meter.ts';
import { type PodState, readPod, writePod } from './pod-state.ts';

/**
 * How long the record of a removed pod is kept, and at most how many per user, workers not counted.
 */
const KEPT_MS = 24 * 60 * 60_000;
const KEPT_OF_USER = 1_000;
/** Records read in one operation; they can be large. */
const PAGE = 100;

/** `record`: its stored state; `seen`: the engine's view of its container. */
export type PodAspect = 'record' | 'seen';
export type PodListener = (id: string, change: PodAspect) => void;

export interface LivePodsOptions {
  store: Store;
  clock: Clock;
  /** UUIDs of all GPUs of a type on the machine of a node; undefined: on the only machine. */
  gpuDevices: (gpuTypeId: string, node: string | undefined) => readonly string[];
  /** Default: nothing is billed. */
  bill?: Bill | undefined;
  /** Seals the variables of stored pods. Default: no key, so they are stored in the clear. */
  sealer?: SecretSealer | undefined;
}

/** GPUs for a pod that is being written. */
export interface PromisedGpus {
  node: string | null;
  gpu: { id: string; count: number };
}

/** Pods that still exist; removed ones are only in the store. */
export class LivePods implements NamedRecords {
  /** By user: counts the changes of their pods, removed ones included. */
  readonly changes = new ChangeNumbers();
  readonly #options: LivePodsOptions;
  readonly #sealer: SecretSealer;
  readonly #pods = new Map<string, PodState>();
  /** Of pods that are not TERMINATED. */
  readonly #names = new NameIndex(RESOURCES.pods.plural);
  readonly #seen = new Map<string, Container>();
  readonly #listeners = new Set<PodListener>();
  /** Assigned to a pod, but not in its record yet. */
  readonly #promisedGpus = new Map<string, readonly string[]>();
  /** Pods being written now: new ones, and changed ones in their new state. */
  readonly #coming = new Map<object, PodState>();
  /** Removed pods, in order of removal. */
  readonly #gone = new Map<string, Gone>();
  #positions = new Positions(0);
  /** Counts the loads: a write that began before the last one must not replace what was loaded. */
  #term = 0;

  constructor(options: LivePodsOptions) {
    this.#options = options;
    this.#sealer = options.sealer ?? new SecretSealer([]);
  }

  /** @throws ZodError if it is not a pod */
  read(stored: StoredResource): PodState {
    return readPod(stored, this.#sealer);
  }

  static async open(options: LivePodsOptions): Promise<LivePods> {
    const pods = new LivePods(options);
    await pods.load();
    return pods;
  }

  /** Reads the stored pods, in place of those that it has. */
  async load(): Promise<void> {
    this.clear();
    const term = this.#term;
    let before: number | undefined;
    do {
      const page = { kind: 'pod', before, limit: PAGE } as const;
      const stored = await this.#options.store.read((tx) => tx.resources(page));
      if (term !== this.#term) return;
      if (before === undefined) this.#positions = new Positions(stored[0]?.position ?? 0);
      for (const resource of stored) this.#keep(this.read(resource));
      before = stored.length < PAGE ? undefined : stored.at(-1)?.position;
    } while (before !== undefined);
  }

  /** Forgets all of them: another process manages them from now on. */
  clear(): void {
    this.#term += 1;
    const ids = [...this.#pods.keys()];
    for (const { userId } of [...this.#pods.values(), ...this.#gone.values()]) {
      this.changes.note(userId);
    }
    this.#pods.clear();
    this.#names.clear();
    this.#seen.clear();
    this.#gone.clear();
    for (const id of ids) this.#notify(id, 'record');
  }

  resolve(userId: string, idOrName: string): string {
    return this.#names.resolve(userId, idOrName);
  }

  get(id: string): PodState | undefined {
    return this.#pods.get(id);
  }

  /** It existed, and only its record is left. */
  isGone(id: string): boolean {
    return this.#gone.has(id);
  }

  all(): PodState[] {
    return [...this.#pods.values()];
  }

  /** Also those that are being written, as they will be. */
  allAndComing(): PodState[] {
    return [...this.#pods.values(), ...this.#coming.values()];
  }

  /** Each pod once: while a change of its meter is being written, as it will be, so that no time counts twice. */
  allMetered(): PodState[] {
    const pods = new Map(this.#pods);
    for (const coming of this.#coming.values()) {
      const until = pods.get(coming.id)?.meter.until ?? 0;
      if (coming.meter.until >= until) pods.set(coming.id, coming);
    }
    return [...pods.values()];
  }

  /** The last view of its container; undefined without one, or before the first inspection. */
  seen(id: string): Container | undefined {
    return this.#seen.get(id);
  }

  /** Calls the listener with each change when it is on disk. @returns the function that stops it */
  onChange(listener: PodListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async add(pod: PodState): Promise<void> {
    const { endpointId, id, userId } = pod;
    const position = this.#positions.next(pod.createdAt);
    const body = writePod(pod, this.#sealer);
    const stored: StoredResource = {
      kind: 'pod',
      id,
      userId,
      parent: endpointId ?? '',
      position,
      body,
    };
    const term = this.#term;
    const write = () => this.#options.store.write((tx) => tx.putResource(stored));
    await this.#writing(pod, write, () => {
      if (term === this.#term) this.#keep(pod);
    });
    if (term === this.#term) this.#notify(id, 'record');
  }

  /**
   * Stores the result of `decide`, which returns the same object for no change and may run several times.
   * Undefined if the pod no longer exists. @throws the error of `decide`
   */
  change(id: string, decide: (pod: PodState) => PodState): Promise<PodState | undefined> {
    return this.changeBilled(id, (pod) => ({ pod: decide(pod), intervals: [] }));
  }

  /** Like `change`. The intervals are on the bill in the same commit. */
  async changeBilled(
    id: string,
    decide: (pod: PodState) => BilledChange,
  ): Promise<PodState | undefined> {
    const known = this.#pods.get(id);
    const expected = known && decide(known).pod;
    if (!expected || expected === known) return known;
    const term = this.#term;
    const sealer = this.#sealer;
    const { bill } = this.#options;
    let billed: BilledChange['intervals'] = [];
    const write = () =>
      this.#options.store.write((tx) => {
        const stored = tx.resource({ kind: 'pod', id });
        if (!stored) return undefined;
        const pod = readPod(stored, sealer);
        const { intervals, pod: next } = decide(pod);
        if (next !== pod) tx.putResource({ ...stored, body: writePod(next, sealer) });
        bill?.add(tx, billedAs(next), intervals);
        billed = intervals;
        return next;
      }, ENDING);
    const changed = await this.#writing(expected, write, (written) => {
      if (!written || term !== this.#term) return;
      this.#keep(written);
      bill?.added?.(billedAs(written), billed);
    });
    if (term === this.#term) this.#notify(id, 'record');
    return changed;
  }

  /** `keep` is called before the pod stops to be a coming one. */
  async #writing<T>(
    pod: PodState,
    write: () => Promise<T>,
    keep: (written: T) => void,
  ): Promise<T> {
    const own = {};
    this.#coming.set(own, pod);
    try {
      const written = await write();
      keep(written);
      return written;
    } finally {
      this.#coming.delete(own);
    }
  }

  noteSeen(id: string, seen: Container | undefined): void {
    const pod = this.#pods.get(id);
    if (!pod || isDeepStrictEqual(this.#seen.get(id), seen)) return;
    this.changes.note(pod.userId);
    if (seen) this.#seen.set(id, seen);
    else this.#seen.delete(id);
    this.#notify(id, 'seen');
  }

  /** UUIDs of the GPUs of all pods. */
  heldGpus(): Set<string> {
    const promised = [...this.#promisedGpus.values()];
    return new Set([...this.all().map(({ gpus }) => gpus), ...promised].flat());
  }

  /** Assigns the GPUs that it waits for. Returns false if they are not free. */
  async allotGpus(id: string): Promise<boolean> {
    const pod = this.#pods.get(id);
    if (!pod?.spec.gpu || this.#promisedGpus.has(id)) return false;
    const { node } = pod;
    const devices = spareParked(this.#options.gpuDevices(pod.spec.gpu.id, node), this.all());
    const wishes = this.#listWishes(pod.spec.gpu.id, node);
    const gpus = allocateGpus({ devices, held: this.heldGpus(), wishes }).get(id);
    if (!gpus) return false;
    this.#promisedGpus.set(id, gpus);
    try {
      await this.change(id, (waiting) => giveGpus(waiting, gpus));
      return true;
    } finally {
      this.#promisedGpus.delete(id);
    }
  }

  /** Gives a parked pod its GPUs back. Returns false if they are not free. */
  async returnGpus(id: string): Promise<boolean> {
    const gpus = this.#pods.get(id)?.parked?.gpus ?? [];
    const held = this.heldGpus();
    if (gpus.length === 0 || gpus.some((gpu) => held.has(gpu))) return false;
    this.#promisedGpus.set(id, gpus);
    try {
      const now = this.#options.clock.now();
      const returned = await this.change(id, (pod) => returnGpus(pod, now));
      return returned?.gpus.length === gpus.length;
    } finally {
      this.#promisedGpus.delete(id);
    }
  }

  /** Counts GPUs of a type on the machine of a node: all, and those that no pod has or waits for. */
  countGpus(gpuTypeId: string) {
    const held = this.heldGpus();
    return (node: string | null, promised: Iterable<PromisedGpus>) => {
      const devices = this.#options.gpuDevices(gpuTypeId, node ?? undefined);
      const waiting = this.#listWishes(gpuTypeId, node ?? undefined);
      let free = devices.filter((uuid) => !held.has(uuid)).length;
      for (const { count } of waiting) free -= count;
      for (const each of promised) {
        if (each.node === node && each.gpu.id === gpuTypeId) free -= each.gpu.count;
      }
      return { all: devices.length, free };
    };
  }

  /** Removes records whose retention is over. */
  async forgetGone(): Promise<void> {
    const now = this.#options.clock.now();
    await Promise.all(
      listForgettable(this.#gone, now).map(async (id) => {
        await this.#options.store.write((tx) => tx.removeResource({ kind: 'pod', id }), ENDING);
        const userId = this.#gone.get(id)?.userId;
        this.#gone.delete(id);
        if (userId !== undefined) this.changes.note(userId);
      }),
    );
  }

  #listWishes(gpuTypeId: string, node: string | undefined): GpuWish[] {
    return this.all()
      .filter((pod) => {
        const { desired, gpus, id, spec } = pod;
        const isOpen = desired === 'running' && gpus.length === 0 && !isParked(pod);
        const isWaiting = isOpen && pod.node === node;
        return isWaiting && spec.gpu?.id === gpuTypeId && !this.#promisedGpus.has(id);
      })
      .sort((one, other) => one.createdAt - other.createdAt || (one.id < other.id ? -1 : 1))
      .map((pod) => ({
        podId: pod.id,
        count: pod.spec.gpu?.count ?? 1,
        among: this.#listBoundGpus(pod),
      }));
  }

  /** Of its current container. */
  #listBoundGpus({ generation, id }: PodState): readonly string[] | null {
    const seen = this.#seen.get(id);
    return seen?.generation === generation ? listBoundGpus(seen) : null;
  }

  #keep(pod: PodState): void {
    const { spec, status, userId } = pod;
    this.changes.note(userId);
    if (status === 'TERMINATED') this.#names.remove(pod.id);
    else this.#names.put(pod.id, { userId, name: spec.name });
    if (!pod.removed) {
      this.#pods.set(pod.id, pod);
      return;
    }
    this.#pods.delete(pod.id);
    this.#seen.delete(pod.id);
    const { createdAt, endedAt, endpointId } = pod;
    const isWorker = endpointId !== null;
    this.#gone.set(pod.id, { since: endedAt ?? createdAt, userId, isWorker });
  }

  #notify(id: string, change: PodAspect): void {
    for (const listener of this.#listeners) listener(id, change);
  }
}

interface Gone {
  /** Unix ms. */
  since: number;
  userId: string;
  isWorker: boolean;
}

/** Bounds the records of a user who creates and removes pods continuously. */
function listForgettable(gone: ReadonlyMap<string, Gone>, now: number): string[] {
  const kept = new Map<string, number>();
  const newestFirst = [...gone].sort(([, one], [, other]) => other.since - one.since);
  return newestFirst.flatMap(([id, { isWorker, since, userId }]) => {
    if (since + KEPT_MS <= now) return [id];
    if (isWorker) return [];
    const place = (kept.get(userId) ?? 0) + 1;
    kept.set(userId, place);
    return place > KEPT_OF_USER ? [id] : [];
  });
}
