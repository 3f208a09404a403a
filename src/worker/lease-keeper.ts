// Renews all leases with one long poll. The poll also runs without leases, because its answers carry
// the platform's messages: an attempt was ended, the worker must drain.
import { sleep } from '../base/clock.ts';
import type { LinkError, RenewReply } from '../wire/link/worker-link.ts';
import type { Attempts, RenewedLease } from './attempts.ts';
import type { WorkerParker } from './parking/worker-parking.ts';
import { callWithin, EarlyAnswers, RetryPace, type Session, toLinkError } from './session.ts';
import type { WorkerStarts } from './starts.ts';
import type { CompleteWorkerOptions } from './worker-options.ts';

/** Time beyond the longest wait of a renewal after which its connection counts as dead. */
const RENEW_MARGIN_MS = 5_000;

interface LeaseKeeperParts {
  session: Session;
  attempts: Attempts;
  parker: Pick<WorkerParker, 'describe' | 'noteNoWish' | 'onChange' | 'wish'>;
  starts: Pick<WorkerStarts, 'last'>;
  /** The platform wants the worker to drain; called once. */
  onDrain: () => void;
}

export class LeaseKeeper {
  readonly #options: CompleteWorkerOptions;
  readonly #parts: LeaseKeeperParts;
  readonly #stopping = new AbortController();
  /** The first retry is quick, because the lease must be renewed in time. */
  readonly #pace = new RetryPace({ baseMs: 100, maxMs: 3_000, jitter: 0.2 });
  readonly #earlyAnswers: EarlyAnswers;
  #lastRenewAt: number | undefined;
  #isOverdue = false;
  #drainAsked = false;
  #isReportDue = false;
  #cancelNaming: (() => void) | undefined;

  constructor(options: CompleteWorkerOptions, parts: LeaseKeeperParts) {
    this.#options = options;
    this.#parts = parts;
    this.#earlyAnswers = new EarlyAnswers(options.clock);
    parts.attempts.onAccept(() => this.#nameSoon());
    parts.parker.onChange(() => this.#reportParking());
  }

  /** Time of the last answered renewal, Unix ms. */
  get lastRenewAt(): number | undefined {
    return this.#lastRenewAt;
  }

  /** No renewal was answered for so long that the leases have expired. */
  get isOverdue(): boolean {
    if (this.#isOverdue || this.#lastRenewAt === undefined) return this.#isOverdue;
    return this.#options.clock.now() - this.#lastRenewAt > this.#parts.session.terms.leaseMs;
  }

  stop(): void {
    this.#stopping.abort();
    this.#cancelNaming?.();
  }

  /** Ends after `stop`. @throws LinkError `stale_incarnation` */
  async run(): Promise<void> {
    const { signal } = this.#stopping;
    this.#lastRenewAt = this.#options.clock.now();
    while (!signal.aborted) {
      const askedAt = this.#options.clock.now();
      const reply = await this.#renew();
      if (signal.aborted) return;
      if (!reply) continue;
      this.#noteSuccess();
      const waitMs = this.#parts.session.terms.renewEveryMs;
      await this.#earlyAnswers.slowDown({ askedAt, waitMs, isNews: this.#act(reply) }, signal);
    }
  }

  /** Undefined if the call failed. */
  async #renew(): Promise<RenewReply | undefined> {
    const { signal } = this.#stopping;
    try {
      return await this.#parts.session.callUntilAnswered(() => this.#poll(), {
        verb: 'renew',
        signal,
        pace: this.#pace,
        maxWaitMs: () => this.#parts.session.terms.leaseMs / 3,
        onFailure: (error) => this.#noteFailure(error),
      });
    } catch (thrown) {
      const error = toLinkError(thrown);
      if (signal.aborted) return undefined;
      if (error.code !== 'invalid') throw error;
      const waitMs = this.#pace.next(error);
      this.#noteFailure(error);
      this.#options.log.error({ err: error, waitMs }, 'lease renewal refused');
      await sleep(this.#options.clock, waitMs, signal);
      return undefined;
    }
  }

  #poll(): Promise<RenewReply> {
    const waitMs = this.#parts.session.terms.renewEveryMs;
    return this.#call({ waitMs, leases: this.#parts.attempts.nameAll() });
  }

  #call(asked: { waitMs: number; leases: RenewedLease[] }): Promise<RenewReply> {
    const { link, workerId, incarnation } = this.#options;
    const parking = this.#parts.parker.describe();
    const { last: start } = this.#parts.starts;
    const told = { ...(parking && { parking }), ...(start && { start }) };
    const request = { workerId, incarnation, ...asked, ...told };
    const limitMs = asked.waitMs + RENEW_MARGIN_MS;
    const limits = { clock: this.#options.clock, limitMs, signal: this.#stopping.signal };
    return callWithin(limits, (signal) => link.renew(request, signal));
  }

  /**
   * The open poll does not include leases that arrived after it began. Names them in a call of their
   * own, after a delay, because most of these jobs end before that.
   */
  #nameSoon(): void {
    if (this.#cancelNaming || this.#stopping.signal.aborted) return;
    this.#cancelNaming = this.#options.clock.after(this.#options.nameWithinMs, () => {
      this.#cancelNaming = undefined;
      const leases = this.#parts.attempts.nameNew();
      if (leases.length === 0) return;
      this.#call({ waitMs: 0, leases }).then(
        (reply) => this.#act(reply),
        // The next poll handles the same error and names all leases again.
        (error: unknown) => this.#options.log.debug({ err: error }, 'first lease renewal failed'),
      );
    });
  }

  /** The open poll has the state of the models from before. Changes of one moment share a call. */
  #reportParking(): void {
    if (this.#isReportDue || this.#stopping.signal.aborted) return;
    this.#isReportDue = true;
    queueMicrotask(() => {
      this.#isReportDue = false;
      this.#call({ waitMs: 0, leases: [] }).then(
        (reply) => this.#act(reply),
        // The next poll says it again.
        (error: unknown) => this.#options.log.debug({ err: error }, 'report of a parking failed'),
      );
    });
  }

  #act(reply: RenewReply): boolean {
    let isNews = false;
    for (const { token, verdict } of reply.ended) {
      if (this.#parts.attempts.revoke(token, verdict)) isNews = true;
    }
    if (!reply.parking) this.#parts.parker.noteNoWish();
    else if (this.#parts.parker.wish(reply.parking, reply.parkingChange)) isNews = true;
    if (reply.drain && !this.#drainAsked) {
      this.#drainAsked = true;
      isNews = true;
      this.#parts.onDrain();
    }
    return isNews;
  }

  #noteSuccess(): void {
    this.#lastRenewAt = this.#options.clock.now();
    this.#options.observer?.leasesRenewed();
    if (this.#isOverdue) this.#options.log.info('lease renewal works again');
    this.#isOverdue = false;
  }

  #noteFailure(error: LinkError): void {
    const sinceMs = this.#options.clock.now() - (this.#lastRenewAt ?? this.#options.clock.now());
    if (this.#isOverdue || sinceMs <= this.#parts.session.terms.leaseMs) return;
    this.#isOverdue = true;
    // A token stays valid until the platform leases the job again, so running jobs continue.
    this.#options.log.error(
      { err: error, sinceMs },
      'lease renewal failed for too long, running jobs continue',
    );
  }
}
