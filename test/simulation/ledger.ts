// Records the events of a simulated world at the store, the link and the workers, and reports changes that
// must never happen. verdict.ts checks how the jobs ended.
import type { Clock } from '../../src/base/clock.ts';
import { describeEnd } from '../../src/queue/lifecycle/links.ts';
import { type JobTick, NO_GROUP, type StoredJob } from '../../src/store/store.ts';
import { isTerminal, type ParentEnd } from '../../src/wire/job/job.ts';
import type { LeaseRef, Report, ReportReply, WorkerLink } from '../../src/wire/link/worker-link.ts';
import type { RateLimit } from '../../src/wire/resources/field.ts';
import type { RemainingReports } from '../../src/worker/reports/attempt-reports.ts';
import type { BulkChange } from './bulk-change.ts';
import { GPU_TYPES } from './job-plan.ts';

const LEASE_MS = 15_000;
const MAX_RELEASES = 10;

interface JobNotes {
  /** The last version written. */
  last: StoredJob;
  tokens: Set<string>;
  /** The newest token. */
  token: string | undefined;
  /** How often the job was requeued without a counted failure or release. */
  uncounted: number;
  /** Attempts before the last retry by a client, which resets the counters. */
  attemptsBefore: number;
}

/** Events that a large run must cover; a run without one of them tests too little. */
export const EVENTS = [
  'COMPLETED',
  'FAILED',
  'TIMED_OUT',
  'CANCELLED',
  'removed',
  'retried',
  'suspect',
  'postponed',
  'lease_expired',
  'worker_crashed',
  'revived',
  'inherited',
  'duplicate',
  'superseded',
  'gone',
  'reset',
  'commit_failed',
  'of_group',
  'near_rate_limit',
  'paused',
  'passed_over',
  'outgrown',
  'on_later_gpu',
  'ticked',
  'child_leased',
  'parent_failed',
  'filled',
  'bulk_cancel',
  'bulk_retry',
  'bulk_delete',
  'bulk_repeated',
] as const;
export type WorldEvent = (typeof EVENTS)[number];

export interface LedgerOptions {
  /** Most leases of one group. Default: any number. */
  groupLimit?: number | undefined;
  /** Most leases in any time of a length, of all jobs and of one group. Default: any number. */
  rateLimit?: RateLimit;
  groupRateLimit?: RateLimit;
  /** How much the platform's clock may differ from the ledger's, ms. Default: 0. */
  toleranceMs?: number;
  /** How jobs have ended, by ID. Ledgers share it if their jobs wait for each other. Default: a new one. */
  ends?: Map<string, Set<ParentEnd>>;
}

export class Ledger {
  readonly faults: string[] = [];
  /** All changes in order: the same for the same seed. */
  readonly trace: string[] = [];
  readonly events = new Map<WorldEvent, number>();
  /** Kinds of the outcomes that the platform acknowledged, by job and attempt. */
  readonly acknowledged = new Map<string, Map<number, string>>();
  /** By job: the attempt whose completion was on the disk of a process when the process died. */
  readonly survived = new Map<string, number>();
  /** Index of the GPU type of each worker in the endpoint's order; empty without GPUs. */
  readonly gpus = new Map<string, number>();
  /** Times of the ticks that have made a job, by schedule. */
  readonly ticks = new Map<string, Set<number>>();
  /** IDs of jobs that a client retried. */
  readonly retried = new Set<string>();
  /** Jobs as they are stored, by ID. */
  readonly stored = new Map<string, StoredJob>();
  /** Jobs that a change of many has cancelled or deleted, by ID. */
  readonly bulkCancelled = new Set<string>();
  readonly bulkDeleted = new Set<string>();
  /** The change of many jobs whose requests run now. */
  bulk: BulkChange | undefined;
  readonly #clock: Clock;
  readonly #toleranceMs: number;
  readonly #jobs = new Map<string, JobNotes>();
  readonly #applied = new Set<string>();
  /** How each job has ended so far, by ID: it may be retried. */
  readonly #ends: Map<string, Set<ParentEnd>>;
  /** Jobs that some worker may take, by ID. */
  readonly #ready = new Map<string, StoredJob>();
  /** Number of valid leases of each group. */
  readonly #held = new Map<string, number>();
  #platformStartedAt = Number.NEGATIVE_INFINITY;
  /** Most leases of one group. */
  readonly #groupLimit: number;
  readonly #limits: Pick<LedgerOptions, 'groupRateLimit' | 'rateLimit'>;
  /** What is paused for sure, and what may be: groups; null is the endpoint. */
  readonly #paused = new Set<string | null>();
  readonly #maybePaused = new Set<string | null>();
  /** Times of the leases of each group; null: of all jobs. */
  readonly #starts = new Map<string | null, number[]>();

