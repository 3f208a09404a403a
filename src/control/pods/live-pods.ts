// The pods there are, in memory and in the store: each change is on disk before anybody sees it. Which
// change may be made is pod-lifecycle.ts's, and who asks for it nobody's business here.
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../../base/clock.ts';
import type { Container } from '../../engine/engine.ts';
import { ENDING, type Store, type StoredResource } from '../../store/store.ts';
import { Positions } from '../positions.ts';
import { allocateGpus, type GpuWish } from './allocation.ts';
import { giveGpus } from './pod-lifecycle.ts';
import { type PodState, podState } from './pod-state.ts';

/** How long the record of one that is gone can be read, and of how many of a user, workers not counted. */
const KEPT_MS = 24 * 60 * 60_000;
const KEPT_OF_USER = 1_000;
/** Records read in one operation: they can be large. */
const PAGE = 100;

/** `record`: what is kept of it; `seen`: what the engine says of its container. */
export type PodChange = 'record' | 'seen';
export type PodListener = (id: string, change: PodChange) => void;

export interface LivePodsOptions {
  store: Store;
  clock: Clock;
  /** UUIDs of all GPUs of a type. */
  gpuDevices: (gpuTypeId: string) => readonly string[];
}

/** Those of which more than the record is left; the others are in the store alone. */
export class LivePods {
  readonly #options: LivePodsOptions;
  readonly #pods = new Map<string, PodState>();
  readonly #seen = new Map<string, Container>();
  readonly #listeners = new Set<PodListener>();
  /** Found for a pod, and not yet in its record. */
  readonly #promisedGpus = new Map<string, readonly string[]>();
  /** Those of which only the record is left, in the order in which that came about. */
  readonly #gone = new Map<string, Gone>();
  #positions = new Positions(0);

  private constructor(options: LivePodsOptions) {
    this.#options = options;
  }

  static async open(options: LivePodsOptions): Promise<LivePods> {
    const pods = new LivePods(options);
    let before: number | undefined;
    do {
      const page = { kind: 'pod', before, limit: PAGE } as const;
      const stored = await options.store.read((tx) => tx.resources(page));
      if (before === undefined) pods.#positions = new Positions(stored[0]?.position ?? 0);
      for (const resource of stored) pods.#keep(readPod(resource));
      before = stored.length < PAGE ? undefined : stored.at(-1)?.position;
    } while (before !== undefined);
    return pods;
  }

  get(id: string): PodState | undefined {
    return this.#pods.get(id);
  }

  /** It was one of ours, and nothing but its record is left. */
  isGone(id: string): boolean {
    return this.#gone.has(id);
  }

  all(): PodState[] {
    return [...this.#pods.values()];
  }

  /** As it was last seen; undefined when there is none, or nobody has looked yet. */
  seen(id: string): Container | undefined {
    return this.#seen.get(id);
  }

  /** Tells of each change, once it is on disk. Returns the end of it. */
  onChange(listener: PodListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async add(pod: PodState): Promise<void> {
    const { endpointId, id, userId } = pod;
    const position = this.#positions.next(pod.createdAt);
    const body = JSON.stringify(pod);
    const stored: StoredResource = {
      ...{ kind: 'pod', id, userId, parent: endpointId ?? '', position, body },
    };
    await this.#options.store.write((tx) => tx.putResource(stored));
    this.#keep(pod);
    this.#tell(id, 'record');
  }

  /**
   * What `decide` makes of it, or the same object for no change; it may be asked twice. Undefined if
   * there is no such pod any more. @throws what `decide` throws
   */
  async change(id: string, decide: (pod: PodState) => PodState): Promise<PodState | undefined> {
    const known = this.#pods.get(id);
    if (!known || decide(known) === known) return known;
    const changed = await this.#options.store.write(function* (tx) {
      const stored = yield* tx.resource({ kind: 'pod', id });
      if (!stored) return undefined;
      const pod = readPod(stored);
      const next = decide(pod);
      if (next !== pod) yield* tx.putResource({ ...stored, body: JSON.stringify(next) });
      return next;
    }, ENDING);
    if (changed) this.#keep(changed);
    this.#tell(id, 'record');
    return changed;
  }

  noteSeen(id: string, seen: Container | undefined): void {
    if (!this.#pods.has(id) || isDeepStrictEqual(this.#seen.get(id), seen)) return;
    if (seen) this.#seen.set(id, seen);
    else this.#seen.delete(id);
    this.#tell(id, 'seen');
  }

  /** UUIDs of all that pods have. */
  heldGpus(): Set<string> {
    const promised = [...this.#promisedGpus.values()];
    return new Set([...this.all().map(({ gpus }) => gpus), ...promised].flat());
  }

  /** Gives it the GPUs that it waits for. False if they are not free. */
  async allotGpus(id: string): Promise<boolean> {
    const pod = this.#pods.get(id);
    if (!pod?.spec.gpu || this.#promisedGpus.has(id)) return false;
    const devices = this.#options.gpuDevices(pod.spec.gpu.id);
    const wishes = this.#listWishes(pod.spec.gpu.id);
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

  /** Removes the records that have been kept for long enough. */
  async forgetGone(): Promise<void> {
    const now = this.#options.clock.now();
    await Promise.all(
      listForgettable(this.#gone, now).map(async (id) => {
        await this.#options.store.write((tx) => tx.removeResource({ kind: 'pod', id }), ENDING);
        this.#gone.delete(id);
      }),
    );
  }

  #listWishes(gpuTypeId: string): GpuWish[] {
    return this.all()
      .filter(({ desired, gpus, id, spec }) => {
        const isWaiting = desired === 'running' && gpus.length === 0;
        return isWaiting && spec.gpu?.id === gpuTypeId && !this.#promisedGpus.has(id);
      })
      .sort((one, other) => one.createdAt - other.createdAt || (one.id < other.id ? -1 : 1))
      .map((pod) => ({
        podId: pod.id,
        count: pod.spec.gpu?.count ?? 1,
        among: this.#listBoundGpus(pod),
      }));
  }

  /** Its disk is its container's, and the container was made with these. */
  #listBoundGpus({ generation, id }: PodState): readonly string[] | null {
    const seen = this.#seen.get(id);
    return seen?.generation === generation && seen.gpus.length > 0 ? seen.gpus : null;
  }

  #keep(pod: PodState): void {
    if (!pod.removed) {
      this.#pods.set(pod.id, pod);
      return;
    }
    this.#pods.delete(pod.id);
    this.#seen.delete(pod.id);
    const { createdAt, endedAt, endpointId, userId } = pod;
    const isWorker = endpointId !== null;
    this.#gone.set(pod.id, { since: endedAt ?? createdAt, userId, isWorker });
  }

  #tell(id: string, change: PodChange): void {
    for (const listener of this.#listeners) listener(id, change);
  }
}

interface Gone {
  /** Unix ms. */
  since: number;
  userId: string;
  isWorker: boolean;
}

/** Whoever makes and ends pods without a pause does not fill the store with their records. */
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

/** @throws ZodError for what is no pod */
export function readPod({ body }: StoredResource): PodState {
  return podState.parse(JSON.parse(body));
}
