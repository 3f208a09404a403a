// What a lane knows of its thread: how far its start has come, its jobs, and the slots that are left. When the thread
// ends, LaneJobs decides the outcome of each job: which one is to blame, and which ones return to the queue. lane.ts
// ends the thread.
import type { ModelStart } from '../../base/process/model-starts.ts';
import { describeStuck, type StopReason } from '../../handler/attempt/stop.ts';
import type { BatchSettings } from '../../handler/batch/settings.ts';
import type { LoadedConfig } from '../../handler/loading/load.ts';
import type { AttemptError, StopLevel } from '../../wire/job/attempt.ts';
import { nameTrace } from '../../wire/trace-context.ts';
import type { ExecutorStart, ManagedExecution, StartStage } from './executor.ts';
import type { StuckThread } from './thread-end.ts';
import type { FromThread, ReportedCapacity } from './thread-messages.ts';

const DEFAULT_SETUP_TIMEOUT_MS = 600_000;

interface LaneStartOptions {
  handlerPath: string;
  /** Default: from the handler's config, else 10 minutes. */
  setupTimeoutMs: number | undefined;
  /** Loading and setup took too long. */
  onTimeout: (reason: string) => void;
}

export class LaneStart {
  failedCheck: string | undefined;
  /** An option of the worker does not fit the handler. */
  isMisused = false;
  config: LoadedConfig = {};
  /** When the first code of the thread ran, Unix ms. */
  #upAt = 0;
  #loadedAt = 0;
  /** The slowest model process that `setup` has started. */
  model: ModelStart | undefined;
  readonly #options: LaneStartOptions;
  #isLoaded = false;
  #isOver = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: LaneStartOptions) {
    this.#options = options;
    this.#limit(undefined);
  }

  /** The stage that the start has reached; see HandlerNotLoadedError. */
  get stage(): StartStage {
    if (this.failedCheck !== undefined) return 'check';
    if (this.isMisused) return 'usage';
    return this.#isLoaded ? 'setup' : 'load';
  }

  noteUp(): void {
    this.#upAt = Date.now();
  }

  /** `setup` has started a model process. */
  noteModel(model: ModelStart): void {
    if (addUp(model) >= addUp(this.model)) this.model = model;
  }

  /** Call it when the thread is ready. Its model processes have started in the time of `setup`. */
  measure(): ExecutorStart {
    const { importMs = 0, interpreterMs = 0 } = this.model ?? {};
    const after = (since: number, until: number) => Math.max(0, until - since);
    return {
      of: 'worker',
      upAt: this.#upAt,
      interpreterMs,
      importMs: after(this.#upAt, this.#loadedAt) + importMs,
      setupMs: Math.max(0, after(this.#loadedAt, Date.now()) - interpreterMs - importMs),
    };
  }

  /** The module is loaded; its setup begins. */
  noteLoaded(config: LoadedConfig): void {
    this.#isLoaded = true;
    this.#loadedAt = Date.now();
    this.config = config;
    this.#limit(config.setupTimeoutMs);
  }

  /** The thread is ready or ends: the time limit no longer applies. */
  end(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  #limit(configured: number | undefined): void {
    clearTimeout(this.#timer);
    if (this.#isOver) return;
    const { handlerPath, onTimeout, setupTimeoutMs } = this.#options;
    const ms = setupTimeoutMs ?? configured ?? DEFAULT_SETUP_TIMEOUT_MS;
    this.#timer = setTimeout(() => {
      // A module that takes too long is a failed setup, not a module that cannot be loaded.
      this.#isLoaded = true;
      onTimeout(`${handlerPath}: loading and setup took longer than ${ms} ms`);
    }, ms);
  }
}

function addUp(model: ModelStart | undefined): number {
  return (model?.interpreterMs ?? 0) + (model?.importMs ?? 0) + (model?.setupMs ?? 0);
}

type JobOutput = Extract<
  FromThread,
  { kind: 'chunks' | 'progress' | 'pause' | 'step' | 'log' | 'held' }
>;

/** NDJSON. */
type WriteLog = (lines: Uint8Array) => void;

export class LaneJobs {
  readonly #writeLog: WriteLog;
  readonly #jobs = new Map<number, ManagedExecution>();
  #nextNumber = 1;

  constructor(writeLog: WriteLog) {
    this.#writeLog = writeLog;
  }

  get size(): number {
    return this.#jobs.size;
  }

  /** Reasons of the jobs that are being stopped. */
  get stopReasons(): StopReason[] {
    return [...this.#jobs.values()].flatMap(({ stopReason }) => stopReason ?? []);
  }

  /** @returns the job's number in the thread */
  add(job: ManagedExecution): number {
    const number = this.#nextNumber++;
    this.#jobs.set(number, job);
    return number;
  }

  get(number: number): ManagedExecution | undefined {
    return this.#jobs.get(number);
  }

  remove(number: number): void {
    this.#jobs.delete(number);
  }

  /** Passes output to its job. Log lines without a job belong to the thread. */
  receive(message: JobOutput, payload: Uint8Array): void {
    if (message.kind === 'log') this.#writeLog(payload);
    const job = message.number === undefined ? undefined : this.#jobs.get(message.number);
    switch (message.kind) {
      case 'chunks':
        job?.takeChunks({ sizes: message.sizes, bytes: payload });
        return;
      case 'progress':
        job?.sink?.progress(payload);
        return;
      case 'pause':
        job?.sink?.pause?.(message.forMs, message.limit);
        return;
      case 'step':
        job?.sink?.step?.(message.name, payload);
        return;
      case 'held':
        job?.takeHold(message.isHeld);
        return;
      case 'log':
        job?.sink?.log(payload, message.dropped);
    }
  }

  stop(reason: StopReason): void {
    for (const job of this.#jobs.values()) job.stop(reason);
  }

  /** The thread was killed because of stopped jobs; `stuck`: what it did then, if known. */
  settleKilled(level: StopLevel, stuck: StuckThread | undefined): void {
    for (const job of this.#jobs.values()) {
      if (job.stopReason === undefined) {
        job.settleReleased('neighbour');
      } else {
        if (stuck) this.#logStuck(job, level, stuck);
        job.settleStopped(level, stuck);
      }
    }
    this.#jobs.clear();
  }

  /** The thread died by itself in the code of the job with that number, if known. */
  settleCrashed(crash: AttemptError, number: number | undefined): void {
    const [only] = this.#jobs.keys();
    const culprit = number ?? (this.#jobs.size === 1 ? only : undefined);
    for (const [number, job] of this.#jobs) {
      if (job.stopReason !== undefined) job.settleStopped('thread');
      else if (number === culprit) job.settleCrashed(crash);
      else job.settleReleased(culprit === undefined ? 'suspect' : 'neighbour');
    }
    this.#jobs.clear();
  }

  /** Logged for worker and job, because the outcome of a cancelled job cannot carry it. */
  #logStuck(job: ManagedExecution, level: StopLevel, stuck: StuckThread): void {
    const msg = `the ${level} was killed because the job did not stop: ${describeStuck(stuck)}`;
    this.#log(job, { ...stuck, msg });
  }

  /** Writes a warning to the logs of worker and job. */
  #log(job: ManagedExecution, members: { msg: string; [member: string]: unknown }): void {
    const { jobId, attempt, traceparent } = job.lease;
    const names = { job: jobId, attempt, ...nameTrace(traceparent) };
    const line = JSON.stringify({ level: 40, time: Date.now(), ...names, ...members });
    const lines = Buffer.from(`${line}\n`);
    this.#writeLog(lines);
    job.sink?.log(lines, 0);
  }
}

interface LaneCapacityOptions {
  slots: number;
  /** Undefined if the handler takes single jobs. */
  batch: BatchSettings | undefined;
  /** In ms. */
  now: () => number;
}

/**
 * The free slots of the thread as its worker knows them. For a batch handler the thread reports them; jobs that are
 * still on their way to the thread are subtracted.
 */
export class LaneCapacity {
  readonly slots: number;
  readonly #batch: BatchSettings | undefined;
  readonly #now: () => number;
  #reported: ReportedCapacity;
  #lastSent = 0;
  /** When an incomplete batch starts. */
  #filledAt: number | undefined;

  constructor({ batch, now, slots }: LaneCapacityOptions) {
    this.slots = slots;
    this.#batch = batch;
    this.#now = now;
    this.#reported = { received: 0, free: slots, waiting: 0, fillMs: undefined };
  }

  /** A job with this number has been sent to the thread. Numbers grow by one. */
  send(number: number): void {
    this.#lastSent = number;
    // The thread's own report of the first job of a batch may come too late for the next take.
    if (this.#batch) this.#filledAt ??= this.#now() + this.#batch.maxWaitMs;
  }

  report(reported: ReportedCapacity): void {
    this.#reported = reported;
    if (reported.fillMs !== undefined) this.#filledAt = this.#now() + reported.fillMs;
    else if (reported.received === this.#lastSent) this.#filledAt = undefined;
  }

  /** Free slots while the thread has `jobs`. */
  countFree(jobs: number): number {
    const free = this.slots - jobs;
    if (!this.#batch) return free;
    // The batch has started or is about to: the thread will report what is left.
    if (this.freeForMs === 0) return 0;
    return Math.max(0, Math.min(free, this.#reported.free - this.#onTheirWay));
  }

  /** After this time the free slots may be gone, ms; undefined if they stay free. */
  get freeForMs(): number | undefined {
    return this.#filledAt === undefined ? undefined : Math.max(0, this.#filledAt - this.#now());
  }

  /** A batch has jobs and is not full: further jobs should join it. */
  get isFilling(): boolean {
    return this.#batch !== undefined && this.#reported.waiting + this.#onTheirWay > 0;
  }

  get #onTheirWay(): number {
    return this.#lastSent - this.#reported.received;
  }
}
