// The live part of the queue in memory: jobs with a lease, the next ready ones, those that ended recently,
// and the counters. Operations change it at once; the database gets the last state of each changed job with
// the commit. Between two commits the database has all of it, so any job may be dropped from memory.
import { isTerminal } from '../../wire/job.ts';
import type { InlinePayloads } from '../sql/job-row.ts';
import type {
  JobKey,
  Step,
  StoredEndpoint,
  StoredJob,
  TakeableRequest,
  TurnKey,
} from '../store.ts';
import type { Tables } from '../tables.ts';
import { type CountsRow, type JobChange, noCounts } from './counts.ts';
import { KnownGroups } from './known-groups.ts';
import { LeasedJobs } from './leased-jobs.ts';
import { type ChangedJob, FIRST_WINDOW_JOBS, LiveEndpoint, NO_PAYLOADS } from './live-endpoint.ts';
import { RecentInputs } from './recent-inputs.ts';
import { addNeeded, type Found, findTakeable, type Need } from './takeable-jobs.ts';
import { UnwrittenRows } from './unwritten-rows.ts';

export interface LiveJobsOptions {
  /** Most ready jobs of an endpoint that are read at once. Default 256. */
  windowJobs?: number;
  /** Ready jobs in memory over all endpoints. Default 50,000. */
  readyJobs?: number;
  /** Jobs that stay in memory after their end, for their last reports and reads. Default 2,048. */
  endedJobs?: number;
}

/** A window may grow to this many times the jobs that are read at once. */
const WINDOW_GROWTH = 4;
/** Jobs with a lease that are larger than this are read again when they are needed, characters. */
const MAX_LEASED_SIZE = 2_000;

export class LiveJobs {
  readonly #windowJobs: number;
  readonly #maxWindowed: number;
  readonly #maxEnded: number;
  readonly #tables: Tables;
  readonly #endpoints = new Map<string, LiveEndpoint>();
  readonly leased = new LeasedJobs();
  readonly inputs = new RecentInputs();
  readonly #groups = new KnownGroups();
  /** Endpoints whose part in memory this commit changes or loads. */
  readonly #touched = new Set<LiveEndpoint>();
  readonly unwritten: UnwrittenRows;
  /** Endpoints whose counters differ from memory. */
  readonly #uncounted = new Set<LiveEndpoint>();
  /** How the changes of this commit are undone, the first one first. */
  readonly #undo: (() => void)[] = [];
  /** Endpoints with a window; the one that was asked last is last. */
  readonly #windows = new Set<LiveEndpoint>();
  /** Number of jobs in all windows. */
  #windowed = 0;
  readonly #ended: { endpoint: LiveEndpoint; job: StoredJob }[] = [];

  constructor(tables: Tables, options: LiveJobsOptions = {}) {
    const { windowJobs = 256, readyJobs = 50_000, endedJobs = 2_048 } = options;
    this.#tables = tables;
    this.unwritten = new UnwrittenRows(tables);
    this.#windowJobs = windowJobs;
    this.#maxWindowed = readyJobs;
    this.#maxEnded = endedJobs;
  }

  /** Number of ready jobs to read for the window of the endpoint: more each time. */
  windowJobs(endpointId: string): number {
    const share = Math.floor(this.#maxWindowed / (this.#windows.size + 1));
    const next = this.#endpoints.get(endpointId)?.nextWindowJobs ?? FIRST_WINDOW_JOBS;
    return Math.min(this.#windowJobs, Math.max(FIRST_WINDOW_JOBS, Math.min(next, share)));
  }

  endpoint(id: string): StoredEndpoint | undefined {
    return this.#endpoints.get(id)?.endpoint;
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
  forget(id: string): void {
    this.#setEndpoint(this.#open(id), { isRemoved: false });
  }

  /** The endpoint and all of its jobs are removed. */
  remove(id: string): void {
    this.#setEndpoint(this.#open(id), { isRemoved: true });
  }

  #setEndpoint(live: LiveEndpoint, { isRemoved }: { isRemoved: boolean }): void {
    const { endpoint, isRemoved: wasRemoved } = live;
    this.#touched.add(live);
    live.endpoint = undefined;
    live.isRemoved = isRemoved;
    this.#undo.push(() => {
      live.endpoint = endpoint;
      live.isRemoved = wasRemoved;
    });
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

  /** The best ready jobs; undefined if they have to be loaded first. */
  readyJobs(endpointId: string, limit: number): StoredJob[] | undefined {
    const live = this.#endpoints.get(endpointId);
    if (!live?.window.isWhole) return undefined;
    if (live.window.size < limit && !live.window.hasAll) return undefined;
    this.#noteUse(live);
    return live.window.first(limit);
  }

  #noteUse(live: LiveEndpoint): void {
    this.#windows.delete(live);
    this.#windows.add(live);
  }

