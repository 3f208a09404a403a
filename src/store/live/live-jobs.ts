// The live part of the queue in memory: jobs with a lease, the next ready ones, those that ended recently,
// and the counters. Operations change it at once; the database gets the last state of each changed job with
// the commit. Between two commits the database has all of it, so any job may be dropped from memory.
import type { InlinePayloads } from '../sql/job-row.ts';
import type { JobKey, Step, StoredEndpoint, StoredJob } from '../store.ts';
import type { Tables } from '../tables.ts';
import { CachedJobs, type CachedJobsOptions, UnwrittenRows } from './cached-jobs.ts';
import { LeasedJobs } from './leased-jobs.ts';
import { type Counts, type JobChange, LiveEndpoint, NO_PAYLOADS } from './live-endpoint.ts';
import type { Need, Selection } from './ready-groups.ts';
import {
  addNeeded,
  type Found,
  findTakeable,
  type LimitedRequest,
  writeUses,
} from './takeable-jobs.ts';

export class LiveJobs {
  readonly #tables: Tables;
  readonly #endpoints = new Map<string, LiveEndpoint>();
  readonly #options: CachedJobsOptions;
  leased = new LeasedJobs();
  inputs = new RecentInputs();
  #kept: CachedJobs;
  /** Endpoints whose part in memory this commit changes or loads. */
  #touched = new Set<LiveEndpoint>();
  readonly unwritten: UnwrittenRows;
  /** Endpoints whose counters differ from memory. */
  #uncounted = new Set<LiveEndpoint>();
  /** Every endpoint that exists is in memory. */
  #hasAllEndpoints = false;

  constructor(tables: Tables, options: CachedJobsOptions = {}) {
    this.#tables = tables;
    this.#options = options;
    this.#kept = new CachedJobs(this.leased, options);
    this.unwritten = new UnwrittenRows(tables);
  }

  endpoint(id: string): StoredEndpoint | undefined {
    return this.#endpoints.get(id)?.endpoint;
  }

