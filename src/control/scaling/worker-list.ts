// What is known of an endpoint's workers from one look to the next: who was ready, who has had nothing
// to do since when, who was told to leave, who ended too early. In memory: a platform that is started
// again takes over the workers that it finds, and learns the rest by looking.

import type { ScaledWorker, ScalerInput } from '../../wire/resources/decision.ts';
import type { EndpointType } from '../../wire/resources/endpoint.ts';
import { reasonOfUser } from '../pods/pod-lifecycle.ts';
import type { PodState } from '../pods/pod-state.ts';
import type { SeenWorker } from './work-view.ts';

/** After a worker that ended too early; twice as long after the next, and so on up to MAX_PAUSE_MS. */
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;
/** A container that runs for so long without a ready worker in it never will have one. */
const START_LIMIT_MS = 15 * 60_000;
/** A pod that waits so long for a GPU is given up: there may be one of another type. */
const GPU_LIMIT_MS = 10_000;
/** Beyond the execution timeout of what a draining worker may still have. */
const DRAIN_SLACK_MS = 60_000;

export type Crashes = ScalerInput['crashes'];

const NO_CRASHES: Crashes = { streak: 0, notBefore: 0, reason: null };

export interface RosterOptions {
  /** Pods that were made before were another run's: what became of them until now is not known. */
  openedAt: number;
  /** A worker that was ready and is not to be seen for so long is dead, ms. */
  silentMs: number;
  /** As the last run left it. */
  crashes: Crashes | undefined;
}

export interface RosterLook {
  now: number;
  type: EndpointType;
  executionTimeoutMs: number;
  pods: readonly PodState[];
  seen: readonly SeenWorker[];
  isCurrent: (pod: PodState) => boolean;
}

export interface Sighting {
  workers: ScaledWorker[];
  /** Pods whose container has to go. */
  ended: EndedWorker[];
  /** Workers that were told to leave and do not know it: their process is a new one. */
  undrained: string[];
}

export interface EndedWorker {
  podId: string;
  /** What became of it. */
  reason: string;
  isCrash: boolean;
}

interface Entry {
  readonly podId: string;
  readonly isAdopted: boolean;
  /** When it was first looked at. */
  readonly since: number;
  /** When its worker was last seen; null: never. */
  seenAt: number | null;
  idleSince: number | null;
  taken: number;
  drainingSince: number | null;
  isEnded: boolean;
}

export class Roster {
  readonly #options: RosterOptions;
  readonly #entries = new Map<string, Entry>();
  #crashes: Crashes;

  constructor(options: RosterOptions) {
    this.#options = options;
    this.#crashes = options.crashes ?? NO_CRASHES;
  }

  get crashes(): Crashes {
    return this.#crashes;
  }

  look(look: RosterLook): Sighting {
    const sighting: Sighting = { workers: [], ended: [], undrained: [] };
    this.#forget(look.pods);
    for (const pod of look.pods) this.#lookAt(pod, look, sighting);
    return sighting;
  }

  noteDrained(podId: string, now: number): void {
    const entry = this.#entries.get(podId);
    if (entry) entry.drainingSince ??= now;
  }

  /** One ended, or could not even be made, without having been of use; `streak` of them in a row. */
  noteCrash(reason: string, now: number, streak = this.#crashes.streak + 1): void {
    const pauseMs = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(streak - 1, 30));
    this.#crashes = { streak, notBefore: now + pauseMs, reason };
  }

  /** What is known besides of how the last one ended. */
  explainCrash(reason: string): void {
    this.#crashes = { ...this.#crashes, reason };
  }

  /** What workers are made from is not what it was: they may be better. */
  forgiveCrashes(): void {
    this.#crashes = NO_CRASHES;
  }

  #lookAt(pod: PodState, look: RosterLook, sighting: Sighting): void {
    const entry = this.#entryOf(pod, look.now);
    const seen = addUp(look.seen, pod.id);
    this.#noteSeen(entry, seen, look.now);
    const end = entry.isEnded ? undefined : this.#judgeEnd(pod, entry, { ...look, worker: seen });
    if (end) {
      entry.isEnded = true;
      sighting.ended.push(end);
      if (end.isCrash) {
        this.noteCrash(end.reason, look.now, entry.seenAt === null ? undefined : 1);
      }
    } else if (entry.drainingSince !== null && seen?.draining === false) {
      sighting.undrained.push(pod.id);
    }
    const reason = reasonOfUser(pod);
    sighting.workers.push({
      id: pod.id,
      state: stateOf(pod, entry, seen),
      jobs: seen?.jobs ?? 0,
      idleSince: entry.idleSince,
      isCurrent: look.isCurrent(pod),
      ...(reason !== null && { reason }),
    });
  }

  #entryOf({ createdAt, id }: PodState, now: number): Entry {
    const known = this.#entries.get(id);
    if (known) return known;
    const isAdopted = createdAt < this.#options.openedAt;
    const unseen = { seenAt: null, idleSince: null, taken: 0, drainingSince: null, isEnded: false };
    const entry = { podId: id, isAdopted, since: now, ...unseen };
    this.#entries.set(id, entry);
    return entry;
  }

  #noteSeen(entry: Entry, seen: SeenWorker | undefined, now: number): void {
    if (!seen) {
      entry.idleSince = null;
      return;
    }
    if (entry.seenAt === null) this.#crashes = NO_CRASHES;
    entry.seenAt = now;
    const taken = seen.taken ?? entry.taken;
    const wasIdle = seen.jobs === 0 && taken === entry.taken;
    entry.taken = taken;
    if (seen.jobs > 0) entry.idleSince = null;
    else if (!wasIdle || entry.idleSince === null) entry.idleSince = now;
  }

  #judgeEnd(pod: PodState, entry: Entry, circumstances: Circumstances): EndedWorker | undefined {
    const { drainingSince } = entry;
    const reason =
      drainingSince === null
        ? findEnd(pod, entry, { ...circumstances, silentMs: this.#options.silentMs })
        : findFarewell(pod, drainingSince, circumstances);
    if (reason === undefined) return undefined;
    const isBlameless =
      drainingSince !== null ||
      isWithoutGpu(pod) ||
      reasonOfUser(pod) !== null ||
      (entry.isAdopted && isClean(pod));
    return { podId: pod.id, reason, isCrash: !isBlameless };
  }

  #forget(pods: readonly PodState[]): void {
    const ids = new Set(pods.map(({ id }) => id));
    for (const id of this.#entries.keys()) if (!ids.has(id)) this.#entries.delete(id);
  }
}

