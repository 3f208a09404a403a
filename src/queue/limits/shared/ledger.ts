// What has started and runs under a shared limit, kept by the queue of its shard: the starts of the window, what is lent to
// other shards, and who is next. What is lent counts as used until its shard gives it back.
import { z } from 'zod';
import type { SharedLimitRecord } from '../../../wire/resources/shared-limit.ts';
import { GrantWindow } from '../grant-window.ts';
import type { LoanGrant, LoanReport } from './loans.ts';
import { sum, Turns } from './turns.ts';

export type LimitTerms = Pick<SharedLimitRecord, 'concurrency' | 'rateLimit'>;

/**
 * How long lent permits count as unused, ms. A shard uses them for a shorter time, which it counts from before it asked, so no
 * start comes later.
 */
const LENT_MS = 3_000;
/** How long a shard uses permits, ms. */
export const PERMIT_MS = 2_500;
/** Longest time after which a shard asks again, ms. */
export const ASK_MS = 1_000;
/** After which it asks for places that others have, ms: nobody knows when they are free. */
const ASK_SLOTS_MS = 200;
/** An offer to another shard lasts until it has asked again. */
const SHARD_OFFER_MS = 1_500;

/** Times are those of the ledger: run times of the platform, ms. */
export const storedLedger = z.object({
  group: z.string().nullable(),
  entries: z.array(z.tuple([z.number(), z.number(), z.int()])),
  loans: z.array(
    z.object({
      shard: z.int(),
      session: z.number(),
      slots: z.int(),
      permits: z.int(),
      used: z.int(),
      charged: z.int(),
    }),
  ),
  pausedUntil: z.number().nullable(),
});
export type StoredLedger = z.infer<typeof storedLedger>;

interface Loan {
  /** Start of the queue that has it. */
  session: number;
  /** Jobs that may run there. */
  slots: number;
  /** Jobs that may start there, or have started there unreported, and until when. */
  permits: number;
  until: number;
  /** Starts that it has reported. */
  used: number;
  /** Permits that ended unreported: they count as started, and are not counted when it reports them. */
  charged: number;
}

interface Borrower {
  shard: number;
  session: number;
}

export interface Moment {
  terms: LimitTerms;
  /** Jobs of the limit's own shard that run. */
  running: number;
  now: number;
}

export class LimitLedger {
  readonly turns = new Turns();
  /** Nobody starts jobs before. */
  pausedUntil = Number.NEGATIVE_INFINITY;
  readonly #window: GrantWindow;
  readonly #loans = new Map<number, Loan>();

  constructor(stored?: StoredLedger, now = 0) {
    const { entries = [], loans = [], pausedUntil } = stored ?? {};
    this.#window = new GrantWindow(entries, now);
    if (typeof pausedUntil === 'number') this.pausedUntil = pausedUntil;
    for (const { shard, ...loan } of loans) {
      this.#loans.set(shard, { ...loan, until: now + LENT_MS });
    }
  }

