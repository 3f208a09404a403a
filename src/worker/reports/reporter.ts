// Sends reports to the platform with one call at a time; each call carries all reports that wait.
// If the platform requires it, each attempt has its own calls. Notifies each attempt when the
// platform has accepted a report, wants no more reports, or has settled the attempt.
import { setImmediate, sleep } from '../../base/clock.ts';
import {
  type LeaseRef,
  LinkError,
  type Outcome,
  type Report,
  type ReportReply,
  type TracedLeaseRef,
} from '../../wire/link/worker-link.ts';
import { MAX_CHUNKS, MAX_REPORTS } from '../../wire/message-bounds.ts';
import type { ExecutionEnd, ExecutionSink } from '../execution/executor.ts';
import type { Outbox } from '../outbox/outbox.ts';
import { callWithin, RetryPace, type Session, TRANSFER_LIMIT_MS, toLinkError } from '../session.ts';
import type { CompleteWorkerOptions } from '../worker-options.ts';
import type { AttemptReports, SentReport } from './attempt-reports.ts';

const BATCH = { maxReports: MAX_REPORTS, maxBytes: 4 * 1_048_576, maxChunks: MAX_CHUNKS };

interface ReportListener {
  /** This many bytes of chunks were delivered. */
  onDelivered(bytes: number): void;
  /** The results of so many steps are stored. */
  onKept(count: number): void;
  /** The platform does not want this attempt to continue. */
  onSuperseded(): void;
  /** The outcome is acknowledged or not wanted: the lease is over. */
  onSettled(): void;
}

/** Accepts what one attempt produces; nothing may be added after `end`. */
export interface AttemptReportSink extends ExecutionSink {
  end(end: ExecutionEnd): void;
}

interface ReporterParts {
  session: Session;
  /** Called when the platform has rejected the worker permanently. */
  onFatal: (error: LinkError) => void;
  /** Called when reports were answered, so fewer may wait now. */
  onAnswered: () => void;
}

export class Reporter {
  readonly #options: CompleteWorkerOptions;
  readonly #parts: ReporterParts;
  readonly #outbox: Outbox;
  readonly #listeners = new Map<AttemptReports, ReportListener>();
  /** Attempts of an earlier process. */
  readonly #restored = new Set<AttemptReports>();
  readonly #stopping = new AbortController();
  readonly #sending = new Set<Round>();
  readonly #rounds = new ReportRounds();
  #whenEmpty: (() => void)[] = [];

  constructor(options: CompleteWorkerOptions, parts: ReporterParts) {
    this.#options = options;
    this.#parts = parts;
    this.#outbox = options.outbox;
  }

  get depth(): number {
    return this.#outbox.depth;
  }

  /** Too many bytes wait in the outbox: the worker should take no jobs. */
  get isCongested(): boolean {
    return this.#outbox.bytes > this.#options.maxOutboxBytes;
  }

