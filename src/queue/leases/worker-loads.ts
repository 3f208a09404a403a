// Reports the load and the workers of an endpoint, for scaling decisions.
import {
  ENDING,
  numberGpuType,
  type OutgrownLoad,
  type StoredEndpoint,
  type StoredJob,
} from '../../store/store.ts';
import type { GpuUsage } from '../../wire/job/attempt.ts';
import type { ParkingState, WorkerParking, WorkerStart } from '../../wire/link/worker-link.ts';
import type { QueueParts } from '../queue-parts.ts';
import type { Signals } from '../signals.ts';
import { type HeldLease, listLaterTypes, type ParkWish, type PresentWorker } from './presence.ts';

/** Upper bound of the count: no endpoint has so many workers. */
const MAX_READY = 10_000;
/** Of an endpoint with limits, jobs are counted one by one up to this number; more are as many as wait. */
const MAX_TAKEABLE = 256;
/** The search writes nothing; a full disk must not stop it. */
const LATER = { ...ENDING, onDisk: 'later' } as const;
const MS_PER_S = 1_000;
/** Jobs that are looked at for urgent ones. */
const MAX_URGENT = 16;
/** A worker that could not be suspended is not asked again for so long, ms. */
const REFUSAL_MS = 60_000;
/** A worker that has not renewed so long after its arrival is not waited for, ms. */
const NEW_MS = 5_000;

export interface QueueLoad {
  /** Jobs that a worker could take now, within their limits. If some jobs are delayed, the count ends at MAX_READY. */
  waiting: number;
  running: number;
  /** When the oldest waiting job was queued, Unix ms. */
  oldestQueuedAt: number | null;
  /** Those of the waiting jobs that only workers of a later GPU type may take. Absent: none. */
  outgrown?: OutgrownJobs[];
  /** Those of the waiting jobs whose priority is above the endpoint's bound, up to 16. Absent: none. */
  urgent?: { priority: number; waiting: number };
  /** What ended attempts used of GPUs since the queue began to count, GPUs × ms. Absent: nothing. */
  gpuCount?: { since: number; ms: number };
  /** Workers that have called within a lease. */
  workers: WorkerLoad[];
}

type JobCounts = Omit<QueueLoad, 'workers' | 'gpuCount'>;

/** Jobs that ran out of memory on a GPU type of the endpoint, and need a later one of its list. */
export interface OutgrownJobs {
  gpuType: string;
  /** Exact up to 1,000. */
  waiting: number;
  /** When about the oldest was queued, Unix ms. */
  oldestQueuedAt: number;
}

export interface WorkerLoad {
  id: string;
  /** The worker's pod; null if it is not the platform's. */
  podId: string | null;
  /** Leases that it holds, without expired ones. */
  jobs: number;
  /** Leases given so far: a change shows that the worker had work. */
  taken: number;
  /** When the last of its attempts must end, Unix ms; 0 without attempts. */
  busyUntil: number;
  draining: boolean;
  /** It has just arrived, or the platform has just started: it may still say that it can be parked. */
  isNew?: true;
  /** Its last start, if it was measured. */
  start?: WorkerStart;
  /** Absent: it cannot be parked. */
  parking?: {
    way: WorkerParking['way'];
    state: ParkingState;
    vramBytes: number;
    hostLimitBytes: number;
    wish?: ParkWish;
    /** Its attempts could be suspended now. */
    canSuspend?: true;
    /** Of its attempts: the highest priority, the first start (Unix ms), and how often and how long one was suspended at most. */
    attempts?: { priority: number; startedAt: number; suspensions: number; suspendedMs: number };
    /** Since when its attempts stand still, Unix ms. */
    suspendedSince?: number;
  };
}

type WorkerLoadsOptions = Pick<
  QueueParts,
  'clock' | 'gpuTotals' | 'limits' | 'pauses' | 'presence' | 'settings' | 'signals' | 'store'
>;

export class WorkerLoads {
  readonly #options: WorkerLoadsOptions;

  constructor(options: WorkerLoadsOptions) {
    this.#options = options;
  }