  constructor(
    clock: Clock,
    {
      ends = new Map(),
      groupLimit = Number.POSITIVE_INFINITY,
      toleranceMs = 0,
      ...limits
    }: LedgerOptions = {},
  ) {
    this.#ends = ends;
    this.#limits = limits;
    this.#clock = clock;
    this.#toleranceMs = toleranceMs;
    this.#groupLimit = groupLimit;
  }

  platformRestarted(): void {
    this.#platformStartedAt = this.#clock.now();
  }

  /** `asked`: a pause or a resume was sent. `done`: it was answered. */
  notePause(group: string | null, change: 'pause' | 'resume', step: 'asked' | 'done'): void {
    const [sure, maybe] = [this.#paused, this.#maybePaused];
    if (change === 'pause') (step === 'asked' ? maybe : sure).add(group);
    else (step === 'asked' ? sure : maybe).delete(group);
    if (change === 'pause' && step === 'done') this.count('paused');
  }

  job(id: string): StoredJob | undefined {
    return this.#jobs.get(id)?.last;
  }

  count(event: WorldEvent): void {
    this.events.set(event, (this.events.get(event) ?? 0) + 1);
  }

  /** Records a committed change of a job. */
  note(before: StoredJob | undefined, after: StoredJob | undefined): void {
    if (before) this.#noteChange(before, after);
    else if (after?.tick) this.#noteTick(after.tick);
    this.#noteParentEnd(before, after);
    this.#countLease(before, -1);
    this.#countLease(after, 1);
    const id = (after ?? before)?.id ?? '';
    if (after) this.stored.set(id, after);
    else this.stored.delete(id);
    if (after?.status === 'IN_QUEUE' && !after.delayed) this.#ready.set(id, after);
    else this.#ready.delete(id);
  }

  #noteTick({ at, scheduleId }: JobTick): void {
    this.count('ticked');
    const known = this.ticks.get(scheduleId) ?? new Set();
    if (known.has(at)) this.faults.push(`the tick at ${at} of ${scheduleId} has made two jobs`);
    this.ticks.set(scheduleId, known.add(at));
  }