  open(lease: TracedLeaseRef, listener: ReportListener): AttemptReportSink {
    const attempt = this.#outbox.addAttempt(lease);
    this.#listeners.set(attempt, listener);
    const add = (change: () => void) => {
      change();
      this.#wake(attempt);
    };
    return {
      chunks: (message) => add(() => attempt.addChunks(message)),
      progress: (value) => add(() => attempt.addProgress(value)),
      pause: (forMs, limit) => {
        // An older platform would refuse the report.
        const { capabilities } = this.#parts.session.terms;
        if (capabilities?.includes('pause')) add(() => attempt.addPause(forMs, limit));
      },
      ...(this.#parts.session.terms.capabilities?.includes('steps') && {
        step: (name, result) => add(() => attempt.addStep(name, result)),
      }),
      log: (lines, dropped) => add(() => attempt.addLog(lines, dropped)),
      end: (end) => add(() => attempt.addOutcome(end)),
    };
  }

  /** Sends the reports that an earlier process left. Call it once, after the welcome. */
  resume(): void {
    for (const attempt of this.#outbox.restoredAttempts()) {
      this.#restored.add(attempt);
      this.#wake(attempt);
    }
  }

  /** Attempts of an earlier process whose outcome is being delivered. */
  get restored(): LeaseRef[] {
    return [...this.#restored].map((attempt) => attempt.lease);
  }

  /** Resolves when the platform has acknowledged all reports, later ones included. */
  async delivered(): Promise<void> {
    if (this.#outbox.depth === 0) return;
    await new Promise<void>((resolve) => {
      this.#whenEmpty.push(resolve);
    });
  }

  /** Sends nothing more. */
  stop(): void {
    this.#stopping.abort();
  }

  #wake(attempt: AttemptReports): void {
    this.#outbox.notifyChanged(attempt);
    const round = this.#rounds.find(attempt, this.#parts.session.terms.reportsBy);
    if (this.#sending.has(round) || this.#stopping.signal.aborted || attempt.waiting === 0) return;
    this.#sending.add(round);
    // Reports of the same iteration of the event loop share the call.
    setImmediate(() => {
      this.#sendAll(round).catch((error: unknown) => this.#parts.onFatal(toLinkError(error)));
    });
  }

  async #sendAll(round: Round): Promise<void> {
    const limits = round.attempt ? { ...BATCH, only: round.attempt } : BATCH;
    try {
      for (;;) {
        const batch = this.#stopping.signal.aborted ? [] : this.#outbox.takeBatch(limits);
        if (batch.length === 0) break;
        // An outcome is sent only after it is on disk. Other reports may be lost with their attempt.
        if (batch.some(({ report }) => report.kind === 'outcome')) await this.#outbox.flush();
        await this.#deliver(batch, round);
      }
    } catch (error) {
      if (!this.#stopping.signal.aborted) throw error;
    } finally {
      this.#sending.delete(round);
      if (this.#outbox.depth === 0) for (const resolve of this.#whenEmpty.splice(0)) resolve();
    }
  }

  async #deliver(batch: SentReport[], round: Round): Promise<void> {
    const sentReports = batch.filter((sentReport) => sentReport.attempt.isCurrent(sentReport));
    if (sentReports.length === 0) return;
    let replies: ReportReply[];
    try {
      replies = await this.#send(sentReports, round);
    } catch (thrown) {
      const error = toLinkError(thrown);
      if (error.code !== 'invalid' || this.#stopping.signal.aborted) throw error;
      const [only] = sentReports;
      if (sentReports.length === 1 && only) return this.#replace(only, error);
      // One of them is invalid: send the halves separately, so that the others are not affected.
      const middle = Math.ceil(sentReports.length / 2);
      await this.#deliver(sentReports.slice(0, middle), round);
      return this.#deliver(sentReports.slice(middle), round);
    }
    await this.#applyAll(sentReports, replies, round);
  }

  async #send(sentReports: SentReport[], { pace }: Round): Promise<ReportReply[]> {
    const { link, workerId, incarnation } = this.#options;
    const reports = sentReports.map(({ report }) => report);
    const call = () =>
      callWithin({ clock: this.#options.clock, limitMs: TRANSFER_LIMIT_MS }, async () => {
        const replies = await link.report({ workerId, incarnation, reports });
        if (replies.length === reports.length) return replies;
        const counts = `${replies.length} answers to ${reports.length} reports`;
        throw new LinkError('unavailable', `the platform gave ${counts}`);
      });
    const { signal } = this.#stopping;
    return this.#parts.session.callUntilAnswered(call, { verb: 'report', signal, pace });
  }

  async #applyAll(
    sentReports: SentReport[],
    replies: ReportReply[],
    { gapPace }: Round,
  ): Promise<void> {
    let hasGap = false;
    for (const [index, sentReport] of sentReports.entries()) {
      const reply = replies[index];
      if (!reply || !sentReport.attempt.isCurrent(sentReport)) continue;
      if (reply.answer === 'gap') hasGap = true;
      this.#apply(sentReport, reply);
    }
    this.#parts.onAnswered();
    if (!hasGap) {
      gapPace.reset();
      return;
    }
    // The first gap is resent at once; further ones wait, so that the platform is not flooded.
    const waitMs = gapPace.next();
    if (gapPace.failures > 1) await sleep(this.#options.clock, waitMs, this.#stopping.signal);
  }

  #apply({ attempt, report }: SentReport, reply: ReportReply): void {
    if (this.#restored.has(attempt)) this.#logRestored(attempt, report, reply);
    switch (reply.answer) {
      case 'applied':
      case 'duplicate':
        this.#confirm(attempt, report.seq);
        if (report.kind === 'outcome') this.#settle(attempt);
        break;
      case 'gap':
        this.#sendAgain(attempt, reply.expected);
        break;
      case 'superseded':
        if (report.kind === 'outcome') this.#settle(attempt);
        else this.#dropAllButOutcome(attempt);
        break;
      case 'gone':
        this.#giveUp(attempt);
        break;
    }
  }

  #sendAgain(attempt: AttemptReports, expected: number): void {
    this.#confirm(attempt, expected - 1);
    if (attempt.resendFrom(expected)) {
      this.#outbox.notifyChanged(attempt);
      return;
    }
    const job = { job: attempt.lease.jobId, attempt: attempt.lease.attempt };
    this.#options.log.error({ ...job, expected }, 'platform lost reports, attempt given up');
    this.#giveUp(attempt);
  }

  /**
   * The answer may show a cancel before the renewal does. The attempt is stopped, but its outcome
   * is still delivered: the platform may want to know how it was stopped.
   */
  #dropAllButOutcome(attempt: AttemptReports): void {
    attempt.mute();
    this.#outbox.notifyChanged(attempt);
    this.#listeners.get(attempt)?.onSuperseded();
  }

  #confirm(attempt: AttemptReports, seq: number): void {
    const { chunkBytes, steps } = attempt.acknowledge(seq);
    if (chunkBytes > 0) this.#listeners.get(attempt)?.onDelivered(chunkBytes);
    if (steps > 0) this.#listeners.get(attempt)?.onKept(steps);
  }

  #giveUp(attempt: AttemptReports): void {
    this.#listeners.get(attempt)?.onSuperseded();
    this.#settle(attempt);
  }

  #settle(attempt: AttemptReports): void {
    const listener = this.#listeners.get(attempt);
    this.#listeners.delete(attempt);
    this.#restored.delete(attempt);
    this.#rounds.remove(attempt);
    attempt.mute();
    this.#outbox.removeAttempt(attempt);
    listener?.onSettled();
  }

  #logRestored({ lease }: AttemptReports, { kind }: Report, { answer }: ReportReply): void {
    if (kind !== 'outcome' && answer !== 'gone') return;
    const job = { job: lease.jobId, attempt: lease.attempt, answer };
    if (answer === 'applied' || answer === 'duplicate') {
      this.#options.log.info(job, 'outcome of an earlier process delivered');
    } else if (answer !== 'gap') {
      this.#options.log.warn(
        job,
        'outcome of an earlier process dropped, the job no longer needs it',
      );
    }
  }

  #replace({ attempt, report }: SentReport, error: LinkError): void {
    const { lease } = attempt;
    const { kind, seq, body } = report;
    const job = { job: lease.jobId, attempt: lease.attempt };
    const refused = { ...job, kind, seq, bytes: body.length, err: error };
    this.#options.log.error(refused, 'report refused, attempt failed');
    const outcome = kind === 'outcome' ? report.outcome : undefined;
    if (attempt.replaceFrom(seq, describeRefusal(outcome, error))) {
      this.#outbox.notifyChanged(attempt);
      this.#listeners.get(attempt)?.onSuperseded();
    } else {
      this.#giveUp(attempt);
    }
  }
}

