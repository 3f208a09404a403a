// One handler thread from the worker's side: its start, its messages and its end. lane-state.ts has
// what it knows of the thread. thread-executor.ts replaces it.
import type { EventLoopUtilization } from 'node:perf_hooks';
import {
  MessageChannel,
  type MessagePort,
  receiveMessageOnPort,
  type Worker,
} from 'node:worker_threads';
import type { Piscina } from 'piscina';
import type { ModelStart } from '../../base/process/model-starts.ts';
import { createGroupList, endGroups } from '../../base/process/process-groups.ts';
import type { StopReason } from '../../handler/attempt/stop.ts';
import type { BatchEvent } from '../../handler/batch/settings.ts';
import type { LoadedConfig } from '../../handler/loading/load.ts';
import type { AttemptError } from '../../wire/job/attempt.ts';
import {
  countSlots,
  type ExecutorStart,
  type ManagedExecution,
  type StartStage,
} from './executor.ts';
import { LaneCapacity, LaneJobs, LaneStart } from './lane-state.ts';
import { PortOutbox, unpack } from './port-outbox.ts';
import { describeDeath, examineThread, type StuckThread } from './thread-end.ts';
import {
  type FromThread,
  type LaneTask,
  type ParkingAct,
  type ParkingAnswer,
  readPacket,
  type ThreadEnding,
  type ToThread,
} from './thread-messages.ts';

interface LaneEvents {
  onReady(lane: Lane, config: LoadedConfig): void;
  /** Slots are free, or their number has changed. */
  onFree(): void;
  onBatch(event: BatchEvent): void;
  /** A model process has started after `setup`. */
  onModelStart(start: ModelStart): void;
  /** The thread is about to end: another one can start. */
  onClosing(lane: Lane): void;
  /** The thread was terminated but does not end; its jobs are settled. */
  onStuck(lane: Lane, reason: string): void;
  /** The thread is dead and its jobs are settled. */
  onGone(lane: Lane, reason: string): void;
}

interface LaneOptions {
  pool: Piscina<LaneTask, void>;
  /** File of thread-entry. */
  entry: string;
  task: Omit<LaneTask, 'port' | 'groups'>;
  /** Concurrent jobs. Default: from the handler's config. */
  concurrency: number | undefined;
  /** Default: from the handler's config, else 10 minutes. */
  setupTimeoutMs: number | undefined;
  memoryLimitMb: number | undefined;
  examineMs: number;
  /** A thread that has not ended this long after its termination is stuck in native code, ms. */
  terminateMs: number;
  /** Time for the teardown of a replaced thread, ms. */
  teardownMs: number;
  writeLog: (lines: Uint8Array) => void;
  events: LaneEvents;
}

const BATCHES_DECIDE =
  '--jobs-per-thread: the number of jobs in a thread of a batch handler is batch.maxSize × batch.maxInFlight; ' +
  'remove the option and MILLRACE_JOBS_PER_THREAD';

export class Lane {
  readonly #options: LaneOptions;
  readonly #port: MessagePort;
  /** Of the model processes that the thread has started. */
  readonly #groups = createGroupList();
  readonly #outbox: PortOutbox<ToThread>;
  readonly #jobs: LaneJobs;
  readonly #start: LaneStart;
  #state: 'starting' | 'ready' | 'closing' | 'stuck' | 'gone' = 'starting';
  #thread: Worker | undefined;
  #heapLimitBytes: number | undefined;
  #loopAtStop: EventLoopUtilization | undefined;
  /** What the thread did when it was killed. */
  #stuck: StuckThread | undefined;
  /** Undefined until the thread is ready. */
  #capacity: LaneCapacity | undefined;
  #isKilled = false;
  #hasServed = false;
  #failure: string | undefined;
  #ending: ThreadEnding | undefined;
  #timer: NodeJS.Timeout | undefined;
  readonly #whenGone: (() => void)[] = [];
  readonly #parking = new Map<number, (answer: ParkingAnswer | undefined) => void>();
  #questions = 0;

