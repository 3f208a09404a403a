// Runs one attempt in the current thread: passes the input, drives the handler, emits chunks and
// outcome. Executors own timers, grace and termination; the worker numbers and sends reports.
import type { Clock } from '../../base/clock.ts';
import type { StopLevel } from '../../wire/job/attempt.ts';
import { encodeJson } from '../../wire/json.ts';
import type { Device, LeaseSchedule, Outcome } from '../../wire/link/worker-link.ts';
import type { Job } from '../define.ts';
import type { LoadedHandler } from '../loading/load.ts';
import { type ConsoleOwner, currentOwner, LogLines } from '../log-lines.ts';
import { describeThrown } from '../thrown.ts';
import { type AttemptTrace, beginTrace } from './attempt-trace.ts';
import {
  ChunkBatcher,
  ChunkEmitter,
  findSteps,
  type Steps,
  type YieldedChunks,
} from './chunk-emitter.ts';
import { AttemptContext, MarkedChunk } from './context.ts';
import { type EndHold, Holds } from './hold.ts';
import {
  concludeThrown,
  judgeReturned,
  Refusal,
  refuseMismatch,
  refuseNotJson,
  validate,
} from './refusal.ts';
import { AttemptSteps } from './steps.ts';
import { AttemptHistory, createStoppedOutcome, StopError, type StopReason } from './stop.ts';

export interface AttemptLimits {
  /** Largest returned value, bytes. */
  outputBytes: number;
  /** Largest total of all chunks, bytes. */
  chunkTotalBytes: number;
}

export interface AttemptCall {
  jobId: string;
  attempt: number;
  /** Endpoint of the job, if known. */
  endpointId?: string | undefined;
  /** JSON, and behind it the memo. */
  input: Uint8Array;
  /** Default 0. */
  memoBytes?: number | undefined;
  /** As in the lease. */
  traceparent?: string | undefined;
  tracestate?: string | undefined;
  /** As in the lease. */
  s3Config?: string | undefined;
  schedule?: LeaseSchedule | undefined;
  timeoutMs: number;
  devices: readonly Device[];
  /** Folder for the folders of attempts. Default: the system's temporary folder. */
  tempParent?: string | undefined;
  /** Undelivered bytes of chunks at which the generator is paused. */
  windowBytes: number;
  limits: AttemptLimits;
  /** Measures the run time; short delays use the machine's clock. */
  clock: Clock;
  /** Number of the attempt within this thread. */
  number: number;
  /** As in the lease: the job must not share a batch. Default false. */
  solo?: boolean;
}

export interface AttemptSink {
  chunks(batch: YieldedChunks): void;
  /** JSON. */
  progress(value: Uint8Array): void;
  /** The job's group is to be paused so long, ms. Absent: pauses have no effect. */
  /** `limit`: name of a shared limit; without it, the job's group. */
  pause?(forMs: number, limit?: string): void;
  /** The result of a step, JSON; `Invocation.kept` acknowledges it. Absent: nothing keeps it. */
  step?(name: string, result: Uint8Array): void;
  /** NDJSON; `dropped`: number of lines that were dropped before these. */
  log(lines: Uint8Array, dropped: number): void;
  /** Called when the attempt begins or stops waiting for a model process to start. */
  held?(isHeld: boolean): void;
}

export interface AttemptEnd {
  outcome: Outcome;
  /** JSON; of an attempt that waits, what for. */
  output: Uint8Array | undefined;
  /** The handler asks that no other job runs in this worker. */
  recycle?: boolean;
  /** Words of the error that show a lost device context: this process can run nothing else. */
  contextLoss?: string;
}

export interface Invocation {
  /** Never rejects; the sink has received everything before. */
  readonly end: Promise<AttemptEnd>;
  readonly lines: LogLines;
  /**
   * Aborts the signal and ends a generator with `return()` at its next yield. The first call
   * counts.
   */
  stop(reason: StopReason, detail?: string): void;
  grant(bytes: number): void;
  /** The platform has stored so many further results of steps. */
  kept(count: number): void;
  /** From now until the returned function is called, the attempt stands still: no time counts, and its deadline moves. */
  standStill(): EndHold;
}