  #noteParentEnd(before: StoredJob | undefined, after: StoredJob | undefined): void {
    const job = after ?? before;
    const wasOpen = !before || !isTerminal(before.status);
    const end = after ? describeEnd(after) : wasOpen ? 'REMOVED' : undefined;
    if (!job || end === undefined) return;
    this.#ends.set(job.id, (this.#ends.get(job.id) ?? new Set<ParentEnd>()).add(end));
  }

  /** A job starts once its parents have ended, as its policies allow. */
  #noteChild(before: StoredJob, after: StoredJob): void {
    const parents = before.links?.parents ?? [];
    if (parents.length > 0) this.count('child_leased');
    for (const { ended, id, onFailure } of parents) {
      if (ended === undefined || !this.#ends.get(id)?.has(ended)) {
        this.#complain(before, after, `was leased before its parent ${id} has ended`);
      } else if (ended !== 'COMPLETED' && onFailure !== 'run') {
        this.#complain(before, after, `was leased, though its parent ${id} is ${ended}`);
      }
    }
    if (before.links?.filled) this.count('filled');
    if (parents.some(({ as }) => as !== undefined) && !before.links?.filled) {
      this.#complain(before, after, 'was leased without the outputs of its parents');
    }
  }

  #countLease(job: StoredJob | undefined, times: number): void {
    const group = job?.group ?? null;
    if (group === null || !job?.lease || job.lease.lost !== null) return;
    this.#held.set(group, (this.#held.get(group) ?? 0) + times);
  }

  /** Whether the group may have one more lease for this job: those before it come first, also if they wait for a worker. */
  #hasRoom(job: StoredJob): boolean {
    const { group } = job;
    if (this.#maybePaused.has(group ?? NO_GROUP)) return false;
    if (group === null) return true;
    // Commits that failed count in its window.
    if (this.#limits.groupRateLimit) return false;
    const before = [...this.#ready.values()].filter(
      (other) => other.group === group && isBefore(other, job),
    );
    return (this.#held.get(group) ?? 0) + before.length < this.#groupLimit;
  }

  #noteChange(before: StoredJob, after: StoredJob | undefined): void {
    const notes = this.#find(before);
    const name = this.#nameOf(before.id);
    const now = this.#clock.now();
    this.trace.push(`${now} ${name} ${before.status} → ${after?.status} ${after?.attempt}`);
    this.#noteBulk(before, after);
    if (!after) {
      this.count('removed');
      return;
    }
    this.#countChange(before, after);
    if (after.attempt !== before.attempt) this.#noteLease(notes, before, after);
    else if (after.lease && before.lease && after.lease.token !== before.lease.token) {
      this.#complain(before, after, 'another token in the same attempt');
    }
    this.#noteEnd(notes, before, after);
    notes.last = after;
  }

  #noteBulk(before: StoredJob, after: StoredJob | undefined): void {
    const { bulk } = this;
    if (!bulk?.isOne(before, after, this.#clock.now())) return;
    this.count(`bulk_${bulk.change}`);
    if (bulk.change === 'retry') this.retried.add(before.id);
    if (bulk.change === 'cancel') this.bulkCancelled.add(before.id);
    if (bulk.change === 'delete') this.bulkDeleted.add(before.id);
    const flaw = bulk.judge(before);
    if (flaw !== undefined) this.faults.push(`job ${before.id}: ${before.status}: ${flaw}`);
  }

  /** Wraps the platform's link and records every report and its answer. */
  watch(link: WorkerLink): WorkerLink {
    return {
      ...link,
      report: async (request) => {
        const wereOld = request.reports.map((report) => this.#isOld(report));
        const replies = await link.report(request);
        for (const [index, report] of request.reports.entries()) {
          const reply = replies[index];
          if (reply) this.#noteAnswer(report, reply, { wasOld: wereOld[index] === true });
        }
        return replies;
      },
    };
  }

  /** Records a reply that reached the worker, which then drops the report. */
  noteReply(report: Report, { answer }: ReportReply): void {
    if (report.kind !== 'outcome' || (answer !== 'applied' && answer !== 'duplicate')) return;
    const attempts = this.acknowledged.get(report.jobId) ?? new Map<number, string>();
    this.acknowledged.set(report.jobId, attempts.set(report.attempt, report.outcome.kind));
  }

  /** Records the reports on the disk of a process that died. */
  noteLeft(attempts: readonly { lease: LeaseRef; remaining: RemainingReports }[]): void {
    for (const { lease, remaining } of attempts) {
      const last = remaining.reports.at(-1);
      const isCompletion = last?.kind === 'outcome' && last.outcome.kind === 'completed';
      const isCurrent = this.#jobs.get(lease.jobId)?.last.lease?.token === lease.token;
      if (isCompletion && isCurrent) this.survived.set(lease.jobId, lease.attempt);
    }
  }

  #find(job: StoredJob): JobNotes {
    const known = this.#jobs.get(job.id);
    if (known) return known;
    const notes: JobNotes = {
      last: job,
      tokens: new Set(),
      token: undefined,
      uncounted: 0,
      attemptsBefore: 0,
    };
    this.#jobs.set(job.id, notes);
    return notes;
  }

  /** IDs differ between runs; the order in which jobs first change does not. */
  #nameOf(id: string): number {
    return [...this.#jobs.keys()].indexOf(id);
  }

  #noteStart(job: StoredJob, group: string | null, limit: RateLimit | undefined): void {
    if (!limit || job.startedAt === null) return;
    const starts = this.#starts.get(group) ?? [];
    this.#starts.set(group, starts);
    const first = starts.at(-limit.max);
    starts.push(job.startedAt);
    if (first === undefined) return;
    const spanMs = job.startedAt - first;
    if (spanMs < limit.perMs) this.#complain(job, job, `was one too many in ${spanMs} ms`);
    if (spanMs < 2 * limit.perMs) this.count('near_rate_limit');
  }

  #noteLease(notes: JobNotes, before: StoredJob, after: StoredJob): void {
    const better = [...this.#ready.values()].find(
      (other) => isForAnyWorker(other) && isBefore(other, before) && this.#hasRoom(other),
    );
    if (better && isForAnyWorker(before)) {
      this.#complain(before, after, `was leased, though job ${better.id} is before it`);
    }
    const older = [...this.#ready.values()].find(
      (other) => isForAnyWorker(other) && isOlderOfGroup(other, before),
    );
    if (older) this.#complain(before, after, `was leased, though job ${older.id} is older`);
    if (before.group !== null) {
      this.count('of_group');
      const held = this.#held.get(before.group) ?? 0;
      if (held >= this.#groupLimit) this.#complain(before, after, 'its group was at the limit');
      const passed = [...this.#ready.values()].some((other) => !this.#hasRoom(other));
      if (passed) this.count('passed_over');
    }
    const isPaused = this.#paused.has(null) || this.#paused.has(before.group ?? NO_GROUP);
    if (isPaused) this.#complain(before, after, 'was leased during a pause');
    const { groupRateLimit, rateLimit } = this.#limits;
    this.#noteStart(after, null, rateLimit);
    if (before.group !== null) this.#noteStart(after, before.group, groupRateLimit);
    this.#noteGpu(before, after);
    this.#noteChild(before, after);
    if (after.attempt !== before.attempt + 1) this.#complain(before, after, 'skipped an attempt');
    const isHeld = before.status === 'IN_PROGRESS' || before.lease?.lost === null;
    if (isHeld) this.#complain(before, after, 'a second live lease');
    const token = after.lease?.token;
    if (token === undefined || notes.tokens.has(token)) {
      this.#complain(before, after, 'an attempt without a token of its own');
      return;
    }
    notes.token = token;
    notes.tokens.add(token);
    const paidFor = after.failures + after.releases + notes.uncounted + 1;
    const attempts = after.attempt - notes.attemptsBefore;
    if (attempts > paidFor) this.#complain(before, after, `${attempts} attempts for ${paidFor}`);
  }

  /** A job never returns to a GPU type on which it ran out of memory, nor to an earlier one. */
  #noteGpu(before: StoredJob, after: StoredJob): void {
    const outgrown = before.history.flatMap(({ outgrownGpuType: type }) =>
      type === undefined ? [] : GPU_TYPES.indexOf(type),
    );
    if (outgrown.length === 0) return;
    const gpu = this.gpus.get(after.lease?.workerId ?? '') ?? -1;
    if (gpu > Math.max(...outgrown)) this.count('on_later_gpu');
    else this.#complain(before, after, `has outgrown ${Math.max(...outgrown)}, and got GPU ${gpu}`);
  }

  #noteEnd(notes: JobNotes, before: StoredJob, after: StoredJob): void {
    const isBack = after.status === 'IN_QUEUE' && before.status !== 'IN_QUEUE';
    if (isTerminal(before.status) && before.status !== after.status) {
      const mayRetry = ['FAILED', 'TIMED_OUT', 'SKIPPED'].includes(describeEnd(before) ?? '');
      const isAsked = this.retried.has(before.id);
      if (!isBack || !mayRetry || !isAsked) this.#complain(before, after, 'left a terminal status');
      notes.attemptsBefore = before.attempt;
      notes.uncounted = 0;
    } else if (after.status === 'IN_QUEUE' && isPostponed(after) && !isPostponed(before)) {
      // Perhaps after its lease was lost, which the report has undone.
      this.count('postponed');
      notes.uncounted++;
      if (after.failures > before.failures) this.#complain(before, after, 'counted a postponement');
      if (after.expiresAt > before.expiresAt) this.#complain(before, after, 'extended its ttl');
    } else if (isBack && after.failures === before.failures && after.releases === before.releases) {
      this.count('suspect');
      notes.uncounted++;
      if (before.solo || !after.solo) this.#complain(before, after, 'requeued uncounted');
    }
    if (after.failures > after.maxAttempts) this.#complain(before, after, 'failed too often');
    if (after.releases > MAX_RELEASES) this.#complain(before, after, 'released too often');
    if (after.dueAt > after.expiresAt) this.#complain(before, after, 'due after it expires');
    const hasExpired = before.lease?.lost === null && (after.lease?.lost ?? null) !== null;
    const sinceMs = this.#clock.now() - this.#platformStartedAt;
    if (hasExpired && sinceMs < LEASE_MS - this.#toleranceMs) {
      this.#complain(before, after, `expired ${sinceMs} ms after the platform came back`);
    }
  }

  #countChange(before: StoredJob, after: StoredJob): void {
    if (after.status !== before.status && isTerminal(after.status)) this.count(after.status);
    if (isTerminal(before.status) && !isTerminal(after.status)) this.count('retried');
    if (after.status !== before.status && after.error?.code === 'parent_failed') {
      this.count('parent_failed');
    }
    if (before.lease?.lost && after.lease?.lost === null) this.count('revived');
    const isSame = before.lease !== null && before.lease.token === after.lease?.token;
    if (isSame && before.lease?.incarnation !== after.lease?.incarnation) this.count('inherited');
    const isLonger = after.history.length > before.history.length;
    if (isLonger && after.history.at(-1)?.outgrownGpuType !== undefined) this.count('outgrown');
    const code = isLonger && after.history.at(-1)?.code;
    if (code === 'lease_expired' || code === 'worker_crashed') this.count(code);
  }

  /** Whether a newer attempt started before the report arrived. */
  #isOld({ jobId, token }: Report): boolean {
    const notes = this.#jobs.get(jobId);
    return notes !== undefined && notes.token !== token;
  }

  #noteAnswer(report: Report, { answer }: ReportReply, { wasOld }: { wasOld: boolean }): void {
    const { jobId, attempt, token, seq, kind } = report;
    if (answer !== 'applied') {
      if (answer !== 'gap') this.count(answer);
      return;
    }
    const name = `report ${seq} (${kind}) of attempt ${attempt} of job ${jobId}`;
    if (wasOld) this.faults.push(`${name} was applied, though a newer attempt has the job`);
    const key = `${token} ${seq}`;
    if (this.#applied.has(key)) this.faults.push(`${name} was applied twice`);
    this.#applied.add(key);
  }

  #complain(before: StoredJob, after: StoredJob, what: string): void {
    const change = `${before.status} → ${after.status}, attempt ${before.attempt} → ${after.attempt}`;
    this.faults.push(`job ${before.id}: ${change}: ${what}`);
  }
}

/** Whether the job is ready, need not run alone, and no worker may still run it. */
function isForAnyWorker({ delayed, lease, solo, status }: StoredJob): boolean {
  return status === 'IN_QUEUE' && !delayed && !solo && lease === null;
}

/** Whether both wait for their first lease in one group and priority, and the other came first. */
function isOlderOfGroup(other: StoredJob, job: StoredJob): boolean {
  const isSame = other.group === job.group && other.priority === job.priority;
  return isSame && other.attempt === 0 && job.attempt === 0 && other.position < job.position;
}

/** Whether the first one must be leased first: it is more urgent, or before the other one of its group. */
function isBefore(one: StoredJob, other: StoredJob): boolean {
  if (one.priority !== other.priority) return one.priority > other.priority;
  return one.group === other.group && one.place < other.place;
}

/** The handler of the last attempt has asked for a later one. */
function isPostponed({ attempt, notes }: StoredJob): boolean {
  return notes.some((note) => note.event === 'postponed' && note.attempt === attempt);
}