  constructor(options: LaneOptions) {
    this.#options = options;
    this.#jobs = new LaneJobs(options.writeLog);
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    this.#outbox = new PortOutbox({ port: port1, schedule: queueMicrotask, payloads: 'lent' });
    port1.on('message', (packet) => this.#unpack(packet));
    const { pool, entry, setupTimeoutMs, task } = options;
    const { handlerPath } = task;
    const onTimeout = (reason: string) => this.#failStart(reason);
    this.#start = new LaneStart({ handlerPath, setupTimeoutMs, onTimeout });
    // No signal: piscina gives a task with a signal a thread of its own and kills the thread on
    // abort.
    pool
      .run(
        { ...task, groups: this.#groups, port: port2 },
        { filename: entry, name: 'serveLane', transferList: [port2] },
      )
      .then(
        () => this.#settleDeath(undefined),
        (error: unknown) => this.#settleDeath(error),
      );
  }

  /** The thread is running; before that, nothing can be sent to it. */
  get isUp(): boolean {
    return this.#thread !== undefined;
  }

  /** The stage at which the start failed; see HandlerNotLoadedError. */
  get stage(): StartStage {
    return this.#start.stage;
  }

  /** Where the time of the start went; call it when the thread is ready. */
  measureStart(): ExecutorStart {
    return this.#start.measure();
  }

  /** Of the model process that `setup` has started. */
  get modelStart(): ModelStart | undefined {
    return this.#start.model;
  }

  get failedCheck(): string | undefined {
    return this.#start.failedCheck;
  }

  /** The thread has jobs or can accept jobs. */
  get isServing(): boolean {
    return this.#state === 'ready' && !this.#isKilled;
  }

  get wasReady(): boolean {
    return this.#capacity !== undefined;
  }

  /** The thread completed a job, or was killed for one that did not end. */
  get wasUseful(): boolean {
    return this.wasReady && (this.#hasServed || this.#isKilled);
  }

  get free(): number {
    return (this.isServing && this.#capacity?.countFree(this.#jobs.size)) || 0;
  }

  /** See Executor.freeForMs. */
  get freeForMs(): number | undefined {
    return this.isServing ? this.#capacity?.freeForMs : undefined;
  }

  /** A batch has jobs and is not full. */
  get isFilling(): boolean {
    return this.#capacity?.isFilling ?? false;
  }

  run(job: ManagedExecution): void {
    const { lease, timeoutMs } = job;
    const {
      jobId,
      attempt,
      memoBytes = 0,
      traceparent,
      tracestate,
      s3Config,
      schedule,
      solo,
    } = lease;
    const number = this.#jobs.add(job);
    this.#capacity?.send(number);
    job.begin({
      stop: (reason, detail) => this.#stopJob(number, reason, detail),
      grant: (bytes) => this.#outbox.push({ kind: 'grant', number, bytes }),
      kept: (count) => this.#outbox.push({ kind: 'kept', number, count }),
      kill: () => this.kill(),
    });
    this.#outbox.push(
      {
        kind: 'job',
        number,
        jobId,
        attempt,
        timeoutMs,
        traceparent,
        tracestate,
        s3Config,
        schedule,
        solo,
        memoBytes,
        keepsSteps: job.keepsSteps,
      },
      lease.input,
    );
  }

  /** Undefined if the thread ends before it answers, or takes no part. */
  askParking(act: ParkingAct): Promise<ParkingAnswer | undefined> {
    if (!this.isServing) return Promise.resolve(undefined);
    const number = ++this.#questions;
    return new Promise((resolve) => {
      this.#parking.set(number, resolve);
      this.#outbox.push({ kind: 'parking', number, act });
    });
  }

  stopJobs(): void {
    this.#jobs.stop('shutdown');
  }

  /** Runs the handler's teardown; resolves when the thread's task has ended or was killed. */
  close(teardownMs: number): Promise<void> {
    if (this.#state === 'gone' || this.#state === 'stuck') return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenGone.push(resolve);
      // A retiring lane already has a time limit.
      if (this.#state === 'closing' && !this.#isKilled) return;
      if (this.#isKilled || this.#state !== 'ready') return this.kill();
      this.#tearDown({ teardownMs, thenWait: false });
    });
  }

  #tearDown({ teardownMs, thenWait }: { teardownMs: number; thenWait: boolean }): void {
    this.#state = 'closing';
    this.#outbox.push({ kind: 'teardown', thenWait });
    this.#timer = setTimeout(() => this.kill(), teardownMs);
  }

  /** Ends the thread at once. Jobs that were not being stopped are released. */
  kill(): void {
    if (this.#isKilled || this.#state === 'gone') return;
    this.#isKilled = true;
    this.#start.end();
    clearTimeout(this.#timer);
    const thread = this.#thread;
    if (thread) void this.#endThread(thread);
    else this.abandon('the thread did not start');
  }

  /** Gives up a lane whose thread never started. */
  abandon(reason: string): void {
    this.#failure ??= reason;
    this.#settleDeath(undefined);
  }

  #stopJob(number: number, reason: StopReason, detail: string | undefined): void {
    this.#loopAtStop = this.#thread?.performance.eventLoopUtilization();
    this.#outbox.push({ kind: 'stop', number, reason, detail });
  }

  async #endThread(thread: Worker): Promise<void> {
    if (this.#state === 'ready') this.#options.events.onClosing(this);
    // During a shutdown, the place of the jobs does not matter.
    const isStackNeeded = this.#jobs.stopReasons.some((reason) => reason !== 'shutdown');
    const since = this.#loopAtStop;
    const limitMs = this.#options.examineMs;
    if (isStackNeeded && since) this.#stuck = await examineThread(thread, { since, limitMs });
    if (this.#state === 'gone') return;
    this.#timer = setTimeout(() => this.#declareStuck(), this.#options.terminateMs);
    void thread.terminate();
  }

  #unpack(posted: unknown): void {
    const packet = readPacket(posted);
    if (packet) unpack(packet, (message, payload) => this.#receive(message, payload));
    else this.#failJobs();
  }

  /** Nothing that the thread sends from now on can be relied on. */
  #failJobs(): void {
    const message =
      "the handler's thread sent an invalid message; a job may have replaced built-ins, such as Math.round";
    this.#failure ??= message;
    this.#jobs.settleCrashed({ code: 'thread_crashed', message }, undefined);
    this.kill();
  }

  #receive(message: FromThread, payload: Uint8Array = new Uint8Array(0)): void {
    switch (message.kind) {
      case 'up':
        // A handler could name another thread later.
        if (this.isUp) return;
        this.#start.noteUp();
        this.#thread = this.#options.pool.threads.find(
          ({ threadId }) => threadId === message.threadId,
        );
        this.#heapLimitBytes = message.heapLimitBytes;
        if (this.#thread) this.#thread.once('exit', () => endGroups(this.#groups));
        else endGroups(this.#groups);

        return;
      case 'loaded':
        this.#start.noteLoaded(message.config);
        if (message.config.batch && this.#options.concurrency !== undefined) {
          this.#start.isMisused = true;
          this.#failStart(BATCHES_DECIDE);
        }
        return;
      case 'ready':
        this.#becomeReady();
        return;
      case 'failed':
        this.#start.failedCheck = message.check;
        this.#failStart(message.reason);
        return;
      case 'exit':
        this.#ending = message;
        return;
      case 'capacity':
        this.#capacity?.report(message);
        this.#options.events.onFree();
        return;
      case 'model_started': {
        const { kind: _kind, ...start } = message;
        if (this.#state === 'starting') this.#start.noteModel(start);
        else this.#options.events.onModelStart(start);
        return;
      }
      case 'batch':
        this.#options.events.onBatch(message.event);
        return;
      case 'parking':
        this.#parking.get(message.number)?.(message);
        this.#parking.delete(message.number);
        return;
      case 'torn_down':
        this.kill();
        return;
      case 'end': {
        const job = this.#jobs.get(message.number);
        if (job) this.#receiveEnd(job, message, payload);
        return;
      }
      default:
        this.#jobs.receive(message, payload);
    }
  }

  #receiveEnd(
    job: ManagedExecution,
    { contextLoss, recycle, number, outcome }: Extract<FromThread, { kind: 'end' }>,
    payload: Uint8Array,
  ): void {
    const hasOutput =
      outcome.kind === 'waiting' || (outcome.kind === 'completed' && outcome.output === 'value');
    const end = { outcome, output: hasOutput ? payload : undefined, recycle, contextLoss };
    this.#jobs.remove(number);
    this.#hasServed = true;
    job.settle(end);
    if (this.#start.config.isolation === 'job') this.#retire();
    else this.#options.events.onFree();
  }

  /** Retires the thread: the next job gets one of its own. */
  #retire(): void {
    if (this.#state !== 'ready' || this.#isKilled) return;
    this.#options.events.onClosing(this);
    this.#tearDown({ teardownMs: this.#options.teardownMs, thenWait: true });
  }

  #becomeReady(): void {
    if (this.#state !== 'starting' || this.#isKilled) return;
    const { config } = this.#start;
    this.#start.end();
    this.#state = 'ready';
    const slots = countSlots(config, this.#options.concurrency);
    const now = () => performance.now();
    this.#capacity = new LaneCapacity({ slots, batch: config.batch, now });
    this.#options.events.onReady(this, config);
  }

  /** A module that failed to load stays broken in its thread, so the thread ends too. */
  #failStart(reason: string): void {
    this.#failure ??= reason;
    this.kill();
  }

  #declareStuck(): void {
    this.#state = 'stuck';
    this.#jobs.settleKilled('process', this.#stuck);
    const stuck = 'handler thread did not end after it was killed, it is in native code';
    const reason = this.#failure === undefined ? stuck : `${this.#failure}; ${stuck}`;
    this.#options.events.onStuck(this, reason);
    this.#announceGone();
  }

  #settleDeath(error: unknown): void {
    if (this.#state === 'gone') return;
    // The port may still hold messages that the thread sent before its death.
    for (;;) {
      const last = receiveMessageOnPort(this.#port);
      if (!last) break;
      this.#unpack(last.message);
    }
    this.#start.end();
    clearTimeout(this.#timer);
    this.#state = 'gone';
    const crash = this.#describeDeath(error);
    if (this.#isKilled) this.#jobs.settleKilled('thread', this.#stuck);
    else this.#jobs.settleCrashed(crash, this.#ending?.number);
    this.#port.close();
    this.#options.events.onGone(this, this.#failure ?? crash.message);
    this.#announceGone();
  }

  #announceGone(): void {
    for (const answer of this.#parking.values()) answer(undefined);
    for (const resolve of this.#whenGone.splice(0)) resolve();
  }

  #describeDeath(error: unknown): AttemptError {
    const { memoryLimitMb } = this.#options;
    const heapLimitBytes =
      memoryLimitMb === undefined ? this.#heapLimitBytes : memoryLimitMb * 1_048_576;
    return describeDeath({ error, ending: this.#ending, heapLimitBytes });
  }
}
