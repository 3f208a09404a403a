// The connected workers, the leases that each one holds, and the GPU types that may take a job. In memory, rebuilt from the
// store at start.
import {
  type JobKey,
  type JobNote,
  numberGpuType,
  type StoredJob,
  type StoredWorker,
} from '../../store/store.ts';
import type { RetryPolicy } from '../../wire/job/retry-policy.ts';
import {
  type Device,
  LinkError,
  type RenewReply,
  type WorkerParking,
  type WorkerStart,
} from '../../wire/link/worker-link.ts';
import type { EndpointDeployment } from '../../wire/resources/endpoint.ts';

export interface HeldLease extends JobKey {
  token: string;
  takeId: string;
  solo: boolean;
  /** The outcome is in the worker's outbox; the worker does not name the lease as held. */
  delivering: boolean;
  /** The lease has expired, and no other worker has taken the job yet. */
  lost: boolean;
  /** When the queue ends the attempt, Unix ms; 0 if it has ended. */
  deadlineAt: number;
  run: HeldRun;
}

/** What a suspension of the attempt depends on. */
export type HeldRun = Pick<
  StoredJob,
  'priority' | 'startedAt' | 'status' | 'suspendedAt' | 'suspendedMs' | 'suspensions'
>;

export interface PresentWorker {
  endpointId: string;
  id: string;
  /** The pod of the worker's key; null without one. */
  podId: string | null;
  incarnation: number;
  slots: number;
  /** Type of its GPUs; null if unknown. */
  gpuType: string | null;
  /** Its GPUs, or parts of GPUs. */
  gpuCount: number;
  /** Retry policy of its handler. */
  retry: RetryPolicy | null;
  /** Version from its hello. */
  version: string;
  /** Time of its last call, Unix ms. */
  seenAt: number;
  draining: boolean;
  /** A renewal has answered `drain: true`; later renewals can wait as usual. */
  drainSent: boolean;
  /** When it said hello, or the platform started, Unix ms. */
  arrivedAt: number;
  /** It has renewed since then: it has said whether it can be parked. */
  hasRenewed: boolean;
  /** What it last said of its parking; undefined: it cannot be parked. */
  parking: WorkerParking | undefined;
  /** What it should become. */
  parkWish: ParkWish | undefined;
  /** When it last said that it could not be suspended, Unix ms. */
  refusedAt: number | undefined;
  /** The wish that the last renewal has answered. */
  parkWishSent: ParkWish | undefined;
  /** When it began to wake, Unix ms; undefined: it does not wake. */
  wakingSince: number | undefined;
  /** The last measured start. */
  start: WorkerStart | undefined;
  /** For the timeline of the jobs that have waited for it: its start, or its wake. */
  arrival: Arrival | undefined;
  /** Leases by token, including kept leases of ended jobs. */
  leases: Map<string, HeldLease>;
  /** Leases given since its hello. */
  taken: number;
  /** Number of its newest take since its hello; 0 before the first. */
  takeSeq: number;
  /** Ends the open take when a newer one arrives. */
  openTake: AbortController | undefined;
}

/** `taken`: leases given before it. */
export type Arrival = Pick<JobNote, 'at' | 'bytes' | 'start' | 'waitedMs' | 'way'> & {
  event: 'worker_started' | 'worker_woken';
  taken: number;
};

export type ParkWish = NonNullable<RenewReply['parking']>;

/** It is parked, or on the way to it or back: it gets no jobs. */
export function isHeldBack({
  parking,
  parkWish,
}: Partial<Pick<PresentWorker, 'parking' | 'parkWish'>>): boolean {
  const isAsked = parkWish === 'parked' || parkWish === 'suspended';
  return isAsked || (parking !== undefined && parking.state !== 'ready');
}

/** What the job that the worker takes now has waited for. */
export function findArrival(
  { arrival, slots, taken }: Pick<PresentWorker, 'arrival' | 'slots' | 'taken'>,
  { queuedAt }: Pick<StoredJob, 'queuedAt'>,
): Omit<Arrival, 'taken'> | undefined {
  if (!arrival || arrival.at < queuedAt || taken - arrival.taken >= slots) return undefined;
  const { taken: _taken, ...note } = arrival;
  return note;
}

