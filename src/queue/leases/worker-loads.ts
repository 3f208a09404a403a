// Reports the load and the workers of an endpoint, for scaling decisions.
import type { Clock } from '../../base/clock.ts';
import type { Step, Store } from '../../store/store.ts';
import type { QueueSettings } from '../settings.ts';
import type { Signals } from '../signals.ts';
import type { Presence, PresentWorker } from './presence.ts';

/** More jobs than this want no more workers: an endpoint has far fewer. */
const MAX_READY = 10_000;

export interface QueueLoad {
  /** Jobs that could be taken now. Where some are delayed, at most MAX_READY. */
  waiting: number;
  running: number;
  /** When the one that has waited longest was queued, Unix ms. */
  oldestQueuedAt: number | null;
  /** Those that have called within a lease. */
  workers: WorkerLoad[];
}

export interface WorkerLoad {
  id: string;
  /** The pod that it runs in; null: none of the platform's. */
  podId: string | null;
  /** Leases that it holds. */
  jobs: number;
  /** Leases that it was ever given: another number than before means that it had something to do. */
  taken: number;
  /** When the last of its attempts has to be over, Unix ms; 0 if it has none. */
  busyUntil: number;
  draining: boolean;
}

export interface WorkerLoadsOptions {
  store: Store;
  clock: Clock;
  settings: QueueSettings;
  presence: Presence;
  signals: Signals;
}

export class WorkerLoads {
  readonly #options: WorkerLoadsOptions;

  constructor(options: WorkerLoadsOptions) {
    this.#options = options;
  }

  /** Of one that is not there: nothing. */
  async load(endpointId: string): Promise<QueueLoad> {
    const counts = await this.#options.store.read(function* (tx): Step<Omit<QueueLoad, 'workers'>> {
      const endpoint = yield* tx.endpoint(endpointId);
      const oldest = endpoint?.inQueue ? yield* tx.oldestQueuedAt(endpointId) : undefined;
      const waiting = oldest === undefined ? 0 : yield* tx.countReady(endpointId, MAX_READY);
      return { waiting, running: endpoint?.inProgress ?? 0, oldestQueuedAt: oldest ?? null };
    });
    return { ...counts, workers: this.#listWorkers(endpointId).map(describe) };
  }

  /** Whether a worker has said hello, and has neither left nor been forgotten since. */
  isPresent(endpointId: string, workerId: string): boolean {
    return this.#options.presence.find(endpointId, workerId) !== undefined;
  }

  /** Tells the workers of a pod to take nothing more and to leave: it is one, or one a device set. */
  drain(endpointId: string, podId: string): void {
    const { signals } = this.#options;
    for (const worker of this.ofPod(endpointId, podId)) drainWorker(worker, signals);
  }

  ofPod(endpointId: string, podId: string): PresentWorker[] {
    return [...this.#options.presence.all()].filter(
      (worker) => worker.endpointId === endpointId && worker.podId === podId,
    );
  }

  /** All that have said hello, whether they still call or not. */
  listPresent(): Pick<PresentWorker, 'endpointId' | 'podId'>[] {
    return [...this.#options.presence.all()].map(({ endpointId, podId }) => ({
      endpointId,
      podId,
    }));
  }

  /** Tells of each endpoint that has got a job to be taken. Returns the end of it. */
  onWork(listener: (endpointId: string) => void): () => void {
    return this.#options.signals.onWork(listener);
  }

  #listWorkers(endpointId: string): PresentWorker[] {
    const { clock, presence, settings } = this.#options;
    const aliveSince = clock.now() - settings.leaseMs;
    return [...presence.all()].filter(
      (worker) => worker.endpointId === endpointId && worker.seenAt >= aliveSince,
    );
  }
}

export function drainWorker(worker: PresentWorker, signals: Signals): void {
  worker.draining = true;
  worker.drainTold = false;
  signals.callWorker(worker.endpointId, worker.id);
  // Its open take would use up the wake-up of a job that it does not get.
  signals.wakeTakers(worker.endpointId);
}

function describe({ draining, id, leases, podId, taken }: PresentWorker): WorkerLoad {
  const busyUntil = Math.max(0, ...[...leases.values()].map(({ deadlineAt }) => deadlineAt));
  return { id, podId, jobs: leases.size, taken, busyUntil, draining };
}
