// One job in a batch, between its attempt, which awaits a value or drives a stream, and the batch, which
// produces them.

import type { Steps } from '../attempt/chunk-emitter.ts';
import type { AttemptContext } from '../attempt/context.ts';
import type { BatchJob, Job } from '../define.ts';

/** Decides whether a job may leave now. A running batch holds its last job until it has settled. */
export type LeaveGate = (member: BatchMember, reason: unknown) => 'now' | 'later';

interface BatchMemberOptions {
  job: Job;
  ctx: AttemptContext;
  key: string;
  /** In the clock's time, ms. */
  joinedAt: number;
  /** The job has been stopped or has failed, or its attempt has ended its stream. */
  mayLeave: LeaveGate;
}

export class BatchMember {
  readonly job: BatchJob;
  readonly ctx: AttemptContext;
  readonly key: string;
  readonly joinedAt: number;
  /** What the attempt awaits: the output, or the stream once there is a chunk. */
  readonly answer: Promise<unknown>;
  readonly #mayLeave: LeaveGate;
  #state: 'live' | 'leaving' | 'gone' = 'live';
  #leaving: 'stopped' | 'failed' | undefined;
  #leaveReason: unknown;
  #resolve: (value: unknown) => void = () => undefined;
  #reject: (reason: unknown) => void = () => undefined;
  #stream: MemberStream | undefined;