  /** All endpoints, by ID; undefined if they must be read. */
  endpoints(): StoredEndpoint[] | undefined {
    if (!this.#hasAllEndpoints) return undefined;
    const all = [...this.#endpoints.values()].flatMap(({ endpoint }) => endpoint ?? []);
    return all.sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  /** The database, which has all changes, has returned all endpoints. */
  rememberAll(endpoints: readonly StoredEndpoint[]): void {
    for (const endpoint of endpoints) this.remember(endpoint);
    this.#hasAllEndpoints = true;
  }

  /** Whether the database lacks counts of the endpoint. */
  isUncounted(id: string): boolean {
    const live = this.#endpoints.get(id);
    return live !== undefined && this.#uncounted.has(live);
  }

  /** The database has returned the endpoint, and nothing in memory is newer. */
  remember(endpoint: StoredEndpoint): void {
    this.#open(endpoint.id).endpoint = endpoint;
  }

  /** The endpoint changes in the database: it will be read again. */
  forgetEndpoint(id: string): void {
    this.#setEndpoint(this.#open(id), { isRemoved: false });
  }

  /** The endpoint and all of its jobs are removed. */
  remove(id: string): void {
    this.#setEndpoint(this.#open(id), { isRemoved: true });
  }

  #setEndpoint(live: LiveEndpoint, { isRemoved }: { isRemoved: boolean }): void {
    this.#touched.add(live);
    live.endpoint = undefined;
    live.isRemoved = isRemoved;
    this.#hasAllEndpoints = false;
  }

  /** `absent`: it does not exist. `unknown`: only the database knows. */
  job({ endpointId, id }: JobKey): StoredJob | 'absent' | 'unknown' {
    const live = this.#endpoints.get(endpointId);
    const job = live?.jobs.get(id);
    if (job) return job;
    const changed = live?.changed.get(id);
    if (!changed || changed.now === changed.stored) return 'unknown';
    return changed.now ?? 'absent';
  }

  /** ID of the job that this commit adds with the idempotency key. */
  findNewKey(endpointId: string, key: string): string | undefined {
    return this.#endpoints.get(endpointId)?.newKeys.get(key);
  }

  /** The best ready jobs that can be leased, and what the caller may need to load for more of them. */
  takeableJobs(request: LimitedRequest): Selection {
    const live = this.#open(request.endpointId);
    this.#kept.noteUse(live);
    this.#touched.add(live);
    const { shareJobs } = this.#kept;
    return findTakeable(live, request, { shareJobs, windowJobs: this.#kept.windowJobs(live) });
  }

  /** The endpoint's part, in which this commit searches. */
  search(endpointId: string): LiveEndpoint {
    const live = this.#open(endpointId);
    this.#touched.add(live);
    return live;
  }

  /** Rows of the endpoint that this commit has read in search of takeable jobs. */
  searchedRows(endpointId: string): number {
    return this.#open(endpointId).searchedRows;
  }

  /** What the database, which has all changes, has returned for the need of `takeableJobs`. */
  loadNeeded(endpointId: string, need: Need, found: Found): void {
    const live = this.#open(endpointId);
    for (const job of addNeeded(live, need, found)) live.jobs.set(job.id, job);
  }

  /** The jobs that have a lease in the database, which has all changes. */
  loadLeased(jobs: readonly StoredJob[]): void {
    for (const job of jobs) {
      const live = this.#open(job.endpointId);
      const known = live.jobs.get(job.id) ?? job;
      live.jobs.set(job.id, known);
      this.leased.put(known);
      this.#kept.settleJob(live, known);
    }
    this.leased.isLoaded = true;
  }

  change(endpointId: string, change: JobChange): void {
    const live = this.#open(endpointId);
    this.#touched.add(live);
    this.#uncounted.add(live);
    this.unwritten.compare(live.apply(change));
  }

  /** Whether only this commit has the job. */
  isNew({ endpointId, id }: JobKey): boolean {
    const job = this.#endpoints.get(endpointId)?.changed.get(id);
    return job !== undefined && job.stored === undefined;
  }

  /** Small payloads that will be written with the row of the job. */
  payloads({ endpointId, id }: JobKey): InlinePayloads {
    return this.#endpoints.get(endpointId)?.changed.get(id)?.payloads ?? NO_PAYLOADS;
  }

  /**
   * Writes small payloads with the row of the job. Returns false if the row is not about to be
   * written, or if the job may have an output.
   */
  addPayloads({ endpointId, id }: JobKey, payloads: InlinePayloads): boolean {
    const job = this.#endpoints.get(endpointId)?.changed.get(id);
    if (!job?.now || job.now === job.stored) return false;
    if (job.stored && job.stored.outputKind !== 'none') return false;
    job.payloads = { ...job.payloads, ...payloads };
    return true;
  }

  /**
   * A large output is about to be put. Returns whether the job has none so far: a job that had none in the database, and
   * that this commit has changed before.
   */
  noteOutput({ endpointId, id }: JobKey): boolean {
    const job = this.#endpoints.get(endpointId)?.changed.get(id);
    if (!job?.now || job.now === job.stored || job.hasOutput) return false;
    job.hasOutput = true;
    return !job.stored || job.stored.outputKind === 'none';
  }

  /** Writes all changes that the database does not have yet. */
  *write(): Step<void> {
    yield* this.unwritten.write();
    yield* this.#writeCounts();
    for (const live of this.#touched)
      if (live.ready.hasUnsaved) yield* writeUses(this.#tables, live);
  }

  *#writeCounts(): Step<void> {
    const all = new Map<string, Counts>();
    for (const { counts, id } of this.#uncounted) if (counts) all.set(id, counts);
    if (all.size > 0) yield* this.#tables.addCounts(all);
    for (const live of this.#uncounted) {
      live.resetCounts();
      this.#uncounted.delete(live);
    }
  }

  /** The transaction was undone: the database is read again. */
  forget(): void {
    this.#endpoints.clear();
    this.leased = new LeasedJobs();
    this.#kept = new CachedJobs(this.leased, this.#options);
    this.inputs = new RecentInputs();
    this.#hasAllEndpoints = false;
    this.#touched = new Set();
    this.#clear();
  }

  /** The commit is over: trims memory to what stays there. */
  settle(): void {
    for (const live of this.#touched) {
      for (const { now } of live.changed.values()) if (now) this.#kept.settleJob(live, now);
      live.changed = new Map();
      if (live.newKeys.size > 0) live.newKeys = new Map();
      live.searchedRows = 0;
      this.#kept.settleReady(live);
      if (live.isRemoved) this.#endpoints.delete(live.id);
    }
    this.#touched = new Set();
    this.#clear();
    this.#kept.trim();
  }

  #clear(): void {
    this.unwritten.clear();
    this.#uncounted = new Set();
  }

  #open(id: string): LiveEndpoint {
    let live = this.#endpoints.get(id);
    if (!live) {
      live = new LiveEndpoint(id, this.leased);
      this.#endpoints.set(id, live);
    }
    return live;
  }
}

/** Inputs kept; each has at most `INLINE_BYTES`, so all together about 4 MB. */
const KEPT = 4_096;
/**
 * Share of the inputs that are dropped together. The first key lies behind the places of all those that were removed, so
 * the search for it is slow.
 */
const DROPPED_SHARE = 16;

/**
 * Inputs of new jobs. An input never changes and the ID of a job is used once, so an entry is right even if its operation
 * was undone.
 */
export class RecentInputs {
  /** By job ID: a text of endpoint and ID would have to be made and hashed each time. */
  readonly #inputs = new Map<string, { endpointId: string; bytes: Uint8Array }>();
  readonly #kept: number;

  constructor(kept = KEPT) {
    this.#kept = kept;
  }

  put({ endpointId, id }: JobKey, input: Uint8Array): void {
    if (this.#inputs.size >= this.#kept) this.#dropOldest(Math.ceil(this.#kept / DROPPED_SHARE));
    // A copy: the given one may be a part of a request's buffer.
    this.#inputs.set(id, { endpointId, bytes: new Uint8Array(input) });
  }

  find({ endpointId, id }: JobKey): Uint8Array | undefined {
    const input = this.#inputs.get(id);
    // IDs are unique within an endpoint only.
    return input?.endpointId === endpointId ? input.bytes : undefined;
  }

  delete(key: JobKey): void {
    if (this.find(key)) this.#inputs.delete(key.id);
  }

  #dropOldest(count: number): void {
    let left = count;
    for (const id of this.#inputs.keys()) {
      if (left === 0) return;
      this.#inputs.delete(id);
      left -= 1;
    }
  }
}
