// Remembers an endpoint's workers between reconcile passes: which were ready, since when each is idle
// or drains, and which crashed. In memory only: after a restart, the platform adopts the workers that it
// finds and observes them anew.
import { EXIT_HANDLER_NOT_LOADED } from '../../wire/link/worker-link.ts';
import type { EndpointType } from '../../wire/resources/fields.ts';
import type { ScaledWorker, ScalerInput } from '../../wire/resources/scaling.ts';
import { isParked, reasonOfUser } from '../pods/pod-lifecycle.ts';
import type { PodState } from '../pods/pod-state.ts';
import type { Parked } from '../pods/worker-timeline.ts';
import type { ParkWish, SeenWorker } from './work-view.ts';
import {
  type EndInput,
  findDrainEnd,
  findEnd,
  findParkingEnd,
  isClean,
  isWithoutGpu,
} from './worker-ends.ts';

/** Pause after the first crash, ms; it doubles with each further crash up to MAX_PAUSE_MS. */
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;
export type Crashes = ScalerInput['crashes'];

const NO_CRASHES: Crashes = { streak: 0, notBefore: 0, reason: null };

interface CrashNote {
  /** Workers in a row. Default: one more. */
  streak?: number | undefined;
  isHandler?: boolean;
}

export interface WorkerListOptions {
  /** Unix ms. Earlier pods belong to an earlier run of the platform; their history is unknown. */
  openedAt: number;
  /** A ready worker that was silent for this long is dead, ms. */
  silentMs: number;
  /**
   * The node of a worker has been gone for this long: the worker is replaced, ms. Until then it counts, because it may
   * still run. Default: never.
   */
  replaceAfterMs?: number | undefined;
  /** Crashes that the previous run recorded. */
  crashes: Crashes | undefined;
}

export interface PassInput {
  now: number;
  type: EndpointType;
  executionTimeoutMs: number;
  pods: readonly PodState[];
  seen: readonly SeenWorker[];
  isCurrent: (pod: PodState) => boolean;
  /** No machine has capacity for it, and another GPU type may have some. Default: none waits for capacity. */
  isMovable?: (pod: PodState) => boolean;
  /** Workers may be parked. Default: none. */
  mayPark?: boolean;
  /** Memory of the pod's GPUs, bytes: a worker cannot have left more. */
  gpuMemoryOf?: (pod: PodState) => number;
}

export interface Observation {
  workers: ScaledWorker[];
  /** Workers whose pods must be ended. */
  ended: EndedWorker[];
  /** Pods of draining workers whose process was replaced: the new process must be drained too. */
  undrained: string[];
  /** Pods whose parking has come a step further. */
  parking: ParkingStep[];
}

/** `left`: the worker has left its GPUs. `awake`: it is ready again. `wish`: it must be asked again. */
export type ParkingStep =
  | { podId: string; step: 'left'; parked: Parked }
  | { podId: string; step: 'awake' }
  | { podId: string; step: 'wish'; wish: ParkWish };

export interface EndedWorker {
  podId: string;
  reason: string;
  isCrash: boolean;
}

interface WorkerEntry {
  readonly podId: string;
  readonly isAdopted: boolean;
  /** Time of the first pass that saw the pod, Unix ms. */
  readonly since: number;
  /** When its worker was last connected, Unix ms; null: never. */
  seenAt: number | null;
  /** When its worker was first connected, Unix ms; null: never. */
  readySince: number | null;
  idleSince: number | null;
  taken: number;
  drainingSince: number | null;
  /** Since when it has been asked to leave its GPUs, or back to them, Unix ms. */
  parkingSince: number | null;
  wakingSince: number | null;
  /** It was to be parked, and is needed instead: it may still say that it is on its way. */
  isNeeded: boolean;
  /** What it was asked to become. */
  leaves: Exclude<ParkWish, 'ready'>;
  isEnded: boolean;
}

