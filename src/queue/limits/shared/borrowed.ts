// What a shard has borrowed of a shared limit that belongs to another shard: places for running jobs, and permits to start
// some, which end by themselves. Decides what to report, to give back, and to ask for.
import { ASK_MS, type LimitTerms, type Moment, PERMIT_MS } from './ledger.ts';
import type { LoanGrant, LoanReport } from './loans.ts';
import { Turns } from './turns.ts';

/** Starts to ask for ahead of need: as many as in this time before, ms. */
const AHEAD_MS = 500;
/** Most starts to ask for at once. */
const MAX_WANT = 10_000;
/** Places and permits that were not used for so long go back, ms. */
const IDLE_MS = 1_000;

export type BorrowedReport = Omit<LoanReport, 'group' | 'limitId'>;

export class BorrowedLimit {
  readonly turns = new Turns();
  pausedUntil = Number.NEGATIVE_INFINITY;
  /** When to report next; Infinity: there is nothing to report. */
  askAt = Number.POSITIVE_INFINITY;
  /** Jobs that may run here. */
  #slots = 0;
  #permits = 0;
  #permitsEndAt = 0;
  #used = 0;
  /** An answer is on its way that replaces what was given back. */
  #isAsking = false;
  #isWaitedFor = false;
  #usedAt = Number.NEGATIVE_INFINITY;
  /** Starts since the last report, and when that was. */
  #fresh = 0;
  #reportedAt = 0;
  #pauseForMs = 0;
  /** When the window of the limit lets jobs start, as far as is known. */
  #freeAt: number | undefined;
  /** The last answer did not grant what was wanted. */
  #isRefused = false;
  /** Since when the shard of the limit knows that it has nothing. */
  #emptySince = 0;

  free({ now, running, terms }: Moment): number {
    if (this.pausedUntil > now || this.#isAsking) return 0;
    const permits = terms.rateLimit
      ? this.#permitsEndAt > now
        ? this.#permits
        : 0
      : Number.POSITIVE_INFINITY;
    const slots = terms.concurrency === null ? Number.POSITIVE_INFINITY : this.#slots - running;
    return Math.max(0, Math.min(permits, slots));
  }

  /** As in the ledger; undefined also if it is not known. */
  freeAt(_terms: LimitTerms, now: number): number | undefined {
    const at = Math.max(this.pausedUntil, this.#freeAt ?? Number.NEGATIVE_INFINITY);
    return at > now ? at : undefined;
  }

  /** Whether the limit is known to be used up: otherwise nobody has asked yet. */
  get isRefused(): boolean {
    return this.#isRefused;
  }

  start({ rateLimit }: LimitTerms, count: number, now: number): void {
    if (rateLimit) this.#permits = Math.max(0, this.#permits - count);
    this.#used += count;
    this.#fresh += count;
    this.#usedAt = now;
    this.askAt = Math.min(this.askAt, now + ASK_MS);
  }

  /** Here at once; other shards learn of it. */
  pause(until: number, now: number): void {
    this.pausedUntil = Math.max(this.pausedUntil, until);
    this.#pauseForMs = Math.max(this.#pauseForMs, until - now);
    this.askAt = now;
  }

  /** Asks at once if it can give back what others wait for, or if somebody waits here and no answer says when to ask. */
  noteChange(moment: Moment): void {
    if (this.#isAsking) return;
    const { now, running, terms } = moment;
    const hasIdle = terms.concurrency !== null && this.#slots > running;
    const hasPermits = this.#permits > 0 && this.#permitsEndAt > now;
    const isReturning = this.#isWaitedFor && (hasIdle || hasPermits);
    const isAsking = this.turns.size > 0 && !this.#isRefused && this.free(moment) === 0;
    if (isReturning || isAsking) this.askAt = Math.min(this.askAt, now);
  }

  /** Since then it has nothing, and nobody waits; Infinity: it has, or somebody does. */
  get emptyAt(): number {
    const isEmpty = this.askAt === Number.POSITIVE_INFINITY && this.turns.size === 0;
    return isEmpty ? Math.max(this.pausedUntil, this.#emptySince) : Number.POSITIVE_INFINITY;
  }

  /** Within an operation, which sees all jobs that have started. Until the answer, nothing starts that it gives back. */
  report({ now, running, terms }: Moment): BorrowedReport {
    const waiting = this.turns.demand;
    const isUsed = now - this.#usedAt < IDLE_MS;
    const ahead = terms.rateLimit && !this.#isWaitedFor ? this.#expect(now) : 0;
    const hasEnough = waiting === 0 && this.free({ now, running, terms }) > ahead / 2;
    const want = hasEnough || !(waiting > 0 || isUsed) ? 0 : Math.min(MAX_WANT, waiting + ahead);
    // What is asked for is given back first: places without permits, or permits without places, are of no use.
    const isReturning = want > 0 || this.#isWaitedFor || !isUsed;
    if (isReturning || this.#permitsEndAt <= now) this.#permits = 0;
    if (isReturning || this.#slots < running) this.#slots = running;
    this.#isAsking = want > 0;
    this.#fresh = 0;
    this.#reportedAt = now;
    this.askAt = Number.POSITIVE_INFINITY;
    return {
      used: this.#used,
      slots: this.#slots,
      permits: this.#permits,
      want,
      weight: Math.max(1, this.turns.weight),
      pauseForMs: this.#pauseForMs,
    };
  }

  /** Starts to have ahead of need. */
  #expect(now: number): number {
    return Math.ceil((this.#fresh * AHEAD_MS) / Math.max(AHEAD_MS, now - this.#reportedAt));
  }

  /** `sentAt`: before the report left. */
  grant(
    report: BorrowedReport,
    grant: LoanGrant,
    { now, sentAt }: { now: number; sentAt: number },
  ): void {
    this.#isAsking = false;
    this.#slots += grant.slots;
    if (grant.permits > 0) {
      this.#permits += grant.permits;
      this.#permitsEndAt = sentAt + PERMIT_MS;
    }
    this.#isWaitedFor = grant.isWaitedFor;
    const got = Math.max(grant.slots, grant.permits);
    this.#isRefused = report.want > got && this.turns.demand > got;
    this.#freeAt = grant.freeInMs === null ? undefined : sentAt + grant.freeInMs;
    if (this.#pauseForMs <= report.pauseForMs) this.#pauseForMs = 0;
    if (grant.pausedForMs > 0)
      this.pausedUntil = Math.max(this.pausedUntil, now + grant.pausedForMs);
    const isHolding = this.#slots > 0 || this.#permits > 0;
    if (this.#isRefused) this.askAt = now + Math.max(20, grant.waitMs);
    else if (isHolding || this.turns.size > 0) this.askAt = now + ASK_MS;
    if (this.#pauseForMs > 0) this.askAt = now;
    this.#emptySince = now;
  }

  /** The report got no answer: it has what it reported, and no more. */
  fail(now: number, retryMs: number): void {
    this.#isAsking = false;
    this.askAt = now + retryMs;
  }
}