  /** The best ready jobs that can be leased, and what may have to be loaded for more of them. */
  takeableJobs(request: TakeableRequest): Found {
    const live = this.#open(request.endpointId);
    const found = findTakeable(live, request, this.windowJobs(request.endpointId));
    this.#noteUse(live);
    this.#touched.add(live);
    this.#drop(live, found.dropped);
    return found;
  }

  /** Rows of the endpoint that this commit has read in search of takeable jobs. */
  searchedRows(endpointId: string): number {
    return this.#open(endpointId).searchedRows;
  }

  /** Jobs of the database, which has all changes, as `takeableJobs` has asked for them. */
  loadNeeded(endpointId: string, need: Need, jobs: readonly StoredJob[]): void {
    const live = this.#open(endpointId);
    live.searchedRows += need.limit;
    for (const job of addNeeded(live, need, jobs)) live.jobs.set(job.id, job);
  }

  /** The first `limit` ready jobs of the database, which has all changes. */
  loadReady(endpointId: string, jobs: StoredJob[], limit: number): void {
    const live = this.#open(endpointId);
    this.#touched.add(live);
    const known = jobs.map((job) => live.jobs.get(job.id) ?? job);
    if (!live.window.isWhole) this.#drop(live, live.window.drop());
    for (const job of known) live.jobs.set(job.id, job);
    live.window.load(known, { isAll: jobs.length < limit });
    live.nextWindowJobs = 2 * limit;
  }

  /** The jobs that have a lease in the database, which has all changes. */
  loadLeased(jobs: readonly StoredJob[]): void {
    for (const job of jobs) {
      const live = this.#open(job.endpointId);
      const known = live.jobs.get(job.id) ?? job;
      live.jobs.set(job.id, known);
      this.leased.put(known);
      this.#settleJob(live, known);
    }
    this.leased.isLoaded = true;
  }

  /** Whether the turns that the database has are in memory. */
  hasTurns(endpointId: string): boolean {
    return this.#open(endpointId).turns.isLoaded;
  }

  loadTurns(endpointId: string, text: string | null): void {
    this.#open(endpointId).turns.load(text);
  }

  /** The turn of the next job; undefined if the database has to be asked for the last one. */
  nextTurn(key: TurnKey): number | undefined {
    const live = this.#open(key.endpointId);
    if (live.isEmpty) this.#undo.push(live.turns.noteEmpty());
    return live.turns.next(key);
  }

  /** The database, which has all changes, has returned the last turn of the key. */
  learnTurn(key: TurnKey, last: number | null | undefined): void {
    this.#undo.push(this.#open(key.endpointId).turns.learn(key, last));
  }