export function invoke(handler: LoadedHandler, call: AttemptCall, sink: AttemptSink): Invocation {
  return new RunningAttempt(handler, call, sink);
}

type Result =
  | { kind: 'value'; output: Uint8Array }
  | { kind: 'chunks' }
  | { kind: 'waiting'; waits: Uint8Array }
  /** The generator was ended because the attempt is being stopped. */
  | { kind: 'returned' }
  | { kind: 'threw'; thrown: unknown };

class RunningAttempt implements Invocation, ConsoleOwner {
  readonly end: Promise<AttemptEnd>;
  readonly attemptNumber: number;
  readonly #handler: LoadedHandler;
  readonly #call: Omit<AttemptCall, 'input'>;
  readonly #context: AttemptContext;
  readonly #trace: AttemptTrace;
  readonly lines: LogLines;
  readonly #chunks: ChunkBatcher;
  /** Cleared once read: sockets and timers that outlive the job keep this object alive. */
  #input: Uint8Array | undefined;
  #stopReason: StopReason | undefined;
  #stopDetail: string | undefined;
  #stopLevel: StopLevel = 'signal';
  #startedAt: number | undefined;
  readonly #emitter: ChunkEmitter;
  readonly #history = new AttemptHistory();
  readonly #holds: Holds;
  #wasHeldAtStop = false;
  /** Undefined: the handler has no steps. */
  #steps: AttemptSteps | undefined;
  #memo: Uint8Array;
  /** Ends the attempt although its handler has not ended. */
  #endEarly: (result: Result) => void = () => undefined;

