// The live part of the queue in memory: the jobs that are leased or next, those that ended just now, and
// the counters. Operations change it at once; the database gets the last state of each changed job with
// the commit. Everything here is also in the database, so it may be dropped between two commits.
import { isTerminal } from '../../wire/job.ts';
import type { InlinePayloads } from '../job-row.ts';
import type { JobKey, JobListing, Step, StoredEndpoint, StoredJob } from '../store.ts';
import type { Tables } from '../tables.ts';
import type { JobChange } from './counts.ts';
import { LiveEndpoint, NONE, type Unwritten } from './live-endpoint.ts';

export interface LiveJobsOptions {
  /** Ready jobs of an endpoint that are read at once. Default 256. */
  windowJobs?: number;
  /** Ready jobs in memory over all endpoints. Default 50,000. */
  readyJobs?: number;
  /** Jobs that stay in memory after their end, for their last reports and reads. Default 2,048. */
  endedJobs?: number;
}

type RunningJobs = Omit<JobListing, 'status'>;

/** A window may grow to this many times the jobs that are read at once. */
const WINDOW_GROWTH = 4;

export class LiveJobs {
  readonly windowJobs: number;
  readonly #readyJobs: number;
  readonly #endedJobs: number;
  readonly #tables: Tables;
  readonly #endpoints = new Map<string, LiveEndpoint>();
  /** Endpoints that this commit changes. */
  readonly #changed = new Set<LiveEndpoint>();
  /** How the changes of this commit are undone, the first one first. */
  readonly #undo: (() => void)[] = [];
  /** Endpoints with a window; the one that was asked last is last. */
  readonly #windows = new Set<LiveEndpoint>();
  #hasLeased = false;
  /** Jobs in all windows. */
  #ready = 0;
  readonly #ended: { endpoint: LiveEndpoint; job: StoredJob }[] = [];

  constructor(tables: Tables, options: LiveJobsOptions = {}) {
    const { windowJobs = 256, readyJobs = 50_000, endedJobs = 2_048 } = options;
    this.#tables = tables;
    this.windowJobs = windowJobs;
    this.#readyJobs = readyJobs;
    this.#endedJobs = endedJobs;
  }

  endpoint(id: string): StoredEndpoint | undefined {
    return this.#endpoints.get(id)?.endpoint;
  }

  /** The database has returned the endpoint, and nothing in memory is newer. */
  remember(endpoint: StoredEndpoint): void {
    const live = this.#open(endpoint.id);
    live.endpoint = endpoint;
    live.isRemoved = false;
  }