interface Circumstances extends RosterLook {
  worker: SeenWorker | undefined;
}

/** Why a worker that was to stay has to go; undefined if it has not. */
function findEnd(
  pod: PodState,
  { seenAt, since }: Entry,
  { now, silentMs }: Circumstances & Pick<RosterOptions, 'silentMs'>,
): string | undefined {
  if (pod.status === 'TERMINATED') return undefined;
  if (pod.status === 'EXITED') return reasonOfUser(pod) ?? 'it left by itself';
  // A container that ended badly would be started again; another worker, with a pause, is better.
  if (pod.status === 'ERROR' || pod.retryAt !== null) return describeFailure(pod);
  if (isWithoutGpu(pod)) {
    return now - since >= GPU_LIMIT_MS ? 'no GPU became free for it' : undefined;
  }
  if (pod.startedAt === null) return undefined;
  if (seenAt !== null) return now - seenAt >= silentMs ? 'it was not heard of any more' : undefined;
  const runsSince = Math.max(pod.startedAt, since);
  return now - runsSince >= START_LIMIT_MS ? 'it did not become ready' : undefined;
}

/** Of one that was told to leave. */
function findFarewell(
  { status }: PodState,
  drainingSince: number,
  { executionTimeoutMs, now, type, worker }: Circumstances,
): string | undefined {
  if (status === 'TERMINATED') return undefined;
  if (status === 'EXITED' || status === 'ERROR') return 'it left as it was told';
  // Nothing tells a plain server that it may leave.
  if (type === 'LOAD_BALANCER' && (worker?.jobs ?? 0) === 0) return 'its last request has ended';
  // Each job has a limit of its own, which may be longer than the endpoint's.
  const mayRunUntil = Math.max(drainingSince + executionTimeoutMs, worker?.busyUntil ?? 0);
  const isOverdue = now >= mayRunUntil + DRAIN_SLACK_MS;
  return isOverdue ? 'it did not leave in time' : undefined;
}

function isWithoutGpu({ gpus, spec, status }: PodState): boolean {
  return status === 'PROVISIONING' && spec.gpu !== undefined && gpus.length === 0;
}

function isClean({ status }: PodState): boolean {
  return status === 'EXITED';
}

/** The pod's own words, without what it means to do about it. */
function describeFailure({ reason }: PodState): string {
  return reason?.split(';')[0] ?? 'it ended';
}

function stateOf(
  { status }: PodState,
  { drainingSince, isEnded }: Entry,
  seen: SeenWorker | undefined,
): ScaledWorker['state'] {
  if (status === 'TERMINATED' || isEnded || drainingSince !== null) return 'draining';
  if (seen?.draining) return 'draining';
  return seen ? 'ready' : 'starting';
}

/** A pod can hold several workers, one for each set of its devices. */
function addUp(all: readonly SeenWorker[], podId: string): SeenWorker | undefined {
  const own = all.filter((worker) => worker.podId === podId);
  if (own.length === 0) return undefined;
  return {
    podId,
    jobs: own.reduce((sum, { jobs }) => sum + jobs, 0),
    taken: own.reduce((sum, { taken = 0 }) => sum + taken, 0),
    busyUntil: Math.max(...own.map(({ busyUntil = 0 }) => busyUntil)),
    draining: own.every(({ draining }) => draining),
  };
}
