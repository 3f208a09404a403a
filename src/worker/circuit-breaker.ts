// Circuit breaker: slows a worker down that fails job after job with the same error, so that it does not fail the whole
// queue. The decisions are pure functions: the caller passes the time.
import { backoffMs } from '../base/backoff.ts';
import { type Clock, callAt } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { AttemptError } from '../wire/job/attempt.ts';
import type { Lease, Outcome } from '../wire/link/worker-link.ts';

/**
 * `closed`: the worker takes jobs. `open`: it takes one job at a time, a probe, not before `until`; a completed attempt
 * closes the breaker.
 */
export type BreakerState =
  | {
      readonly name: 'closed';
      /** An attempt has completed, in this process or in one before it. */
      readonly hasCompleted: boolean;
      /** The error of the last attempts, without what differs from job to job. */
      readonly kind: string;
      /** The jobs of these attempts. */
      readonly jobs: readonly string[];
    }
  | {
      readonly name: 'open';
      /** The error of the last attempt. */
      readonly error: string;
      /** Probes that have failed. */
      readonly probes: number;
      /** Unix ms. */
      readonly until: number;
      /** Token of the attempt that is the probe. */
      readonly probe: string | undefined;
    };

type BreakerEvent =
  | { readonly type: 'began'; readonly token: string }
  | {
      readonly type: 'ended';
      readonly token: string;
      readonly jobId: string;
      readonly outcome: Outcome;
    };

interface BreakerOptions {
  /** Different jobs that fail in a row with the same error until the breaker opens. 0: it never opens. */
  failures: number;
  now: number;
}

export const CLOSED: BreakerState = { name: 'closed', hasCompleted: false, kind: '', jobs: [] };
const COMPLETED: BreakerState = { ...CLOSED, hasCompleted: true };

/** Before the first completed attempt, the breaker opens after this multiple of `failures`: the handler itself may be faulty. */
const UNPROVEN = 4;
const WAITS = { baseMs: 500, maxMs: 15_000, jitter: 0 };
/** Failed probes after which a new process replaces the worker process; then after twice as many, and so on. */
const FIRST_REPLACEMENT = 3;
const MAX_ERROR_CHARS = 300;

/**
 * Counts only failures that may be the worker's fault. Not counted: errors that no retry can help and refused inputs (the
 * job's fault), timeouts (the client sets them), and attempts that were stopped or released (they did not fail).
 */
export function nextBreakerState(
  state: BreakerState,
  event: BreakerEvent,
  { failures, now }: BreakerOptions,
): BreakerState {
  if (event.type === 'began') {
    const isProbe = state.name === 'open' && state.probe === undefined && now >= state.until;
    return isProbe ? { ...state, probe: event.token } : state;
  }
  const { jobId, outcome, token } = event;
  if (outcome.kind === 'completed') {
    const isKnown = state.name === 'closed' && state.hasCompleted && state.jobs.length === 0;
    return isKnown ? state : COMPLETED;
  }
  const error = outcome.kind === 'failed' && outcome.retry !== 'never' ? outcome.error : undefined;
  if (state.name === 'open') {
    if (token !== state.probe) return state;
    if (!error) return { ...state, probe: undefined };
    const probes = state.probes + 1;
    const until = now + backoffMs(probes + 1, WAITS);
    return { ...state, error: describe(error), probes, until, probe: undefined };
  }
  if (!error || failures === 0) return state;
  const kind = classify(error);
  const others = kind === state.kind ? state.jobs.filter((job) => job !== jobId) : [];
  const jobs = [...others, jobId];
  if (jobs.length < failures * (state.hasCompleted ? 1 : UNPROVEN)) return { ...state, kind, jobs };
  const until = now + backoffMs(1, WAITS);
  return { name: 'open', error: describe(error), probes: 0, until, probe: undefined };
}

/** Number of jobs that the worker may take now. */
export function limitTakes(state: BreakerState, active: number, now: number): number {
  if (state.name === 'closed') return Number.POSITIVE_INFINITY;
  return active === 0 && now >= state.until ? 1 : 0;
}

