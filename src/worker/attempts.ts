// The attempts whose leases the worker holds, until their outcome is acknowledged: starts, times
// and stops them, and passes their output to the reporter.
import { callAfterRun } from '../base/clock.ts';
import { type EndHold, Holds } from '../handler/attempt/hold.ts';
import type { Lease, ReleaseReason, RenewRequest } from '../wire/link/worker-link.ts';
import { nameTrace } from '../wire/trace-context.ts';
import type { CircuitBreaker } from './circuit-breaker.ts';
import {
  type Execution,
  type ExecutionEnd,
  endWithoutContext,
  readContextLoss,
  type StopReason,
} from './execution/executor.ts';
import type { GpuAccounts } from './gpu/gpu-accounts.ts';
import type { AttemptReportSink, Reporter } from './reports/reporter.ts';
import type { WorkerStarts } from './starts.ts';
import { type CompleteWorkerOptions, watchChunks } from './worker-options.ts';

interface AttemptsParts {
  reporter: Reporter;
  /** Undefined without a GPU. */
  gpus?: GpuAccounts | undefined;
  breaker: CircuitBreaker;
  starts: Pick<WorkerStarts, 'watch' | 'noteEnd'>;
}

export class Attempts {
  readonly #options: CompleteWorkerOptions;
  readonly #parts: AttemptsParts;
  readonly #attempts = new Map<string, Attempt>();
  readonly #changed = new Set<() => void>();
  readonly #accepted = new Set<() => void>();
  #mustRecycle = false;
  #contextLoss: string | undefined;
  #active = 0;
  #ended = 0;
  #handlerTimeoutMs = Number.POSITIVE_INFINITY;

  constructor(options: CompleteWorkerOptions, parts: AttemptsParts) {
    this.#options = options;
    this.#parts = parts;
  }

  /** Number of attempts that have or will have a slot. */
  get active(): number {
    return this.#active;
  }

  /** Number of active attempts whose handler runs. */
  get running(): number {
    let running = 0;
    for (const { phase } of this.#attempts.values()) if (phase.name === 'running') running++;
    return running;
  }

  /** Number of attempts that have ended since the start. */
  get ended(): number {
    return this.#ended;
  }

  /** Number of attempts that still run long after they were stopped. */
  get stuck(): number {
    const now = this.#options.clock.now();
    let stuck = 0;
    for (const { phase, stopAskedAt } of this.#attempts.values()) {
      if (phase.name !== 'running' || stopAskedAt === undefined) continue;
      if (now - stopAskedAt >= this.#options.stuckAfterMs) stuck++;
    }
    return stuck;
  }

  /** A handler has asked for a new process, or has lost its context: this worker must run no other job. */
  get mustRecycle(): boolean {
    return this.#mustRecycle;
  }

  /** Words of the error that show a lost device context. */
  get contextLoss(): string | undefined {
    return this.#contextLoss;
  }

  /** A job that must run alone in its process is waiting or running. */
  get hasSolo(): boolean {
    for (const { lease, phase } of this.#attempts.values()) {
      if (lease.solo && phase.name !== 'ended') return true;
    }
    return false;
  }

  /** The handler's own limit for one attempt; the limit of the lease applies too. */
  limitTo(handlerTimeoutMs: number): void {
    this.#handlerTimeoutMs = handlerTimeoutMs;
  }

  /** Calls the listener when an attempt ends or a lease is over. */
  onChange(listener: () => void): void {
    this.#changed.add(listener);
  }

  /** Calls the listener when leases arrive. */
  onAccept(listener: () => void): void {
    this.#accepted.add(listener);
  }

  /** Tokens of all leases, including those whose outcome an earlier process left. */
  tokens(): string[] {
    return [...this.#held().map(({ lease }) => lease), ...this.#parts.reporter.restored].map(
      ({ token }) => token,
    );
  }

  /** Names all leases for a renewal. */
  nameAll(): RenewedLease[] {
    // The worker already knows how these attempts ended.
    const over = this.#parts.reporter.restored.map(({ jobId, token }) => ({
      jobId,
      token,
      stopping: true,
      delivering: true,
    }));
    return [...this.#held().map(nameLease), ...over];
  }

