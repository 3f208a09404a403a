// Wakes waiting callers after a change is on disk: takers, readers of a job, workers, the sweeper.
import type { Clock } from '../base/clock.ts';
import { type Waiter, Waiters } from '../base/waiters.ts';
import type { JobKey, StoredJob } from '../store/store.ts';
import { isTerminal } from '../wire/job/job.ts';
import type { Presence } from './leases/presence.ts';
import { findAbandoned } from './lifecycle/handler-wait.ts';
import type { Transition } from './lifecycle/transition.ts';

/** Time until unused payloads are deleted, ms. So the sweeper does not run for each of them. */
const UNUSED_MS = 1_000;

export class Signals {
  readonly #clock: Clock;
  readonly #waiters: Waiters;
  /** Apart from the others, because almost no job is watched. */
  readonly #watched: Waiters;
  readonly #presence: Presence;
  /** Endpoints of which a take has passed over jobs, because their groups are at the limit. */
  readonly #blocked = new Set<string>();
  readonly #workListeners = new Set<(endpointId: string) => void>();
  readonly #dueListeners = new Set<(dueAt: number) => void>();
  readonly #queuedListeners = new Set<(endpointId: string) => void>();
  /** Called after the commit with a job whose valid lease has ended. Undefined: no endpoint has shared limits. */
  onLeaseEnd: ((before: StoredJob) => void) | undefined;
  /** Called after the commit if a job waits for outputs of its parents in its input. */
  onFilling: () => void = () => {};
  /** Called after the commit with the batch of a job that has ended. */
  onBatchEnd: (batchId: string) => void = () => {};

  constructor(clock: Clock, presence: Presence) {
    this.#clock = clock;
    this.#waiters = new Waiters(clock);
    this.#watched = new Waiters(clock);
    this.#presence = presence;
  }

  jobsReady = (endpointId: string): Waiter => this.#waiters.open(`ready ${endpointId}`);
  /** For takers that may not take at the moment: they drain, or hold or wait for a job that must run alone. */
  takersBarred = (endpointId: string): Waiter => this.#waiters.open(`barred ${endpointId}`);
  jobEnded = ({ endpointId, id }: JobKey): Waiter => this.#waiters.open(`end ${endpointId}/${id}`);
  batchEnded = (id: string): Waiter => this.#waiters.open(`batch ${id}`);
  notifyBatchEnd = (id: string): void => this.#waiters.wake(`batch ${id}`);
  jobMoved = ({ endpointId, id }: JobKey): Waiter => this.#waiters.open(`move ${endpointId}/${id}`);
  /** For those who show the job: any change of its row, or its removal. */
  jobChanged = (key: JobKey): Waiter => this.#watched.open(nameJob(key));
  isEndAwaited = ({ endpointId, id }: JobKey): boolean =>
    this.#waiters.has(`end ${endpointId}/${id}`);
  workerCalled = (endpointId: string, workerId: string): Waiter =>
    this.#waiters.open(`worker ${endpointId}/${workerId}`);

  /**
   * Calls the listener, after the commit, with each endpoint that gets a ready job, or whose workers have changed. @returns
   * the function that stops it
   */
  onWork(listener: (endpointId: string) => void): () => void {
    this.#workListeners.add(listener);
    return () => this.#workListeners.delete(listener);
  }

  /**
   * Calls the listener, after the commit, with the due time of each written job, Unix ms, and with
   * the times at which unused payloads are due and pauses end. @returns the function that stops it
   */
  onDue(listener: (dueAt: number) => void): () => void {
    this.#dueListeners.add(listener);
    return () => this.#dueListeners.delete(listener);
  }

  /**
   * Calls the listener, after the commit, with the endpoint of each job that comes into the queue, leaves it, or changes in
   * it. @returns the function that stops it
   */
  onQueued(listener: (endpointId: string) => void): () => void {
    this.#queuedListeners.add(listener);
    return () => this.#queuedListeners.delete(listener);
  }

  /**
   * The operation that inserts the job calls this. If the store commits the operations of one
   * iteration together, a waiting taker can lease the job in the same commit. On other stores the taker polls too
   * early, and `inserted` wakes it again.
   */
  arriving(job: StoredJob): void {
    this.#wakeForQueue(job);
  }

  inserted(job: StoredJob): void {
    this.#reportQueued(job.endpointId);
    this.#announceWork(job);
    this.reportDue(job.dueAt);
  }

  /** Whether jobs of the endpoint wait for the end of a lease of their group. */
  noteBlocked(endpointId: string, isBlocked: boolean): void {
    if (isBlocked) this.#blocked.add(endpointId);
    else this.#blocked.delete(endpointId);
  }