  /** Jobs that may start now, here or in other shards. */
  free({ now, running, terms }: Moment): number {
    const { concurrency, rateLimit } = terms;
    if (this.pausedUntil > now) return 0;
    this.#charge(terms, now);
    const permits = rateLimit
      ? this.#window.free(rateLimit, now) - this.#lentPermits
      : Number.POSITIVE_INFINITY;
    const slots =
      concurrency === null
        ? Number.POSITIVE_INFINITY
        : concurrency - running - sum([...this.#loans.values()].map((loan) => loan.slots));
    return Math.max(0, Math.min(permits, slots));
  }

  /** When window or pause let a job start, if they hold jobs back. */
  freeAt({ rateLimit }: LimitTerms, now: number): number | undefined {
    if (this.pausedUntil > now) return this.pausedUntil;
    if (!rateLimit || this.#window.free(rateLimit, now) > this.#lentPermits) return undefined;
    const at = this.#window.freeAt(rateLimit);
    // Shards give back what they do not use.
    return at > now ? at : Math.min(now + ASK_MS, this.nextChargeAt);
  }

  /** Jobs of this shard start. */
  start({ rateLimit }: LimitTerms, count: number, now: number): void {
    if (rateLimit) this.#window.add(count, rateLimit, now);
  }

  pause(until: number): void {
    this.pausedUntil = Math.max(this.pausedUntil, until);
  }

  /** Since then nothing counts, and nobody waits; Infinity: something does. */
  emptyAt({ rateLimit }: LimitTerms): number {
    if (this.#loans.size > 0 || this.turns.size > 0) return Number.POSITIVE_INFINITY;
    const at = rateLimit ? this.#window.emptyAt(rateLimit) : Number.NEGATIVE_INFINITY;
    return Math.max(this.pausedUntil, at);
  }

  /** When lent permits count as started; Infinity: none is lent. */
  get nextChargeAt(): number {
    const lent = [...this.#loans.values()].filter(({ permits }) => permits > 0);
    return lent.reduce((at, { until }) => Math.min(at, until), Number.POSITIVE_INFINITY);
  }

  /** The queue of the shard that has something; undefined: it has nothing. */
  sessionOf(shard: number): number | undefined {
    return this.#loans.get(shard)?.session;
  }

  /** The shard has another owner, with no more than these running jobs. */
  begin({ session, shard }: Borrower, slots: number, { now, terms }: Moment): void {
    const before = this.#loans.get(shard);
    if (before && before.session >= session) return;
    // Whatever the owner before has started of it.
    if (before && terms.rateLimit) this.#window.add(before.permits, terms.rateLimit, now);
    this.turns.leave(nameShard(shard));
    if (slots === 0) this.#loans.delete(shard);
    else this.#loans.set(shard, { session, slots, permits: 0, until: now, used: 0, charged: 0 });
  }

  /** Takes over what the shard reports, and grants it what it wants. */
  lend(borrower: Borrower, report: LoanReport, moment: Moment): LoanGrant {
    const { now, terms } = moment;
    const { want, weight } = report;
    if (report.pauseForMs > 0) this.pause(now + report.pauseForMs);
    if (this.#loans.has(borrower.shard)) this.begin(borrower, report.slots, moment);
    const loan = this.#note(borrower, report, moment);
    const who = nameShard(borrower.shard);
    // It stands in the line before its share is known, so that those who wait longer come first.
    if (want > 0) this.turns.wait(who, { demand: want, weight, offerMs: SHARD_OFFER_MS, now });
    else this.turns.leave(who);
    const free = this.free(moment);
    this.turns.offer(free, now);
    const extra = Math.min(want, this.turns.shareOf(who, free));
    const slots = terms.concurrency === null ? 0 : extra;
    const permits = terms.rateLimit === null ? 0 : extra;
    loan.slots += slots;
    loan.permits += permits;
    if (permits > 0) loan.until = now + LENT_MS;
    this.turns.took(who, extra, now);
    if (loan.slots === 0 && loan.permits === 0) this.#loans.delete(borrower.shard);
    else this.#loans.set(borrower.shard, loan);
    const freeAt = this.freeAt(terms, now);
    return {
      slots,
      permits,
      isWaitedFor: this.turns.size > (this.turns.has(who) ? 1 : 0),
      waitMs: freeAt === undefined ? ASK_SLOTS_MS : Math.min(ASK_MS, freeAt - now),
      freeInMs: freeAt === undefined ? null : freeAt - now,
      pausedForMs: Math.max(0, this.pausedUntil - now),
    };
  }

  toStored(group: string | null, now: number): StoredLedger {
    return {
      group,
      entries: [...this.#window.entries],
      loans: [...this.#loans].map(([shard, { until: _, ...loan }]) => ({ shard, ...loan })),
      pausedUntil: this.pausedUntil > now ? this.pausedUntil : null,
    };
  }

  #note(
    { session, shard }: Borrower,
    report: LoanReport,
    { now, terms: { rateLimit } }: Moment,
  ): Loan {
    const known = this.#loans.get(shard);
    // Without a loan, it has nothing that is not reported.
    const loan = known ?? { session, permits: 0, until: now, used: report.used, charged: 0 };
    const used = Math.max(0, report.used - loan.used);
    const counted = Math.max(0, used - loan.charged);
    if (rateLimit && counted > 0) this.#window.add(counted, rateLimit, now);
    return {
      session,
      slots: report.slots,
      permits: Math.min(loan.permits, report.permits),
      until: loan.until,
      used: Math.max(loan.used, report.used),
      // Those that it may still have used since then are not in the report.
      charged: Math.min(Math.max(0, loan.charged - used), report.permits),
    };
  }

  /** Permits that ended without a report count as started. */
  #charge({ rateLimit }: LimitTerms, now: number): void {
    for (const [shard, loan] of this.#loans) {
      if (loan.permits === 0 || loan.until > now) continue;
      if (rateLimit) this.#window.add(loan.permits, rateLimit, loan.until);
      loan.charged += loan.permits;
      loan.permits = 0;
      if (loan.slots === 0) this.#loans.delete(shard);
    }
  }

  get #lentPermits(): number {
    return sum([...this.#loans.values()].map(({ permits }) => permits));
  }
}

function nameShard(shard: number): string {
  return `shard ${shard}`;
}