  change(endpointId: string, change: JobChange): void {
    const live = this.#open(endpointId);
    const id = (change.after ?? change.before)?.id ?? '';
    const wasLive = live.jobs.has(id);
    this.#touched.add(live);
    this.#uncounted.add(live);
    this.unwritten.compare(live, live.apply(change));
    const undoTurns = live.turns.apply(change);
    this.#undo.push(() => {
      undoTurns();
      this.unwritten.compare(live, live.undo(change));
      // `before` may be a job of a list, which is not complete.
      if (!wasLive) live.drop(id, change.before);
    });
  }

  /** The database, which has all changes, has changed these jobs in this way. */
  changeStored(endpointId: string, change: JobChange, ids: readonly string[]): void {
    const live = this.#open(endpointId);
    this.#touched.add(live);
    this.#uncounted.add(live);
    this.#undo.push(live.changeStored(change, ids));
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
    this.#setPayloads(job, { ...job.payloads, ...payloads });
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

  #setPayloads(job: ChangedJob, payloads: InlinePayloads): void {
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
    yield* this.unwritten.write((live, job) => this.#noteWritten(live, job));
    yield* this.#writeCounts();
  }

  *#writeCounts(): Step<void> {
    const all = new Map<string, CountsRow>();
    for (const { counts, id, turns } of this.#uncounted) {
      if (!counts && !turns.isDirty) continue;
      all.set(id, { ...(counts ?? noCounts()), turns: turns.isDirty ? turns.text : undefined });
    }
    if (all.size > 0) yield* this.#tables.addCounts(all);
    for (const live of this.#uncounted) {
      const reset = live.resetCounts();
      const { isDirty } = live.turns;
      live.turns.isDirty = false;
      this.#uncounted.delete(live);
      this.#undo.push(() => {
        reset();
        live.turns.isDirty ||= isDirty;
        this.#uncounted.add(live);
      });
    }
  }

  #noteWritten(live: LiveEndpoint, job: ChangedJob): void {
    const { now, stored } = job;
    if (job.payloads.output) job.hasOutput = true;
    this.#setPayloads(job, NO_PAYLOADS);
    job.stored = now;
    this.#undo.push(() => {
      job.stored = stored;
      this.unwritten.compare(live, job);
    });
  }

  /** The commit is over, whether it succeeded or was undone: keeps what stays in memory. */
  settle(): void {
    for (const live of this.#touched) {
      for (const { now } of live.changed.values()) if (now) this.#settleJob(live, now);
      live.changed.clear();
      live.newKeys.clear();
      live.searchedRows = 0;
      this.#shorten(live, this.#countKept(live));
      if (!live.isRemoved) continue;
      live.turns.forget();
      this.#endpoints.delete(live.id);
    }
    this.#touched.clear();
    this.unwritten.clear();
    this.#uncounted.clear();
    this.#undo.length = 0;
    this.#groups.trim();
    this.#dropEnded();
    for (const live of this.#windows) {
      if (this.#windowed <= this.#maxWindowed) return;
      // By half: a window that is dropped whole is read again at the next turn of its endpoint.
      this.#shorten(live, live.window.size > FIRST_WINDOW_JOBS ? live.window.size >>> 1 : 0);
    }
  }

  #countKept({ isRemoved, window }: LiveEndpoint): number {
    if (isRemoved) return 0;
    return window.size > WINDOW_GROWTH * this.#windowJobs ? this.#windowJobs : window.size;
  }

  #settleJob(live: LiveEndpoint, job: StoredJob): void {
    if (job.lease !== null) {
      if (measure(job) <= MAX_LEASED_SIZE) return;
      this.leased.shrink(job);
      live.jobs.delete(job.id);
    } else if (!live.window.has(job)) {
      if (isTerminal(job.status) && measure(job) === 0) this.#ended.push({ endpoint: live, job });
      else live.jobs.delete(job.id);
    }
  }

  /** Jobs that are no longer in the window. */
  #drop(live: LiveEndpoint, jobs: readonly StoredJob[]): void {
    for (const { id, lease } of jobs) {
      if (lease === null && !live.changed.has(id)) live.jobs.delete(id);
    }
  }

  #shorten(live: LiveEndpoint, kept: number): void {
    this.#drop(live, live.window.trim(kept));
    this.#windowed += live.window.size - live.counted;
    live.counted = live.window.size;
    if (live.counted > 0) this.#windows.add(live);
    else this.#windows.delete(live);
  }

  #dropEnded(): void {
    const excess = this.#ended.length - this.#maxEnded;
    // In larger steps, because a removal from the front moves all others.
    if (excess < this.#maxEnded) return;
    for (const { endpoint, job } of this.#ended.splice(0, excess)) {
      // Unless a retry has changed it.
      if (endpoint.jobs.get(job.id) === job) endpoint.jobs.delete(job.id);
    }
  }

  #open(id: string): LiveEndpoint {
    let live = this.#endpoints.get(id);
    if (!live) {
      live = new LiveEndpoint(id, this.leased, this.#groups);
      this.#endpoints.set(id, live);
    }
    return live;
  }
}

/** About the size of what makes a job large, characters. */
function measure({ attachment, error, history, progress }: StoredJob): number {
  let size = (progress?.length ?? 0) + (attachment?.handlerData?.length ?? 0);
  if (error) size += error.message.length + (error.stack?.length ?? 0);
  for (const { message } of history) size += message.length;
  return attachment || error || history.length > 0 ? size + 1 : size;
}