  /** Without the jobs that a pause or a limit holds back. An unknown endpoint has no load. */
  async load(endpointId: string): Promise<QueueLoad> {
    const counts = await this.#count(endpointId);
    const now = this.#options.clock.now();
    const workers = this.#listWorkers(endpointId).map((worker) => describe(worker, now));
    return { ...counts, ...this.#countGpus(endpointId), workers };
  }

  /** When the job that has waited longest was queued, Unix ms; null if none waits. */
  oldestQueuedAt(endpointId: string): Promise<number | null> {
    return this.#options.store.read((tx) => {
      const endpoint = tx.endpoint(endpointId);
      if (!endpoint?.inQueue) return null;
      const apart = endpoint.deployment === null ? [] : tx.outgrownLoads(endpointId);
      return addUp(apart, 0, tx.oldestQueuedAt(endpointId), endpoint).oldestQueuedAt;
    });
  }

  async #count(endpointId: string): Promise<JobCounts> {
    const { clock, limits, pauses, store } = this.#options;
    const isPaused = pauses.find({ endpointId, group: null }) !== undefined;
    const { counts, endpoint, isLimited } = await store.read((tx) => {
      const endpoint = tx.endpoint(endpointId);
      if (!endpoint?.inQueue || isPaused) {
        return { counts: addUp([], 0, undefined, endpoint), endpoint, isLimited: false };
      }
      const oldest = tx.oldestQueuedAt(endpointId);
      const ready = oldest === undefined ? 0 : tx.countReady(endpointId, MAX_READY);
      const apart = endpoint.deployment === null ? [] : tx.outgrownLoads(endpointId);
      const isLimited = ready > 0 && limits.concerns(endpoint);
      const counts = addUp(apart, ready, oldest, endpoint);
      if (isLimited || !hasUrgent(endpoint)) return { counts, endpoint, isLimited };
      const urgent = nameUrgent(endpoint, tx.readyJobs(endpointId, MAX_URGENT));
      return { counts: { ...counts, ...urgent }, endpoint, isLimited };
    });
    if (!isLimited) return counts;
    // A search changes what is in memory, as a take does.
    const { hasMore, jobs } = await store.write(
      (tx) =>
        limits.find(tx, { endpointId, gpuType: null }, { limit: MAX_TAKEABLE, now: clock.now() }),
      LATER,
    );
    const urgent = nameUrgent(endpoint, jobs.slice(0, MAX_URGENT));
    if (hasMore || jobs.length === MAX_TAKEABLE) return { ...counts, ...urgent };
    const times = [...jobs, ...(counts.outgrown ?? [])].map((job) =>
      'queuedAt' in job ? job.queuedAt : job.oldestQueuedAt,
    );
    const apart = sum((counts.outgrown ?? []).map(({ waiting }) => waiting));
    const oldestQueuedAt = times.length === 0 ? null : Math.min(...times);
    return { ...counts, waiting: jobs.length + apart, oldestQueuedAt, ...urgent };
  }

  /** Whether a worker has said hello and has neither left nor been forgotten. */
  isPresent(endpointId: string, workerId: string): boolean {
    return this.#options.presence.find(endpointId, workerId) !== undefined;
  }

  /** Drains the workers of a pod: one, or one for each device set. */
  drain(endpointId: string, podId: string): void {
    const { signals } = this.#options;
    for (const worker of this.ofPod(endpointId, podId)) drainWorker(worker, signals);
  }

  /** Workers of a pod are to be parked, suspended, or ready again. Has no effect on those that cannot be. */
  park(endpointId: string, podId: string, wish: ParkWish): void {
    const { signals } = this.#options;
    for (const worker of this.ofPod(endpointId, podId)) {
      if (!worker.parking || worker.parkWish === wish) continue;
      if (wish === 'suspended' && !worker.parking.suspendable) continue;
      worker.parkWish = wish;
      signals.callWorker(endpointId, worker.id);
      // Its open take ends: until then it does not park.
      signals.wakeTakers(endpointId);
    }
  }

  ofPod(endpointId: string, podId: string): PresentWorker[] {
    return [...this.#options.presence.ofEndpoint(endpointId)].filter(
      (worker) => worker.podId === podId,
    );
  }

  /** All workers that have said hello, whether they still call or not. */
  listPresent(): Pick<PresentWorker, 'endpointId' | 'podId'>[] {
    return [...this.#options.presence.all()].map(({ endpointId, podId }) => ({
      endpointId,
      podId,
    }));
  }

  /**
   * Calls the listener with each endpoint that gets a ready job. @returns the function that stops
   * it
   */
  onWork(listener: (endpointId: string) => void): () => void {
    return this.#options.signals.onWork(listener);
  }

  #countGpus(endpointId: string): Pick<QueueLoad, 'gpuCount'> {
    const { gpuTotals } = this.#options;
    const seconds = gpuTotals.all.get(endpointId)?.seconds ?? 0;
    if (seconds === 0) return {};
    return { gpuCount: { since: gpuTotals.since, ms: Math.round(seconds * MS_PER_S) } };
  }

  #listWorkers(endpointId: string): PresentWorker[] {
    const { clock, presence, settings } = this.#options;
    const aliveSince = clock.now() - settings.leaseMs;
    return [...presence.ofEndpoint(endpointId)].filter(({ seenAt }) => seenAt >= aliveSince);
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

