// One attempt in an executor: waiting for a slot, running with a timeout, being stopped. A carrier
// runs it: a handler thread, or this thread.
import type { Clock } from '../../base/clock.ts';
import { type EndHold, Holds } from '../../handler/attempt/hold.ts';
import { ChunkHistory, createStoppedOutcome } from '../../handler/attempt/stop.ts';
import { findContextLoss } from '../../handler/thrown.ts';
import type { AttemptError, StopLevel } from '../../wire/job/attempt.ts';
import type { Lease, ReleaseReason } from '../../wire/link/worker-link.ts';
import type {
  ChunkMessage,
  Execution,
  ExecutionEnd,
  ExecutionSink,
  StopReason,
} from './executor.ts';
import type { StuckThread } from './thread-end.ts';

/** Carries out the commands of an execution where its handler runs. */
interface JobCarrier {
  stop(reason: StopReason, detail: string | undefined): void;
  grant(bytes: number): void;
  /** The grace period is over and the handler has not ended. */
  kill(): void;
}

interface ManagedExecutionOptions {
  lease: Lease;
  timeoutMs: number;
  graceMs: number;
  sink: ExecutionSink;
  clock: Clock;
  /** The attempt was stopped before it had a slot; its end is settled. */
  onAbandoned: (execution: ManagedExecution) => void;
}

export class ManagedExecution implements Execution {
  readonly end: Promise<ExecutionEnd>;
  readonly lease: Lease;
  readonly timeoutMs: number;
  readonly #options: ManagedExecutionOptions;
  #resolve: (end: ExecutionEnd) => void = () => undefined;
  #carrier: JobCarrier | undefined;
  #startedAt = 0;
  readonly #history: ChunkHistory;
  readonly #holds: Holds;
  #endHold: EndHold | undefined;
  #stopReason: StopReason | undefined;
  #stopDetail: string | undefined;
  #cancelTimer: (() => void) | undefined;
  #isSettled = false;

  constructor(options: ManagedExecutionOptions) {
    this.#options = options;
    this.lease = options.lease;
    this.timeoutMs = options.timeoutMs;
    const now = () => options.clock.now();
    this.#history = new ChunkHistory(now);
    this.#holds = new Holds(now, (isHeld) => this.sink?.held?.(isHeld));
    this.end = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  get stopReason(): StopReason | undefined {
    return this.#stopReason;
  }

  /** Receives the attempt's output until it is settled. */
  get sink(): ExecutionSink | undefined {
    return this.#isSettled ? undefined : this.#options.sink;
  }

  takeChunks(message: ChunkMessage): void {
    this.#history.add(message.sizes.length);
    this.sink?.chunks(message);
  }

  /** The attempt begins or stops waiting for a model process to start. */
  takeHold(isHeld: boolean): void {
    this.#endHold?.();
    this.#endHold = isHeld ? this.#holds.begin() : undefined;
  }

  /** The attempt has a slot: its timeout begins. */
  begin(carrier: JobCarrier): void {
    const { clock, timeoutMs } = this.#options;
    this.#carrier = carrier;
    this.#startedAt = clock.now();
    this.#cancelTimer = clock.after(timeoutMs, () => this.stop('timeout'));
  }

  stop(reason: StopReason, detail?: string): void {
    if (this.#isSettled || this.#stopReason) return;
    this.#stopReason = reason;
    this.#stopDetail = detail;
    if (!this.#carrier) {
      this.#settleUnstarted(reason);
      this.#options.onAbandoned(this);
      return;
    }
    const { clock, graceMs } = this.#options;
    this.#cancelTimer?.();
    this.#cancelTimer = clock.after(graceMs, () => this.#carrier?.kill());
    this.#carrier.stop(reason, detail);
  }

  grant(bytes: number): void {
    if (!this.#isSettled) this.#carrier?.grant(bytes);
  }

  /** The first end counts; later ones are ignored. */
  settle(end: ExecutionEnd): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#cancelTimer?.();
    this.#resolve(end);
  }

  /** The thread was killed, or died by itself after the stop. */
  settleStopped(level: StopLevel, stuck?: StuckThread): void {
    const outcome = createStoppedOutcome({
      reason: this.#stopReason ?? 'shutdown',
      detail: this.#stopDetail,
      level,
      executionMs: this.#measureMs(),
      timeoutMs: this.timeoutMs,
      stuck: stuck && { ...stuck, ...this.#history.describe() },
    });
    this.settle({ outcome, output: undefined });
  }

  /** The attempt took its thread down. */
  settleCrashed(error: AttemptError): void {
    const executionMs = this.#measureMs();
    const { message, stack = '', type = '' } = error;
    const contextLoss = findContextLoss(`${type}: ${message}\n${stack}`);
    const named =
      contextLoss === undefined ? error : { ...error, code: 'gpu_context_lost' as const };
    const outcome = { kind: 'failed', executionMs, error: named, retry: 'default' } as const;
    this.settle({ outcome, output: undefined, contextLoss });
  }

  /** The attempt never ran, or is not known to be at fault. */
  settleReleased(reason: Exclude<ReleaseReason, 'drain'>): void {
    this.settle({ outcome: { kind: 'released', reason }, output: undefined });
  }

  /** It never ran, so it cannot have timed out: another worker may have a free slot. */
  #settleUnstarted(reason: StopReason): void {
    if (reason === 'cancelled' || reason === 'lost') this.settleStopped('signal');
    else this.settleReleased('not_started');
  }

  /** Without the time in which it waited for a model process. */
  #measureMs(): number {
    if (!this.#carrier) return 0;
    const elapsedMs = this.#options.clock.now() - this.#startedAt;
    return Math.max(0, Math.round(elapsedMs - this.#holds.ms));
  }
}