export class Presence {
  /** By endpoint, then by ID. */
  readonly #workers = new Map<string, Map<string, PresentWorker>>();
  /** The worker that finishes its other jobs first, by job that must run alone. */
  readonly #emptying = new Map<string, PresentWorker>();

  /**
   * Adds the worker or its new incarnation. From the old incarnation, only leases remain whose
   * outcome the new incarnation will deliver.
   */
  arrive(
    worker: StoredWorker,
    now: number,
    { delivering = [], start }: { delivering?: StoredJob[]; start?: WorkerStart | undefined } = {},
  ): PresentWorker {
    const before = this.find(worker.endpointId, worker.id);
    before?.openTake?.abort();
    const again = before?.incarnation === worker.incarnation ? before : undefined;
    const present: PresentWorker = {
      endpointId: worker.endpointId,
      id: worker.id,
      podId: worker.podId,
      incarnation: worker.incarnation,
      slots: worker.slots,
      gpuType: findGpuType(worker.devices),
      gpuCount: worker.devices.filter(({ kind }) => kind === 'gpu').length,
      retry: worker.retry,
      version: worker.version,
      seenAt: now,
      draining: again?.draining ?? false,
      drainSent: false,
      arrivedAt: now,
      hasRenewed: again?.hasRenewed ?? false,
      parking: again ? again.parking : restart(before?.parking),
      parkWish: again?.parkWish,
      refusedAt: again?.refusedAt,
      parkWishSent: undefined,
      wakingSince: undefined,
      start,
      arrival: describeStart(start, now),
      leases: before?.leases ?? new Map(),
      taken: 0,
      takeSeq: 0,
      openTake: undefined,
    };
    const ofEndpoint = this.#workers.get(worker.endpointId) ?? new Map<string, PresentWorker>();
    this.#workers.set(worker.endpointId, ofEndpoint.set(worker.id, present));
    for (const job of delivering) hold(present, job, { delivering: true });
    return present;
  }

  leave(worker: PresentWorker): void {
    worker.openTake?.abort();
    // A new incarnation may have arrived meanwhile.
    if (this.find(worker.endpointId, worker.id) !== worker) return;
    const ofEndpoint = this.#workers.get(worker.endpointId);
    ofEndpoint?.delete(worker.id);
    if (ofEndpoint?.size === 0) this.#workers.delete(worker.endpointId);
  }

  find(endpointId: string, workerId: string): PresentWorker | undefined {
    return this.#workers.get(endpointId)?.get(workerId);
  }

  /** Returns the worker of a call. @throws LinkError `unknown_worker`, `stale_incarnation` */
  require(endpointId: string, caller: { workerId: string; incarnation: number }): PresentWorker {
    const worker = this.find(endpointId, caller.workerId);
    if (!worker || caller.incarnation > worker.incarnation) {
      throw new LinkError('unknown_worker', `worker ${caller.workerId} has not said hello`);
    }
    if (caller.incarnation < worker.incarnation) {
      throw new LinkError(
        'stale_incarnation',
        `worker ${caller.workerId} runs as incarnation ${worker.incarnation}, this is ${caller.incarnation}`,
      );
    }
    return worker;
  }