function addUp(
  apart: readonly OutgrownLoad[],
  ready: number,
  oldest: number | undefined,
  endpoint: StoredEndpoint | undefined,
): JobCounts {
  const times = [
    ...apart.map(({ oldestQueuedAt }) => oldestQueuedAt),
    ...(oldest === undefined ? [] : [oldest]),
  ];
  const outgrown = nameTypes(apart, endpoint?.deployment ?? null);
  return {
    waiting: ready + sum(apart.map(({ waiting }) => waiting)),
    running: endpoint?.inProgress ?? 0,
    oldestQueuedAt: times.length === 0 ? null : Math.min(...times),
    ...(outgrown.length > 0 && { outgrown }),
  };
}

function hasUrgent({ deployment }: StoredEndpoint): boolean {
  // An endpoint of an earlier version has no bound.
  return (deployment?.preemptAbovePriority ?? null) !== null;
}

/** `jobs`: the best first. */
function nameUrgent(
  endpoint: StoredEndpoint | undefined,
  jobs: readonly Pick<StoredJob, 'priority'>[],
): Pick<QueueLoad, 'urgent'> {
  const bound = endpoint?.deployment?.preemptAbovePriority ?? null;
  const urgent = bound === null ? [] : jobs.filter(({ priority }) => priority > bound);
  const [first] = urgent;
  return first ? { urgent: { priority: first.priority, waiting: urgent.length } } : {};
}

/** The attempts that have not ended. */
function summarize(leases: Iterable<HeldLease>) {
  const runs = [...leases].flatMap(({ delivering, run }) =>
    delivering || run.status !== 'IN_PROGRESS' ? [] : run,
  );
  if (runs.length === 0) return {};
  const since = runs.flatMap(({ suspendedAt }) => suspendedAt ?? []);
  return {
    attempts: {
      priority: Math.max(...runs.map(({ priority }) => priority)),
      startedAt: Math.min(...runs.map(({ startedAt }) => startedAt ?? 0)),
      suspensions: Math.max(...runs.map(({ suspensions }) => suspensions)),
      suspendedMs: Math.max(...runs.map(({ suspendedMs }) => suspendedMs)),
    },
    ...(since.length > 0 && { suspendedSince: Math.min(...since) }),
  };
}

/** Without jobs that any worker may take, because the endpoint has no later type. */
function nameTypes(
  apart: readonly OutgrownLoad[],
  deployment: StoredEndpoint['deployment'],
): OutgrownJobs[] {
  return (deployment?.gpuTypeIds ?? []).flatMap((gpuType) => {
    const load = apart.find((each) => each.gpuType === numberGpuType(gpuType));
    return load && listLaterTypes(deployment, gpuType).length > 0 ? [{ ...load, gpuType }] : [];
  });
}

export function drainWorker(worker: PresentWorker, signals: Signals): void {
  worker.draining = true;
  worker.drainSent = false;
  signals.callWorker(worker.endpointId, worker.id);
  // Its open take would consume the wake-up of a job that it does not get.
  signals.wakeTakers(worker.endpointId);
}

function describe(worker: PresentWorker, now: number): WorkerLoad {
  const { arrivedAt, draining, hasRenewed, id, leases, parking, parkWish, podId, start, taken } =
    worker;
  // A worker that runs a job renews its lease: an expired one may have been lost on the way to the worker.
  const held = [...leases.values()].filter(({ lost }) => !lost);
  const busyUntil = Math.max(0, ...held.map(({ deadlineAt }) => deadlineAt));
  const isNew = !hasRenewed && now - arrivedAt < NEW_MS && { isNew: true as const };
  const load = {
    ...{ id, podId, jobs: held.length, taken, busyUntil, draining, ...isNew },
    ...(start && { start }),
  };
  if (!parking) return load;
  const { hostLimitBytes, state, suspendable, vramBytes, way } = parking;
  const wish = parkWish !== undefined && { wish: parkWish };
  const hasRefused = worker.refusedAt !== undefined && now - worker.refusedAt < REFUSAL_MS;
  const able = suspendable && !hasRefused && { canSuspend: true as const };
  const attempts = summarize(held);
  return {
    ...load,
    parking: { way, state, vramBytes, hostLimitBytes, ...wish, ...able, ...attempts },
  };
}

export interface GpuTotal {
  seconds: number;
  /** Only of attempts whose worker measured it. */
  energyJoules: number;
}

export class GpuTotals {
  /** When counting began, Unix ms. */
  readonly since: number;
  readonly #totals = new Map<string, GpuTotal>();

  constructor(now: number) {
    this.since = now;
  }

  /** By endpoint; without endpoints that have used none. */
  get all(): ReadonlyMap<string, Readonly<GpuTotal>> {
    return this.#totals;
  }

  add(endpointId: string, { energyJoules = 0, seconds }: GpuUsage): void {
    const total = this.#totals.get(endpointId) ?? { seconds: 0, energyJoules: 0 };
    total.seconds += seconds;
    total.energyJoules += energyJoules;
    this.#totals.set(endpointId, total);
  }

  /** Call this after the endpoint's row was removed. */
  forgetEndpoint(endpointId: string): void {
    this.#totals.delete(endpointId);
  }
}