function describeRefusal(outcome: Outcome | undefined, error: LinkError): Outcome {
  const executionMs = outcome && outcome.kind !== 'released' ? outcome.executionMs : 0;
  const message = `The platform refused the handler's output: ${error.message}`;
  return {
    kind: 'failed',
    executionMs,
    error: { code: 'output_invalid', message },
    retry: 'default',
  };
}

/** Calls that follow each other; only one is open at a time. */
interface Round {
  /** The attempt whose reports it carries; undefined: all attempts. */
  readonly attempt: AttemptReports | undefined;
  readonly pace: RetryPace;
  readonly gapPace: RetryPace;
}

/**
 * Assigns attempts to rounds: all attempts share one round, or each attempt has its own if the platform requires that.
 */
class ReportRounds {
  readonly #common = createRound(undefined);
  readonly #ofAttempts = new Map<AttemptReports, Round>();

  find(attempt: AttemptReports, reportsBy: 'worker' | 'attempt' = 'worker'): Round {
    if (reportsBy === 'worker') return this.#common;
    const round = this.#ofAttempts.get(attempt) ?? createRound(attempt);
    this.#ofAttempts.set(attempt, round);
    return round;
  }

  remove(attempt: AttemptReports): void {
    this.#ofAttempts.delete(attempt);
  }
}

function createRound(attempt: AttemptReports | undefined): Round {
  const options = { baseMs: 50, maxMs: 5_000, jitter: 0.2 };
  return { attempt, pace: new RetryPace(options), gapPace: new RetryPace(options) };
}