export class WorkerList {
  readonly #options: WorkerListOptions;
  readonly #entries = new Map<string, WorkerEntry>();
  #crashes: Crashes;
  #startMs = 0;
  #wakeMs = 0;
  #parkedBytes = 0;

  constructor(options: WorkerListOptions) {
    this.#options = options;
    this.#crashes = options.crashes ?? NO_CRASHES;
  }

  get crashes(): Crashes {
    return this.#crashes;
  }

  /** How long the last worker took from its start to being ready, ms; 0: not known. */
  get startMs(): number {
    return this.#startMs;
  }

  /** How long the last wake took, ms; 0: not known. */
  get wakeMs(): number {
    return this.#wakeMs;
  }

  /** GPU memory of the last worker that was parked; 0: not known. */
  get parkedBytes(): number {
    return this.#parkedBytes;
  }

  /** Since when the worker has drained, has been on the way from its GPUs, has been ready, or starts, Unix ms. */
  sinceOf(podId: string): number {
    const entry = this.#entries.get(podId);
    const { drainingSince, parkingSince, readySince, since = 0 } = entry ?? {};
    return drainingSince ?? parkingSince ?? readySince ?? since;
  }

  observe(input: PassInput): Observation {
    const observation: Observation = { workers: [], ended: [], undrained: [], parking: [] };
    this.#forget(input.pods);
    for (const pod of input.pods) this.#observePod(pod, input, observation);
    return observation;
  }

  noteDrained(podId: string, now: number): void {
    const entry = this.#entries.get(podId);
    if (entry) entry.drainingSince ??= now;
  }

  noteParking(podId: string, now: number, leaves: WorkerEntry['leaves']): void {
    const entry = this.#entries.get(podId);
    if (!entry) return;
    entry.parkingSince ??= now;
    entry.isNeeded = false;
    entry.leaves = leaves;
  }

  /** A spare worker that has not been parked yet is to take jobs. */
  noteNeeded(podId: string): void {
    const entry = this.#entries.get(podId);
    if (!entry) return;
    entry.parkingSince = null;
    entry.isNeeded = true;
  }

  /** A worker crashed, or could not be created; `streak` of them in a row. */
  noteCrash(
    reason: string,
    now: number,
    { isHandler = false, streak = this.#crashes.streak + 1 }: CrashNote = {},
  ): void {
    const pauseMs = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(streak - 1, 30));
    const notBefore = now + pauseMs;
    this.#crashes = { streak, notBefore, reason, ...(isHandler && { isHandler }) };
  }

  /** Replaces the reason of the last crash by a more precise one. */
  explainCrash(reason: string): void {
    this.#crashes = { ...this.#crashes, reason };
  }

  /** Call this when the template or the GPU types have changed: new workers may not crash. */
  forgiveCrashes(): void {
    this.#crashes = NO_CRASHES;
  }

  #observePod(pod: PodState, input: PassInput, observation: Observation): void {
    const entry = this.#entryOf(pod, input.now);
    const seen = addUp(input.seen, pod.id);
    // After a restart of the platform.
    if (pod.parked) this.#parkedBytes ||= pod.parked.bytes;
    // Its machine will end it: until then it finishes its jobs, and gets no others.
    if (pod.leaving !== undefined) entry.drainingSince ??= input.now;
    this.#noteSeen(pod, entry, { seen, now: input.now });
    observation.parking.push(...this.#followParking(pod, entry, seen, input));
    // Nobody can tell whether it is silent because it is dead. When its node is back, its worker gets time to reconnect.
    if (pod.unreachable && entry.seenAt !== null) entry.seenAt = input.now;
    const end = entry.isEnded ? undefined : this.#judgeEnd(pod, entry, { ...input, worker: seen });
    if (end) {
      entry.isEnded = true;
      entry.drainingSince ??= input.now;
      observation.ended.push(end);
      if (end.isCrash) {
        const streak = entry.seenAt === null ? undefined : 1;
        const isHandler = pod.exitCode === EXIT_HANDLER_NOT_LOADED;
        this.noteCrash(end.reason, input.now, { streak, isHandler });
      }
    } else if (entry.drainingSince !== null && seen?.draining === false) {
      observation.undrained.push(pod.id);
    }
    const reason = reasonOfUser(pod);
    observation.workers.push({
      id: pod.id,
      state: stateOf(pod, entry, seen),
      ...(mayBeParked(pod, entry, seen) && input.mayPark && { canPark: true as const }),
      jobs: seen?.jobs ?? 0,
      idleSince: entry.idleSince,
      isCurrent: input.isCurrent(pod),
      ...(pod.spec.gpu && { gpuType: pod.spec.gpu.id }),
      ...(reason !== null && { reason }),
    });
  }