  /** Names active attempts that no renewal has named yet. */
  nameNew(): RenewedLease[] {
    const fresh = this.#held().filter(({ named, phase }) => !named && phase.name !== 'ended');
    return fresh.map(nameLease);
  }

  accept(leases: readonly Lease[]): void {
    for (const lease of leases) {
      if (this.#attempts.has(lease.token)) continue;
      const attempt = this.#add(lease);
      if (this.#contextLoss !== undefined) this.#end(attempt, releasedAs('neighbour'));
      else if (lease.solo) this.#wait(attempt);
      else this.#begin(attempt);
    }
    this.#beginWaiting();
    for (const listener of this.#accepted) listener();
  }

  /** Releases leases that arrived while the worker was already draining. */
  release(leases: readonly Lease[]): void {
    for (const lease of leases) {
      if (!this.#attempts.has(lease.token)) this.#end(this.#add(lease), releasedAs('drain'));
    }
  }

  /** The platform has ended the lease. Returns false if the worker already knew. */
  revoke(token: string, verdict: 'cancelled' | 'lost'): boolean {
    const attempt = this.#attempts.get(token);
    if (!attempt || attempt.stopping) return false;
    attempt.stopping = true;
    this.#options.log.info(
      { ...describeAttempt(attempt), verdict },
      'attempt ended by the platform',
    );
    this.#stop(attempt, verdict);
    return true;
  }

  /** Releases attempts that have not begun. */
  releaseWaiting(): void {
    for (const attempt of this.#attempts.values()) {
      if (attempt.phase.name === 'waiting') this.#end(attempt, releasedAs('drain'));
    }
  }

  stopAll(reason: StopReason): void {
    for (const attempt of this.#attempts.values()) this.#stop(attempt, reason);
  }

  /** The only running attempt has used too much memory; `detail` says how much. */
  stopForMemory(detail: string): void {
    for (const attempt of this.#attempts.values()) {
      if (attempt.phase.name === 'running') this.#stop(attempt, 'memory', detail);
    }
  }

  /** One of the running attempts has used too much memory: each must run alone next. */
  stopAsSuspects(): void {
    for (const attempt of this.#attempts.values()) {
      if (attempt.phase.name !== 'running') continue;
      attempt.isSuspect = true;
      this.#stop(attempt, 'suspect');
    }
  }

  /** Releases the attempts that still run; their ends are ignored from now on. */
  abandonAll(): number {
    const left = [...this.#attempts.values()].filter(({ phase }) => phase.name !== 'ended');
    for (const attempt of left) {
      this.#end(attempt, releasedAs(attempt.isSuspect ? 'suspect' : 'drain'));
    }
    return left.length;
  }

  /** Resolves when no attempt is active. */
  async idle(): Promise<void> {
    if (this.#active === 0) return;
    await new Promise<void>((resolve) => {
      const check = () => {
        if (this.#active > 0) return;
        this.#changed.delete(check);
        resolve();
      };
      this.#changed.add(check);
    });
  }

  get #standstill(): { ms: number } {
    return this.#options.executor.standstill ?? { ms: 0 };
  }

  #held(): Attempt[] {
    return [...this.#attempts.values()].filter(({ settled }) => !settled);
  }

  #add(lease: Lease): Attempt {
    const attempt: Attempt = {
      lease,
      reports: this.#parts.reporter.open(lease, {
        onDelivered: (bytes) => {
          if (attempt.phase.name === 'running') attempt.phase.execution.grant(bytes);
        },
        onKept: (count) => {
          if (attempt.phase.name === 'running') attempt.phase.execution.kept(count);
        },
        onSuperseded: () => this.#stop(attempt, 'lost'),
        onSettled: () => this.#settle(attempt),
      }),
      holds: new Holds(
        () => this.#options.clock.now(),
        (isHeld) => this.#parts.gpus?.hold(lease, isHeld),
      ),
      stoodBeforeMs: this.#standstill.ms,
      phase: { name: 'waiting', cancelTimer: () => {} },
      named: false,
      stopping: false,
      settled: false,
      stopAskedAt: undefined,
      isSuspect: false,
    };
    this.#attempts.set(lease.token, attempt);
    this.#active++;
    return attempt;
  }

  /**
   * Waits until nothing else runs, for at most half of the execution timeout. The other half
   * remains for the run, before the platform's deadline.
   */
  #wait(attempt: Attempt): void {
    const limitMs = attempt.lease.executionTimeoutMs / 2;
    const cancelTimer = this.#options.clock.after(limitMs, () =>
      this.#end(attempt, releasedAs('not_started')),
    );
    attempt.phase = { name: 'waiting', cancelTimer };
  }

  #begin(attempt: Attempt): void {
    if (attempt.phase.name === 'waiting') attempt.phase.cancelTimer();
    const { holds, lease, reports } = attempt;
    const timeoutMs = Math.min(lease.executionTimeoutMs, this.#handlerTimeoutMs);
    const observer = this.#options.observer;
    observer?.attemptBegan(lease);
    this.#parts.gpus?.begin(lease);
    this.#parts.breaker.noteBegin(lease);
    const watched = observer ? watchChunks({ lease, sink: reports, observer }) : reports;
    let endHold: EndHold | undefined;
    const held = (isHeld: boolean) => {
      endHold?.();
      endHold = isHeld ? holds.begin() : undefined;
    };
    const sink = this.#parts.starts.watch(lease, { ...watched, held });
    const execution = this.#options.executor.execute(lease, timeoutMs, sink);
    const cancelTimer = callAfterRun(this.#options.clock, timeoutMs, this.#standstill, () =>
      this.#stop(attempt, 'timeout'),
    );
    attempt.phase = { name: 'running', execution, cancelTimer };
    void execution.end.then((end) => {
      const figures =
        end.contextLoss === undefined ? this.#parts.gpus?.awaitFigures(lease) : undefined;
      const conclude = () => this.#conclude(attempt, end);
      if (figures === undefined) conclude();
      else void figures.then(conclude);
    });
  }

  /** Starts one waiting attempt, if nothing else runs. */
  #beginWaiting(): void {
    let next: Attempt | undefined;
    for (const attempt of this.#attempts.values()) {
      if (attempt.phase.name === 'running') return;
      if (attempt.phase.name === 'waiting') next ??= attempt;
    }
    if (next) this.#begin(next);
  }