  /** The endpoint changes in the database: it will be read again. */
  forget(id: string): void {
    const live = this.#open(id);
    const before = live.endpoint;
    this.#changed.add(live);
    live.endpoint = undefined;
    this.#undo.push(() => {
      live.endpoint = before;
    });
  }

  /** The endpoint and all of its jobs are removed. */
  remove(id: string): void {
    this.forget(id);
    const live = this.#open(id);
    live.isRemoved = true;
    this.#undo.push(() => {
      live.isRemoved = false;
    });
  }

  /** `absent`: it does not exist. `unknown`: only the database knows. */
  job({ endpointId, id }: JobKey): StoredJob | 'absent' | 'unknown' {
    const live = this.#endpoints.get(endpointId);
    return live?.jobs.get(id) ?? (live?.unwritten.has(id) ? 'absent' : 'unknown');
  }

  /** The best ready jobs; undefined if they have to be loaded first. */
  ready(endpointId: string, limit: number): StoredJob[] | undefined {
    const live = this.#endpoints.get(endpointId);
    if (!live || (live.window.size < limit && !live.window.hasAll)) return undefined;
    this.#windows.delete(live);
    this.#windows.add(live);
    return live.window.first(limit);
  }

  /** The first `limit` ready jobs of the database, which has all changes. */
  load(endpointId: string, jobs: StoredJob[], limit: number): void {
    const live = this.#open(endpointId);
    this.#changed.add(live);
    const known = jobs.map((job) => live.jobs.get(job.id) ?? job);
    for (const job of known) live.jobs.set(job.id, job);
    live.window.load(known, { isAll: jobs.length < limit });
  }

  get hasLeased(): boolean {
    return this.#hasLeased;
  }

  /** The jobs that have a lease in the database, which has all changes. */
  loadLeased(jobs: readonly StoredJob[]): void {
    for (const job of jobs) {
      const live = this.#open(job.endpointId);
      const known = live.jobs.get(job.id) ?? job;
      live.jobs.set(job.id, known);
      live.leased.set(job.id, known);
    }
    this.#hasLeased = true;
  }

  /** All jobs with a lease. */
  *leased(): Iterable<StoredJob> {
    for (const { leased } of this.#endpoints.values()) yield* leased.values();
  }

  /** Jobs that run, as `Reader.jobs` returns them. */
  listRunning({ before = Number.MAX_SAFE_INTEGER, endpointId, limit }: RunningJobs): StoredJob[] {
    const leased = this.#endpoints.get(endpointId)?.leased.values() ?? [];
    return [...leased]
      .filter(({ position, status }) => status === 'IN_PROGRESS' && position < before)
      .sort((a, b) => b.position - a.position)
      .slice(0, limit)
      .map((job) => ({ ...job, error: null, history: [], progress: null, attachment: null }));
  }

  change(endpointId: string, change: JobChange): void {
    const live = this.#open(endpointId);
    this.#changed.add(live);
    live.apply(change);
    this.#undo.push(() => live.undo(change));
  }

  /** Small payloads of the job that this commit writes. */
  payloads({ endpointId, id }: JobKey): InlinePayloads {
    return this.#endpoints.get(endpointId)?.unwritten.get(id)?.payloads ?? NONE;
  }

  /**
   * Writes a small payload with the row of the job. Returns false if the row does not change in this
   * commit, or if the job may have an output.
   */
  keep({ endpointId, id }: JobKey, payloads: InlinePayloads): boolean {
    const job = this.#endpoints.get(endpointId)?.unwritten.get(id);
    if (!job?.now || (job.stored && job.stored.outputKind !== 'none')) return false;
    this.#setPayloads(job, { ...job.payloads, ...payloads });
    return true;
  }

  #setPayloads(job: Unwritten, payloads: InlinePayloads): void {
    const before = job.payloads;
    job.payloads = payloads;
    this.#undo.push(() => {
      job.payloads = before;
    });
  }

  /** Position in the changes of this commit, for `undoTo`. */
  mark(): number {
    return this.#undo.length;
  }

  /** Undoes all changes since the mark. */
  undoTo(mark: number): void {
    for (const undo of this.#undo.splice(mark).reverse()) undo();
  }

  /** Writes all changes that the database does not have yet. */
  *write(): Step<void> {
    for (const live of this.#changed) {
      for (const [id, job] of live.unwritten)
        yield* this.#writeRow({ endpointId: live.id, id }, job);
      const { counts } = live;
      if (!counts) continue;
      yield* this.#tables.addCounts(live.id, counts);
      this.#undo.push(live.resetCounts());
    }
  }

  *#writeRow(key: JobKey, job: Unwritten): Step<void> {
    const { now, payloads, stored } = job;
    if (now === stored) return;
    if (!now) yield* this.#tables.removeJobRow(key);
    else if (!stored) yield* this.#tables.addJobRow(now, payloads);
    else yield* this.#tables.changeJobRow(stored, now, payloads.output);
    this.#setPayloads(job, NONE);
    job.stored = now;
    this.#undo.push(() => {
      job.stored = stored;
    });
  }

  /** The commit is over, whether it succeeded or was undone: keeps what stays in memory. */
  settle(): void {
    for (const live of this.#changed) {
      for (const { now } of live.unwritten.values()) if (now) this.#keep(live, now);
      live.unwritten.clear();
      this.#shorten(live, this.#countKept(live));
      if (live.isRemoved) this.#endpoints.delete(live.id);
    }
    this.#changed.clear();
    this.#undo.length = 0;
    this.#dropEnded();
    for (const live of this.#windows) {
      if (this.#ready <= this.#readyJobs) return;
      this.#shorten(live, 0);
    }
  }

  #countKept({ isRemoved, window }: LiveEndpoint): number {
    if (isRemoved) return 0;
    return window.size > WINDOW_GROWTH * this.windowJobs ? this.windowJobs : window.size;
  }

  #keep(live: LiveEndpoint, job: StoredJob): void {
    if (job.lease !== null || live.window.has(job)) return;
    if (isSmall(job)) this.#ended.push({ endpoint: live, job });
    else live.jobs.delete(job.id);
  }

  #shorten(live: LiveEndpoint, kept: number): void {
    for (const job of live.window.trim(kept)) if (job.lease === null) live.jobs.delete(job.id);
    this.#ready += live.window.size - live.counted;
    live.counted = live.window.size;
    if (live.counted > 0) this.#windows.add(live);
    else this.#windows.delete(live);
  }

  #dropEnded(): void {
    const excess = this.#ended.length - this.#endedJobs;
    // In larger steps, because a removal from the front moves all others.
    if (excess < this.#endedJobs) return;
    for (const { endpoint, job } of this.#ended.splice(0, excess)) {
      // Unless a retry has changed it.
      if (endpoint.jobs.get(job.id) === job) endpoint.jobs.delete(job.id);
    }
  }

  #open(id: string): LiveEndpoint {
    let live = this.#endpoints.get(id);
    if (!live) {
      live = new LiveEndpoint(id);
      this.#endpoints.set(id, live);
    }
    return live;
  }
}

/** Whether the job has ended with nothing that makes it large. */
function isSmall({ attachment, error, history, status }: StoredJob): boolean {
  return isTerminal(status) && error === null && attachment === null && history.length === 0;
}