  #entryOf({ createdAt, id }: PodState, now: number): WorkerEntry {
    const existing = this.#entries.get(id);
    if (existing) return existing;
    const isAdopted = createdAt < this.#options.openedAt;
    const unseen = { seenAt: null, readySince: null, idleSince: null, taken: 0 };
    const fresh = { podId: id, isAdopted, since: now, ...unseen };
    const moving = { drainingSince: null, parkingSince: null, wakingSince: null };
    const rest = { leaves: 'parked', isNeeded: false, isEnded: false } as const;
    const entry: WorkerEntry = { ...fresh, ...moving, ...rest };
    this.#entries.set(id, entry);
    return entry;
  }

  #noteSeen(
    { startedAt }: PodState,
    entry: WorkerEntry,
    { now, seen }: { now: number; seen: SeenWorker | undefined },
  ): void {
    if (!seen) {
      entry.idleSince = null;
      return;
    }
    if (entry.seenAt === null) {
      this.#crashes = NO_CRASHES;
      if (!entry.isAdopted) this.#startMs = now - (startedAt ?? entry.since);
    }
    entry.readySince ??= now;
    entry.seenAt = now;
    const taken = seen.taken ?? entry.taken;
    const wasIdle = seen.jobs === 0 && taken === entry.taken;
    entry.taken = taken;
    if (seen.jobs > 0) entry.idleSince = null;
    else if (!wasIdle || entry.idleSince === null) entry.idleSince = now;
  }

  /** What the record of the pod, and the worker, must be told. */
  #followParking(
    pod: PodState,
    entry: WorkerEntry,
    seen: SeenWorker | undefined,
    { gpuMemoryOf = () => Number.POSITIVE_INFINITY, mayPark = false, now }: PassInput,
  ): ParkingStep[] {
    const { id: podId } = pod;
    const parking = seen?.parking;
    if (!parking || pod.desired !== 'running' || entry.drainingSince !== null) return [];
    if (pod.parked && !isParked(pod)) {
      entry.parkingSince = null;
      entry.wakingSince ??= now;
      if (parking.state !== 'ready') return askAgain(podId, parking, 'ready');
      this.#wakeMs = now - entry.wakingSince;
      entry.wakingSince = null;
      entry.readySince = now;
      return [{ podId, step: 'awake' }];
    }
    if (isParked(pod)) return [];
    // After a restart of the platform it may be on its way. Of a worker that may not, nobody has asked it.
    const isLeaving = parking.state === 'parking' || parking.state === 'parked';
    const isSuspended = parking.suspendedSince !== undefined;
    if (isSuspended) entry.leaves = 'suspended';
    const mayLeave = (mayPark && !entry.isNeeded) || isSuspended;
    if ((isLeaving || pod.spare) && mayLeave) entry.parkingSince ??= now;
    if (entry.parkingSince === null) {
      const isWished = parking.wish === 'parked' || parking.wish === 'suspended';
      const isAsked = isLeaving || isWished || entry.isNeeded;
      return isAsked ? askAgain(podId, parking, 'ready') : [];
    }
    // It could not be suspended and was asked to go on, or its attempts have ended before.
    const isOver = parking.wish === 'ready' || !parking.attempts;
    if (entry.leaves === 'suspended' && parking.state === 'ready' && isOver) {
      entry.parkingSince = null;
      return parking.wish === 'suspended' ? askAgain(podId, parking, 'ready') : [];
    }
    if (parking.state !== 'parked') return askAgain(podId, parking, entry.leaves);
    const bytes = Math.min(parking.vramBytes, gpuMemoryOf(pod));
    if (bytes > 0) this.#parkedBytes = bytes;
    const parked = { since: entry.parkingSince, bytes, way: parking.way };
    return [{ podId, step: 'left', parked }];
  }

  #judgeEnd(
    pod: PodState,
    entry: WorkerEntry,
    circumstances: PassInput & Pick<EndInput, 'worker'>,
  ): EndedWorker | undefined {
    const { drainingSince } = entry;
    const { silentMs } = this.#options;
    const reason =
      drainingSince === null
        ? (findParkingEnd(pod, entry, circumstances) ??
          findEnd(pod, entry, { ...circumstances, ...this.#options }))
        : findDrainEnd(
            pod,
            { drainingSince, seenAt: entry.seenAt },
            { ...circumstances, silentMs },
          );
    if (reason === undefined) return undefined;
    const isBlameless =
      drainingSince !== null ||
      pod.parked !== undefined ||
      entry.parkingSince !== null ||
      (pod.spare === true && entry.seenAt !== null) ||
      entry.wakingSince !== null ||
      pod.unreachable !== undefined ||
      isWithoutGpu(pod) ||
      circumstances.isMovable?.(pod) === true ||
      reasonOfUser(pod) !== null ||
      (entry.isAdopted && isClean(pod));
    return { podId: pod.id, reason, isCrash: !isBlameless };
  }

  #forget(pods: readonly PodState[]): void {
    const ids = new Set(pods.map(({ id }) => id));
    for (const id of this.#entries.keys()) if (!ids.has(id)) this.#entries.delete(id);
  }
}

function askAgain(
  podId: string,
  { wish: asked }: NonNullable<SeenWorker['parking']>,
  wish: ParkWish,
): ParkingStep[] {
  return asked === wish ? [] : [{ podId, step: 'wish', wish }];
}

function mayBeParked(
  pod: PodState,
  { drainingSince, parkingSince }: WorkerEntry,
  seen: SeenWorker | undefined,
): boolean {
  const isOn = drainingSince === null && parkingSince === null && !pod.parked;
  const { hostLimitBytes = 0, state } = seen?.parking ?? {};
  return isOn && state === 'ready' && hostLimitBytes > 0 && pod.gpus.length > 0;
}

function stateOf(
  pod: PodState,
  { drainingSince, isEnded, isNeeded, leaves, parkingSince, wakingSince }: WorkerEntry,
  seen: SeenWorker | undefined,
): ScaledWorker['state'] {
  if (pod.status === 'TERMINATED' || isEnded || drainingSince !== null) return 'draining';
  if (seen?.draining) return 'draining';
  if (wakingSince !== null) return 'starting';
  if (isParked(pod)) return seen?.parking?.suspendedSince === undefined ? 'parked' : 'suspended';
  if (parkingSince !== null) return leaves;
  if (pod.spare) return 'parked';
  const isReady = seen && !(isNeeded && seen.parking && seen.parking.state !== 'ready');
  return isReady ? 'ready' : 'starting';
}

/** Sums up the workers of a pod: it has one for each device set. */
function addUp(all: readonly SeenWorker[], podId: string): SeenWorker | undefined {
  const own = all.filter((worker) => worker.podId === podId);
  if (own.length === 0) return undefined;
  return {
    podId,
    jobs: own.reduce((sum, { jobs }) => sum + jobs, 0),
    taken: own.reduce((sum, { taken = 0 }) => sum + taken, 0),
    busyUntil: Math.max(...own.map(({ busyUntil = 0 }) => busyUntil)),
    draining: own.every(({ draining }) => draining),
    // A pod with several workers is not parked: they would have to move together.
    ...(own.length === 1 && own[0]?.parking && { parking: own[0].parking }),
  };
}