  constructor({ job, ctx, key, joinedAt, mayLeave }: BatchMemberOptions) {
    this.job = new JobInBatch(job, ctx);
    this.ctx = ctx;
    this.key = key;
    this.joinedAt = joinedAt;
    this.#mayLeave = mayLeave;
    this.answer = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    ctx.onAbort((reason) => this.#leave(reason, 'stopped'));
  }

  /** Somebody waits for its output. */
  get isLive(): boolean {
    return this.#state === 'live';
  }

  get isGone(): boolean {
    return this.#state === 'gone';
  }

  get hasStreamed(): boolean {
    return this.#stream !== undefined;
  }

  /** The attempt fails, at once or as soon as the batch lets it go. Outputs no longer count. */
  failEarly(error: unknown): void {
    this.#leave(error, 'failed');
  }

  /** The batch no longer holds a leaving job. */
  letGo(): void {
    if (this.#state === 'leaving') this.#end({ error: this.#leaveReason });
  }

  /**
   * The job's output, or without one the end of its stream. It counts for a job that was stopped
   * while it was the last of its batch.
   */
  complete(output: unknown): void {
    if (this.#leaving === 'failed') this.letGo();
    else this.#end({ output });
  }

  /** As `complete`, for a job whose chunks are its output unless there is another one. */
  completeStream(output: unknown): void {
    if (this.#state === 'gone') return;
    if (!this.#stream) this.#openStream();
    this.complete(output);
  }

  fail(error: unknown): void {
    this.#end({ error });
  }

  /** The promise resolves when the attempt asks for more; nothing waits for a job that has left. */
  push(chunk: unknown): Promise<void> | undefined {
    if (this.#state !== 'live') return undefined;
    return (this.#stream ?? this.#openStream()).push(chunk);
  }

  #openStream(): MemberStream {
    const stream = new MemberStream(() => this.#endByAttempt());
    this.#stream = stream;
    this.#resolve(stream);
    return stream;
  }

  #leave(reason: unknown, why: 'stopped' | 'failed'): void {
    if (this.#state !== 'live') return;
    this.#state = 'leaving';
    this.#leaving = why;
    this.#leaveReason = reason;
    if (this.#mayLeave(this, reason) === 'now') this.letGo();
  }

  /** Resolves when the batch has let the job go. */
  #endByAttempt(): Promise<void> | undefined {
    this.#leave(new Error('the attempt has ended its stream'), 'failed');
    return this.#state === 'gone' ? undefined : this.#stream?.ended;
  }

  #end(end: { output: unknown } | { error: unknown }): void {
    if (this.#state === 'gone') return;
    this.#state = 'gone';
    if (this.#stream) this.#stream.end(end);
    else if ('error' in end) this.#reject(end.error);
    else this.#resolve(end.output);
  }
}

/** The job as the batch function sees it. Signal and log are created on first use. */
class JobInBatch implements BatchJob {
  readonly id: string;
  readonly input: unknown;
  readonly s3Config?: NonNullable<Job['s3Config']>;
  readonly schedule?: NonNullable<Job['schedule']>;
  readonly attempt: number;
  readonly deadline: number;
  readonly traceparent: string | undefined;
  readonly tracestate: string | undefined;
  readonly pauseGroup: BatchJob['pauseGroup'];
  readonly pauseLimit: BatchJob['pauseLimit'];
  readonly progress: BatchJob['progress'];
  readonly tempFolder: BatchJob['tempFolder'];
  readonly #ctx: AttemptContext;

  constructor({ id, input, s3Config, schedule }: Job, ctx: AttemptContext) {
    this.id = id;
    this.input = input;
    if (s3Config !== undefined) this.s3Config = s3Config;
    if (schedule) this.schedule = schedule;
    this.attempt = ctx.attempt;
    this.deadline = ctx.deadline;
    this.traceparent = ctx.traceparent;
    this.tracestate = ctx.tracestate;
    this.pauseGroup = ctx.pauseGroup;
    this.pauseLimit = ctx.pauseLimit;
    this.progress = ctx.progress;
    this.tempFolder = ctx.tempFolder;
    this.#ctx = ctx;
  }

  get signal(): AbortSignal {
    return this.#ctx.signal;
  }

  get log(): BatchJob['log'] {
    return this.#ctx.log;
  }

  get metrics(): BatchJob['metrics'] {
    return this.#ctx.metrics;
  }
}

type Step = IteratorResult<unknown>;
type End = { output: unknown } | { error: unknown };

interface StreamWaiter {
  resolve: (step: Step) => void;
  reject: (reason: unknown) => void;
}

/** Holds at most one chunk. The batch continues when the attempt asks for the next one. */
class MemberStream implements Steps {
  /** Resolves at the end, also after an error. */
  readonly ended: Promise<void>;
  readonly #endByAttempt: () => Promise<void> | undefined;
  #resolveEnded: () => void = () => undefined;
  #chunk: { value: unknown } | undefined;
  #end: End | undefined;
  /** The attempt waits for a chunk. */
  #waiting: StreamWaiter | undefined;
  /** The batch waits until the attempt has dealt with the last chunk. */
  #resumeBatch: (() => void) | undefined;

  constructor(endByAttempt: () => Promise<void> | undefined) {
    this.#endByAttempt = endByAttempt;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
  }

  push(value: unknown): Promise<void> {
    const taken = new Promise<void>((resolve) => {
      this.#resumeBatch = resolve;
    });
    if (this.#waiting) this.#answer({ done: false, value });
    else this.#chunk = { value };
    return taken;
  }

  end(end: End): void {
    this.#end = end;
    this.#resume();
    if (!this.#chunk && this.#waiting) this.#answerEnd(this.#waiting, end);
    this.#resolveEnded();
  }

  next(): Promise<Step> {
    this.#resume();
    const chunk = this.#chunk;
    this.#chunk = undefined;
    return new Promise((resolve, reject) => {
      if (chunk) resolve({ done: false, value: chunk.value });
      else if (this.#end) this.#answerEnd({ resolve, reject }, this.#end);
      else this.#waiting = { resolve, reject };
    });
  }

  return(): Promise<void> | undefined {
    this.#chunk = undefined;
    this.#resume();
    return this.#endByAttempt();
  }

  #answer(step: Step): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.resolve(step);
  }

  #answerEnd(waiting: StreamWaiter, end: End): void {
    this.#waiting = undefined;
    if ('error' in end) waiting.reject(end.error);
    else waiting.resolve({ done: true, value: end.output });
  }

  #resume(): void {
    const resume = this.#resumeBatch;
    this.#resumeBatch = undefined;
    resume?.();
  }
}
