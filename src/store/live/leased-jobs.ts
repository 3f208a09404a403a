// All jobs with a lease, over all endpoints, by due time: the indexes of the database omit them.
import { DueHeap } from '../../base/due-heap.ts';
import { hasTags, type JobFilter, type JobKey, type JobListing, type StoredJob } from '../store.ts';

/** Jobs that `listRunning` collects beyond twice its limit before it drops the oldest. */
const SPARE_LISTED = 256;

/** A list of running jobs; `from`: only those from this position on. */
type RunningListing = Omit<JobListing, 'status'> & JobFilter & { from?: number | undefined };

interface Held {
  job: StoredJob;
}

export class LeasedJobs {
  readonly #endpoints = new Map<string, Map<string, Held>>();
  readonly #due = new DueHeap<Held>();
  /** Jobs whose lease is no longer valid, by endpoint. */
  readonly #lost = new Map<string, number>();
  /** Valid leases of each group, by endpoint. */
  readonly #groups = new Map<string, Map<string, number>>();
  /** The jobs that the database had at the start are here. */
  isLoaded = false;

  /** When the first one is due; Infinity without one. */
  get nextDueAt(): number {
    return this.#due.firstAt;
  }

  replace(before: StoredJob | undefined, after: StoredJob | undefined): void {
    if (after?.lease) this.put(after);
    else if (before) this.#delete(before);
  }

  put(job: StoredJob): void {
    let ofEndpoint = this.#endpoints.get(job.endpointId);
    if (!ofEndpoint) {
      ofEndpoint = new Map();
      this.#endpoints.set(job.endpointId, ofEndpoint);
    }
    const known = ofEndpoint.get(job.id);
    const held = known ?? { job };
    if (known) this.#count(known.job, -1);
    this.#count(job, 1);
    held.job = job;
    ofEndpoint.set(job.id, held);
    this.#due.set(held, job.dueAt);
  }

  /** Number of valid leases of the endpoint. */
  count(endpointId: string): number {
    const all = this.#endpoints.get(endpointId)?.size ?? 0;
    return all - (this.#lost.get(endpointId) ?? 0);
  }

  /** Number of valid leases of the group. */
  countOfGroup(endpointId: string, group: string): number {
    return this.#groups.get(endpointId)?.get(group) ?? 0;
  }

  #count(job: StoredJob, times: number): void {
    if (!holdsValidLease(job)) this.#countLost(job, times);
    else if (job.group !== null) this.#countGroup(job.endpointId, job.group, times);
  }

  #countLost({ endpointId }: StoredJob, times: number): void {
    const count = (this.#lost.get(endpointId) ?? 0) + times;
    if (count > 0) this.#lost.set(endpointId, count);
    else this.#lost.delete(endpointId);
  }

  #countGroup(endpointId: string, group: string, times: number): void {
    const ofEndpoint = this.#groups.get(endpointId) ?? new Map<string, number>();
    const count = (ofEndpoint.get(group) ?? 0) + times;
    if (count > 0) this.#groups.set(endpointId, ofEndpoint.set(group, count));
    else ofEndpoint.delete(group);
    if (ofEndpoint.size === 0) this.#groups.delete(endpointId);
  }

  /** Keeps of the job only what `list` and the due time need. */
  shrink({ endpointId, id }: JobKey): void {
    const held = this.#endpoints.get(endpointId)?.get(id);
    if (held) held.job = toListed(held.job);
  }

  /** The first due ones, at most `limit`. */
  listDue(now: number, limit: number): JobKey[] {
    return this.#due.list(now, limit).map(({ job }) => job);
  }

  *keys(): Iterable<JobKey> {
    for (const ofEndpoint of this.#endpoints.values()) {
      for (const { job } of ofEndpoint.values()) yield job;
    }
  }

  *ofEndpoint(endpointId: string): Iterable<StoredJob> {
    for (const { job } of this.#endpoints.get(endpointId)?.values() ?? []) yield job;
  }

  /** Jobs that run, as `Reader.jobs` returns them. */
  listRunning(listing: RunningListing): StoredJob[] {
    const { before = Number.POSITIVE_INFINITY, endpointId, from = 0, limit } = listing;
    const listed: StoredJob[] = [];
    const shorten = () => listed.sort((a, b) => b.position - a.position).splice(limit);
    for (const { job } of this.#endpoints.get(endpointId)?.values() ?? []) {
      const isInRange = job.position >= from && job.position < before;
      if (job.status !== 'IN_PROGRESS' || !isInRange || !matches(job, listing)) continue;
      listed.push(job);
      // Not one by one: with thousands of jobs that would sort for each of them.
      if (listed.length > 2 * limit + SPARE_LISTED) shorten();
    }
    shorten();
    return listed.map(toListed);
  }

  #delete({ endpointId, id }: JobKey): void {
    const ofEndpoint = this.#endpoints.get(endpointId);
    const held = ofEndpoint?.get(id);
    if (!ofEndpoint || !held) return;
    this.#count(held.job, -1);
    ofEndpoint.delete(id);
    this.#due.delete(held);
    if (ofEndpoint.size === 0) this.#endpoints.delete(endpointId);
  }
}

/** Whether a worker runs the job, as far as is known: also after a cancel, until the worker has stopped it. */
export function holdsValidLease({ lease }: StoredJob): boolean {
  return lease !== null && lease.lost === null;
}

function toListed(job: StoredJob): StoredJob {
  const slim = { error: null, history: [], notes: [], progress: null, usage: null };
  return { ...job, ...slim, attachment: null };
}

function matches(job: StoredJob, { errorCode, idPart, tags, workerId }: JobFilter): boolean {
  if (workerId !== undefined && workerId !== (job.lease?.workerId ?? job.workerId)) return false;
  if (idPart !== undefined && !job.id.includes(idPart)) return false;
  if (!hasTags(job, tags)) return false;
  if (errorCode === undefined) return true;
  return [...job.notes, ...job.history].some(({ code }) => code === errorCode);
}