  *all(): Iterable<PresentWorker> {
    for (const ofEndpoint of this.#workers.values()) yield* ofEndpoint.values();
  }

  ofEndpoint(endpointId: string): Iterable<PresentWorker> {
    return this.#workers.get(endpointId)?.values() ?? [];
  }

  /**
   * Updates the workers' leases after a change of a job. Returns true if a barred worker may take
   * again: the worker has become empty for a job that must run alone, or such a job has started or
   * ended.
   */
  jobChanged(before: StoredJob | undefined, after: StoredJob | undefined): boolean {
    const old = before?.lease;
    const fresh = after?.lease;
    let freed = false;
    if (before?.solo && after?.status !== 'IN_QUEUE') {
      freed = this.#emptying.delete(nameOf(before.endpointId, before.id));
    }
    if (old?.token === fresh?.token) {
      const same = after && fresh && this.find(after.endpointId, fresh.workerId);
      const lease = same?.leases.get(fresh?.token ?? '');
      if (lease && fresh) {
        lease.lost = fresh.lost !== null;
        if (after.suspendedMs !== lease.run.suspendedMs) lease.deadlineAt = after.deadlineAt ?? 0;
        lease.run = describeRun(after);
      }
      return freed;
    }
    const worker = before && old && this.find(before.endpointId, old.workerId);
    const ended = worker?.leases.get(old?.token ?? '');
    if (worker && ended) {
      worker.leases.delete(ended.token);
      freed ||= ended.solo || (worker.leases.size === 0 && this.#emptying.size > 0);
    }
    const holder = after && fresh && this.find(after.endpointId, fresh.workerId);
    if (holder) {
      holder.taken++;
      hold(holder, after, { delivering: false });
    }
    return freed;
  }

  /** Number of jobs that wait for one chosen worker; the other workers must skip them. */
  get claimedCount(): number {
    return this.#emptying.size;
  }

  /**
   * Whether the worker may run a job that must run alone: `now` if the worker holds no lease. The
   * first busy worker that could take the job is chosen and takes no other job until it is empty;
   * other busy workers skip the job while the chosen worker is alive.
   */
  claimSolo(
    worker: PresentWorker,
    job: StoredJob,
    aliveSince: number,
  ): 'now' | 'when_empty' | 'someone_else' {
    const name = nameOf(job.endpointId, job.id);
    const chosen = this.#emptying.get(name);
    const chosenIsThere =
      chosen !== undefined &&
      !chosen.draining &&
      chosen.seenAt >= aliveSince &&
      this.find(chosen.endpointId, chosen.id) === chosen;
    if (worker.leases.size === 0) return 'now';
    if (chosenIsThere && chosen !== worker) return 'someone_else';
    this.#emptying.set(name, worker);
    return 'when_empty';
  }
}

/** No job has waited for a model process that started later than its worker. */
function describeStart(start: WorkerStart | undefined, now: number): Arrival | undefined {
  if (start?.of !== 'worker') return undefined;
  // The clock of its machine may be ahead.
  return { at: Math.min(now, start.at), event: 'worker_started', start: start.parts, taken: 0 };
}

/** A new process has its models on the GPU, whatever the one before had done. */
function restart(parking: WorkerParking | undefined): WorkerParking | undefined {
  if (!parking) return undefined;
  const { hostLimitBytes, way } = parking;
  return { way, hostLimitBytes, state: 'ready', change: 0, vramBytes: 0 };
}

function describeRun(job: StoredJob): HeldRun {
  const { priority, startedAt, status, suspendedAt, suspendedMs, suspensions } = job;
  return { priority, startedAt, status, suspendedAt, suspendedMs, suspensions };
}

function hold(
  worker: PresentWorker,
  job: StoredJob,
  { delivering }: { delivering: boolean },
): void {
  const { deadlineAt, endpointId, id, lease, solo } = job;
  if (!lease) return;
  const { takeId, token } = lease;
  const lost = lease.lost !== null;
  const held = { endpointId, id, token, takeId, solo, delivering, lost };
  worker.leases.set(token, { ...held, deadlineAt: deadlineAt ?? 0, run: describeRun(job) });
}

function nameOf(endpointId: string, id: string): string {
  return `${endpointId}/${id}`;
}

type Deployment = Pick<EndpointDeployment, 'gpuTypeIds' | 'retryOutOfMemoryOn'>;

/** The type of a worker's GPUs as the platform names it; null without one. */
export function findGpuType(devices: readonly Device[]): string | null {
  return devices.find(({ gpuTypeId }) => gpuTypeId !== undefined)?.gpuTypeId ?? null;
}

/** The endpoint's types after this one, in its order. None unless the endpoint asks for the next type. */
export function listLaterTypes(deployment: Deployment | null, gpuType: string | null): string[] {
  if (deployment?.retryOutOfMemoryOn !== 'NEXT_GPU_TYPE' || gpuType === null) return [];
  const index = deployment.gpuTypeIds.indexOf(gpuType);
  return index < 0 ? [] : deployment.gpuTypeIds.slice(index + 1);
}

/**
 * Whether a worker with this GPU type may take jobs that have outgrown a type, given by its number. Everyone may if the
 * endpoint has no later type.
 */
export function acceptOutgrown(
  deployment: Deployment,
  gpuType: string | null,
): (outgrown: number) => boolean {
  return (outgrown) => {
    const type = deployment.gpuTypeIds.find((each) => numberGpuType(each) === outgrown);
    const later = listLaterTypes(deployment, type ?? null);
    return later.length === 0 || (gpuType !== null && later.includes(gpuType));
  };
}