/** The last failed probe requires a new process. */
export function wantsNewProcess(before: BreakerState, after: BreakerState): boolean {
  if (before.name !== 'open' || after.name !== 'open') return false;
  const { probes } = after;
  return probes > before.probes && Number.isInteger(Math.log2(probes / FIRST_REPLACEMENT));
}

/** The error without what differs from job to job: quoted words, paths, numbers and IDs. */
function classify({ code, message, type = '' }: AttemptError): string {
  const text = cut(message)
    .replace(/(["'`]).*?\1/g, '…')
    .replace(/[a-z]+:\/\/\S+|(?:\/[\w.@~-]+)+/gi, '…')
    .replace(/\b(?=[a-f-]*\d)[\da-f-]{8,}\b|0x[\da-f]+|\d+/gi, '#');
  return `${code} ${type} ${text}`;
}

function describe({ code, message }: AttemptError): string {
  return `${code}: ${cut(message)}`;
}

function cut(message: string): string {
  return message.slice(0, MAX_ERROR_CHARS).split('\n', 1)[0] ?? '';
}

interface CircuitBreakerOptions {
  clock: Clock;
  log: Log;
  failures: number;
  /** State from the previous process. */
  state: BreakerState | undefined;
  onChange: (state: BreakerState) => void;
  /** Called when taking may resume. */
  onRelief: () => void;
  onRecycle: (reason: string) => void;
}

export class CircuitBreaker {
  readonly #options: CircuitBreakerOptions;
  #state: BreakerState;
  #cancelWait: () => void = () => undefined;

  constructor(options: CircuitBreakerOptions) {
    const { failures, log, state = CLOSED } = options;
    this.#options = options;
    this.#state = failures === 0 ? CLOSED : forgetProbe(state);
    if (this.#state.name === 'open') {
      const { error, probes } = this.#state;
      log.warn({ error, probes }, 'jobs kept failing before the start, slowing down');
    }
    this.#awaitRelief();
  }

  /** The error while the breaker is open. */
  get sameError(): string | undefined {
    return this.#state.name === 'open' ? this.#state.error : undefined;
  }

  get trouble(): string | undefined {
    const error = this.sameError;
    return error && `job after job failed with the same error, taking one at a time: ${error}`;
  }

  /** Number of jobs that the worker may take while `active` attempts run. */
  limitTakes(active: number): number {
    return limitTakes(this.#state, active, this.#options.clock.now());
  }

  noteBegin({ token }: Lease): void {
    this.#apply({ type: 'began', token });
  }

  noteEnd({ jobId, token }: Lease, outcome: Outcome): void {
    this.#apply({ type: 'ended', token, jobId, outcome });
  }

  stop(): void {
    this.#cancelWait();
  }

  #apply(event: BreakerEvent): void {
    const { clock, failures, log, onChange, onRecycle } = this.#options;
    const before = this.#state;
    const after = nextBreakerState(before, event, { failures, now: clock.now() });
    if (after === before) return;
    this.#state = after;
    onChange(forgetProbe(after));
    if (after.name === 'closed') {
      if (before.name === 'open') {
        log.info({ error: before.error }, 'jobs complete again, taking jobs without waits');
      }
      return;
    }
    const { error, probes, until } = after;
    if (before.name === 'open' && before.probes === probes) return;
    log.error({ error, probes, waitMs: until - clock.now() }, 'jobs keep failing, slowing down');
    this.#awaitRelief();
    if (wantsNewProcess(before, after))
      onRecycle(`job after job failed with the same error: ${error}`);
  }

  #awaitRelief(): void {
    this.#cancelWait();
    const { clock, onRelief } = this.#options;
    if (this.#state.name === 'closed') return;
    this.#cancelWait = callAt(clock, this.#state.until, onRelief);
  }
}

/** The process that ran the probe may have ended. */
function forgetProbe(state: BreakerState): BreakerState {
  return state.name === 'open' ? { ...state, probe: undefined } : state;
}