  changed(before: StoredJob, transition: Transition): void {
    const { job, removed, stopWorker, dropChunks, dropOutput } = transition;
    if (removed || dropChunks || dropOutput) this.payloadUnused();
    const key = `${job.endpointId}/${job.id}`;
    const freed = this.#presence.jobChanged(before, removed ? undefined : job);
    if (freed) this.wakeTakers(job.endpointId);
    // A lease of a group may have ended.
    if (before.group !== null && before.lease && this.#blocked.has(job.endpointId)) {
      this.wakeTaker(job.endpointId);
    }
    if (this.onLeaseEnd && hasEnded(before, removed ? undefined : job)) this.onLeaseEnd(before);
    if (stopWorker && before.lease) this.callWorker(job.endpointId, before.lease.workerId);
    const ended = removed || (isTerminal(job.status) && !isTerminal(before.status));
    if (ended) this.#waiters.wake(`end ${key}`);
    if (ended && before.links?.batch) this.onBatchEnd(before.links.batch.id);
    if (ended || dropChunks || job.chunkCount !== before.chunkCount) {
      this.#waiters.wake(`move ${key}`);
    }
    if (!this.#watched.isEmpty) this.#watched.wake(key);
    if (before.status === 'IN_QUEUE' || job.status === 'IN_QUEUE') {
      this.#reportQueued(job.endpointId);
    }
    // Its children are to be cancelled.
    if (before.links?.wait && findAbandoned(before, transition).length > 0) this.onFilling();
    if (removed) return;
    if (job.links?.filling && !before.links?.filling) this.onFilling();
    const wasReady = before.status === 'IN_QUEUE' && !before.delayed;
    if (!wasReady) this.#announceWork(job);
    this.reportDue(job.dueAt);
  }

  /** The job's timeline has more; nothing else of it has changed. */
  jobNoted(key: JobKey): void {
    if (!this.#watched.isEmpty) this.#watched.wake(nameJob(key));
  }

  /** A payload may have become unused: the sweeper deletes it soon. */
  payloadUnused(): void {
    this.reportDue(this.#clock.now() + UNUSED_MS);
  }

  /** What workers of the endpoint can do has changed: its scaler looks at them. */
  workersChanged(endpointId: string): void {
    for (const listener of this.#workListeners) listener(endpointId);
  }

  callWorker(endpointId: string, workerId: string): void {
    this.#waiters.wake(`worker ${endpointId}/${workerId}`);
  }

  /** At most `count` of those that may take. */
  wakeTakers(endpointId: string, count?: number): void {
    this.#waiters.wake(`ready ${endpointId}`, count);
    this.#waiters.wake(`barred ${endpointId}`);
  }

  /** Takes of the endpoint that wait for jobs. */
  countTakers(endpointId: string): number {
    return this.#waiters.count(`ready ${endpointId}`);
  }

  /** One waiting taker is enough for one job; barred takers do not count. */
  wakeTaker(endpointId: string): void {
    this.#waiters.wake(`ready ${endpointId}`, 1);
    this.#waiters.wake(`barred ${endpointId}`);
  }

  /** Wakes all callers that wait at the endpoint. */
  endpointGone(endpointId: string): void {
    this.#blocked.delete(endpointId);
    this.#watched.wakeAll((key) => key.startsWith(`${endpointId}/`));
    this.#waiters.wakeAll((key) => {
      const subject = key.slice(key.indexOf(' ') + 1);
      return subject === endpointId || subject.startsWith(`${endpointId}/`);
    });
  }

  #announceWork(job: StoredJob): void {
    this.#wakeForQueue(job);
    if (job.status !== 'IN_QUEUE' || job.delayed) return;
    for (const listener of this.#workListeners) listener(job.endpointId);
  }

  #wakeForQueue(job: StoredJob): void {
    if (job.status !== 'IN_QUEUE' || job.delayed) return;
    // The first waiting worker may not be able to take the job: the job must run alone, or that worker
    // still runs an expired attempt of it.
    if (job.solo || job.lease) this.wakeTakers(job.endpointId);
    else this.wakeTaker(job.endpointId);
  }

  #reportQueued(endpointId: string): void {
    for (const listener of this.#queuedListeners) listener(endpointId);
  }

  /** Something is due then, Unix ms. */
  reportDue(dueAt: number): void {
    for (const listener of this.#dueListeners) listener(dueAt);
  }
}

/** Whether the valid lease that the job had before is over. */
function hasEnded({ lease: before }: StoredJob, after: StoredJob | undefined): boolean {
  if (!before || before.lost !== null) return false;
  return after?.lease?.token !== before.token || after.lease.lost !== null;
}

function nameJob({ endpointId, id }: JobKey): string {
  return `${endpointId}/${id}`;
}