  #stop(attempt: Attempt, reason: StopReason, detail?: string): void {
    const { phase } = attempt;
    if (phase.name === 'running') {
      attempt.stopAskedAt ??= this.#options.clock.now();
      phase.execution.stop(reason, detail);
    }
    if (phase.name === 'waiting') {
      this.#end(attempt, reason === 'cancelled' ? CANCELLED_BEFORE_BEGIN : releasedAs('drain'));
    }
  }

  /** After the loss of the context, every other attempt returns to the queue, and its slot is free. */
  #conclude(attempt: Attempt, reported: ExecutionEnd): void {
    const isLater = this.#contextLoss !== undefined;
    const end = isLater ? endWithoutContext(reported) : readContextLoss(reported, attempt.lease);
    const { contextLoss: words } = end;
    if (!isLater && words !== undefined) {
      this.#contextLoss = words;
      const fields = { ...describeAttempt(attempt), words };
      this.#options.log.error(fields, 'worker process has lost its GPU context');
      for (const other of this.#attempts.values()) {
        if (other === attempt) continue;
        if (other.phase.name === 'waiting') this.#end(other, releasedAs('neighbour'));
        else this.#stop(other, 'neighbour');
      }
    }
    this.#end(attempt, words === undefined ? end : { ...end, recycle: true });
  }

  /** Frees the slot; the lease is held until the outcome is acknowledged. */
  #end(attempt: Attempt, end: ExecutionEnd): void {
    // An abandoned attempt may still end later.
    if (attempt.phase.name === 'ended') return;
    attempt.phase.cancelTimer();
    attempt.phase = { name: 'ended' };
    this.#active--;
    this.#ended++;
    if (end.recycle) this.#mustRecycle = true;
    const gpu = this.#parts.gpus?.end(attempt.lease, end.outcome);
    const usage = gpu && { gpu };
    this.#options.observer?.attemptEnded(attempt.lease, end.outcome, usage);
    this.#parts.breaker.noteEnd(attempt.lease, end.outcome);
    this.#parts.starts.noteEnd(attempt.lease, end.outcome);
    this.#logFailure(attempt, end);
    if (attempt.settled) this.#attempts.delete(attempt.lease.token);
    else {
      const stoodMs = this.#standstill.ms - attempt.stoodBeforeMs;
      const waitedMs = Math.max(0, Math.round(attempt.holds.ms - stoodMs));
      attempt.reports.end({ ...end, usage, waitedMs });
    }
    this.#beginWaiting();
    this.#announce();
  }

  /** Logs the failure, so that the worker's log alone shows why jobs fail. */
  #logFailure(attempt: Attempt, { outcome }: ExecutionEnd): void {
    if (outcome.kind !== 'failed' && outcome.kind !== 'timed_out') return;
    const { code, message } = outcome.error;
    const fields = { ...describeAttempt(attempt), code };
    const { failureLevel, log } = this.#options;
    if (failureLevel === 'debug') log.debug(fields, `attempt failed: ${message}`);
    else log.warn(fields, `attempt failed: ${message}`);
  }

  #settle(attempt: Attempt): void {
    attempt.settled = true;
    if (attempt.phase.name === 'ended') this.#attempts.delete(attempt.lease.token);
    this.#announce();
  }

  #announce(): void {
    for (const listener of this.#changed) listener();
  }
}