  constructor(handler: LoadedHandler, call: AttemptCall, sink: AttemptSink) {
    const { jobId, attempt, devices, clock, timeoutMs, traceparent, tracestate } = call;
    const { endpointId, tempParent } = call;
    this.#handler = handler;
    const { input, memoBytes = 0, ...rest } = call;
    this.#call = rest;
    const inputBytes = input.length - memoBytes;
    this.#input = memoBytes === 0 ? input : input.subarray(0, inputBytes);
    this.#memo = input.subarray(inputBytes);
    this.attemptNumber = call.number;
    const { file } = handler;
    this.#trace = beginTrace({ jobId, attempt, endpointId, file, traceparent, tracestate });
    const { traceId } = this.#trace;
    const logBindings = { job: jobId, attempt, ...(traceId && { trace_id: traceId }) };
    this.lines = new LogLines(logBindings, (lines, dropped) => {
      sink.log(lines, dropped);
    });
    this.#chunks = new ChunkBatcher(call.windowBytes, (batch) => {
      this.lines.flush();
      sink.chunks(batch);
    });
    const deadline = Math.round(clock.now() + timeoutMs);
    const sendProgress = (value: Uint8Array) => sink.progress(value);
    const lines = this.lines;
    this.#holds = new Holds(
      () => clock.now(),
      (isHeld) => sink.held?.(isHeld),
    );
    this.#context = new AttemptContext({
      number: call.number,
      attempt,
      solo: call.solo ?? false,
      logBindings,
      deadline,
      traceparent,
      tracestate,
      devices,
      tempParent,
      lines,
      hold: this.#holds.begin,
      sendProgress,
      now: () => clock.now(),
      pause: (forMs, limit) => sink.pause?.(forMs, limit),
      steps: () => this.#openSteps(sink),
    });
    this.#emitter = new ChunkEmitter({
      chunks: this.#chunks,
      chunkTotalBytes: call.limits.chunkTotalBytes,
      context: this.#context,
      history: this.#history,
    });
    this.end = this.#begin();
  }

  #openSteps(sink: AttemptSink): AttemptSteps {
    if (this.#steps) return this.#steps;
    this.#steps = new AttemptSteps({
      memo: this.#memo,
      send: sink.step && ((name, result) => sink.step?.(name, result)),
      hasYielded: () => this.#emitter.hasEmitted,
      onWait: (waits) => this.#endEarly({ kind: 'waiting', waits }),
      warn: (text) => this.#context.log.warn(text),
    });
    this.#memo = NOTHING;
    if (this.#stopReason) this.#steps.stop(new StopError(this.#stopReason, this.#stopDetail));
    return this.#steps;
  }

  /** Runs after the constructor has returned: the caller's sink may need the attempt. */
  async #begin(): Promise<AttemptEnd> {
    await undefined;
    return this.#trace.run(() => currentOwner.run(this, () => this.#run()));
  }

  stop(reason: StopReason, detail?: string): void {
    if (this.#stopReason) return;
    this.#stopReason = reason;
    this.#stopDetail = detail;
    this.#wasHeldAtStop = this.#holds.isHeld;
    const error = new StopError(reason, detail);
    this.#context.abort(error);
    this.#steps?.stop(error);
    this.#emitter.stop();
  }

  grant(bytes: number): void {
    this.#chunks.grant(bytes);
  }

  kept(count: number): void {
    this.#steps?.kept(count);
  }

  standStill(): EndHold {
    const { clock } = this.#call;
    const since = clock.now();
    const end = this.#holds.begin();
    return () => {
      end();
      this.#context.deadline += Math.round(clock.now() - since);
    };
  }

  async #run(): Promise<AttemptEnd> {
    // Without `new Promise`, which would be in the stacks of errors.
    const { promise, resolve } = Promise.withResolvers<Result>();
    this.#endEarly = resolve;
    this.#runHandler().then(resolve, (thrown: unknown) => resolve({ kind: 'threw', thrown }));
    const result = await promise;
    // What the handler still does beside its wait.
    if (result.kind === 'waiting') this.#context.abort(new WaitingError());
    else this.#steps?.close();
    const { clock } = this.#call;
    // Read first: an open hold grows, and the time without holds would be negative.
    const heldMs = this.#holds.ms;
    const elapsedMs = this.#startedAt === undefined ? 0 : clock.now() - this.#startedAt;
    const end = this.#conclude(result, elapsedMs - heldMs);
    // Before the last lines are sent: an exporter may print spans to the console.
    this.#trace.end(end.outcome, result.kind === 'threw' ? result.thrown : undefined);
    this.#context.close();
    this.#chunks.flush();
    this.lines.end();
    const recycle = this.#context.mustRecycle || this.#handler.config.refreshWorker === true;
    return recycle ? { ...end, recycle } : end;
  }

  async #runHandler(): Promise<Result> {
    const { run, output } = this.#handler;
    const parsed = this.#readInput();
    const input = parsed instanceof Promise ? await parsed : parsed;
    if (this.#stopReason) return { kind: 'returned' };
    this.#startedAt = this.#call.clock.now();
    this.#emitter.start();
    const answer = await run(describeJob(this.#call, input), this.#context);
    const steps = findSteps(answer);
    if (steps) return this.#drive(steps);
    const value = output ? await this.#checkOutput(answer) : answer;
    judgeReturned(value, this.#handler.config, this.#context);
    return { kind: 'value', output: this.#encodeOutput(value ?? null) };
  }

  #readInput(): unknown {
    const bytes = this.#input ?? new Uint8Array(0);
    this.#input = undefined;
    let value: unknown;
    try {
      value = JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString());
    } catch (error) {
      throw new Refusal('input_invalid', `input: not JSON: ${describeThrown(error).message}`);
    }
    const schema = this.#handler.input;
    if (!schema) return value;
    return refuseMismatch('input_invalid', () => validate(schema, value, 'input'));
  }

  #checkOutput(value: unknown): unknown {
    const schema = this.#handler.output;
    if (!schema) return value;
    return refuseMismatch('output_invalid', () => validate(schema, value, 'output'));
  }

  async #drive(steps: Steps): Promise<Result> {
    const takesPromises = !(Symbol.asyncIterator in steps);
    while (!this.#stopReason) {
      const step = await steps.next();
      if (step.done) return this.#completeStream(takesPromises ? await step.value : step.value);
      try {
        const pause = this.#emit(takesPromises ? await step.value : step.value);
        if (pause !== undefined) await pause;
      } catch (error) {
        // An error during the cleanup would hide the reason of the cleanup.
        await Promise.resolve(steps.return?.()).catch(() => undefined);
        throw error;
      }
    }
    this.#stopLevel = 'return';
    await steps.return?.();
    return { kind: 'returned' };
  }

  async #completeStream(value: unknown): Promise<Result> {
    if (value === undefined) return { kind: 'chunks' };
    const checked = await this.#checkOutput(value);
    judgeReturned(checked, this.#handler.config, this.#context);
    return { kind: 'value', output: this.#encodeOutput(checked) };
  }

  /** Returns a promise only if it must wait: most yields are small and continue synchronously. */
  #emit(value: unknown): Promise<void> | undefined {
    const isMarked = value instanceof MarkedChunk;
    const own = isMarked ? value.metrics : undefined;
    const output: unknown = isMarked ? value.output : value;
    if (!this.#handler.output) return this.#emitter.emit(output, own);
    const checked = this.#checkOutput(output);
    if (checked instanceof Promise) {
      return checked.then((settled) => this.#emitter.emit(settled, own));
    }
    return this.#emitter.emit(checked, own);
  }

  #encodeOutput(value: unknown): Uint8Array {
    const output = refuseNotJson(() => encodeJson(value, 'output'));
    const { outputBytes } = this.#call.limits;
    if (output.length <= outputBytes) return output;
    const sizes = `${output.length} bytes of JSON, the limit is ${outputBytes}`;
    throw new Refusal('output_too_large', `the output is ${sizes}`);
  }

  /**
   * A cancelled job is cancelled, whatever happens later. A result counts if it arrived within the
   * timeout, even after a stop. A failure after a stop is due to the stop.
   */
  #conclude(result: Result, elapsedMs: number): AttemptEnd {
    const { timeoutMs } = this.#call;
    const reason = this.#stopReason;
    const executionMs = Math.round(elapsedMs);
    const level = this.#stopLevel;
    const stopAs = (why: StopReason): AttemptEnd => ({
      outcome: createStoppedOutcome({
        reason: why,
        detail: this.#stopDetail,
        level,
        executionMs,
        timeoutMs,
        // Running code cannot receive a stop: if the stop arrived in time, the code was waiting.
        stuck: this.#history.locate(reason ? 'waiting' : 'running'),
      }),
      output: undefined,
    });
    if (reason === 'cancelled') return stopAs('cancelled');
    if (reason === 'timeout' && this.#wasHeldAtStop && result.kind === 'threw') {
      // The model process did not start in time. Another worker may have one that runs.
      return { outcome: { kind: 'released', reason: 'not_started' }, output: undefined };
    }
    if (elapsedMs >= timeoutMs) return stopAs('timeout');
    if (result.kind === 'value') {
      const { output } = result;
      return { outcome: { kind: 'completed', executionMs, output: 'value' }, output };
    }
    if (result.kind === 'chunks') {
      return { outcome: { kind: 'completed', executionMs, output: 'chunks' }, output: undefined };
    }
    if (reason) return stopAs(reason);
    if (result.kind === 'waiting') {
      return { outcome: { kind: 'waiting', executionMs }, output: result.waits };
    }
    const thrown = result.kind === 'threw' ? result.thrown : undefined;
    return { ...concludeThrown(thrown, executionMs), output: undefined };
  }
}

const NOTHING = new Uint8Array(0);

/** The reason of `ctx.signal` once the attempt waits. */
class WaitingError extends Error {
  override readonly name = 'AbortError';

  constructor() {
    super('the attempt has ended: the job waits for its children, or sleeps');
  }
}

function describeJob(
  { jobId: id, s3Config, schedule }: Omit<AttemptCall, 'input'>,
  input: unknown,
): Job {
  return {
    id,
    input,
    ...(s3Config !== undefined && { s3Config: JSON.parse(s3Config) }),
    ...(schedule && { schedule }),
  };
}