/**
 * `waiting`: must run alone and waits for the process to be empty. `running`: in the executor.
 * `ended`: its outcome is being delivered. `waiting` and `running` attempts are active.
 */
type Phase =
  | { readonly name: 'waiting'; readonly cancelTimer: () => void }
  | { readonly name: 'running'; readonly execution: Execution; readonly cancelTimer: () => void }
  | { readonly name: 'ended' };

interface Attempt {
  readonly lease: Lease;
  readonly reports: AttemptReportSink;
  /** When it waits for the start of a model process, or stands still. */
  readonly holds: Holds;
  /** How long the attempts of the worker had stood still before, ms. */
  readonly stoodBeforeMs: number;
  phase: Phase;
  /** A renewal has named it. */
  named: boolean;
  /** The platform has ended the lease. Renewals confirm to the platform that the worker knows. */
  stopping: boolean;
  /** Nothing remains to be reported: the lease is over, though the handler may still run. */
  settled: boolean;
  /** When its handler was first stopped, Unix ms. */
  stopAskedAt: number | undefined;
  /** Stopped because one of several attempts used too much memory. */
  isSuspect: boolean;
}

export type RenewedLease = RenewRequest['leases'][number];

/** The end of an attempt whose job returns to the queue. */
function releasedAs(reason: ReleaseReason): ExecutionEnd {
  return { outcome: { kind: 'released', reason }, output: undefined };
}

const CANCELLED_BEFORE_BEGIN: ExecutionEnd = {
  outcome: { kind: 'cancelled', executionMs: 0, stopped: 'signal' },
  output: undefined,
};

/** Fields for log lines. */
function describeAttempt({ lease: { jobId: job, attempt, traceparent } }: Attempt) {
  return { job, attempt, ...nameTrace(traceparent) };
}

/** Names the lease for a renewal and marks it as named. */
function nameLease(attempt: Attempt): RenewedLease {
  attempt.named = true;
  const { jobId, token } = attempt.lease;
  const named = { jobId, token, stopping: attempt.stopping };
  return attempt.phase.name === 'ended' ? { ...named, delivering: true } : named;
}
