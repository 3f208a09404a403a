// One handler thread seen from outside, from its start to its death: the jobs in it, what it says,
// and who is to blame if it dies. Leaves replacing it to thread-executor.ts.
import { MessageChannel, type MessagePort, receiveMessageOnPort } from 'node:worker_threads';
import type { Piscina } from 'piscina';
import type { HandlerConfig } from '../handler/define.ts';
import { describeThrown } from '../handler/thrown.ts';
import type { AttemptError } from '../wire/job.ts';
import type { ManagedExecution } from './managed-execution.ts';
import {
  type FromThread,
  type LaneTask,
  PortOutbox,
  type ToThread,
  unpack,
} from './thread-messages.ts';

/** A thread that is still there so long after it was terminated is stuck in native code. */
const TERMINATE_MS = 1_000;

export interface LaneEvents {
  onReady(lane: Lane, config: HandlerConfig): void;
  /** A slot has become free. */
  onFree(): void;
  /** The thread does not end although it was terminated; its jobs are settled. */
  onStuck(lane: Lane): void;
  /** The thread is dead and its jobs are settled. */
  onGone(lane: Lane, reason: string): void;
}

export interface LaneOptions {
  pool: Piscina<LaneTask, void>;
  /** File of thread-entry. */
  entry: string;
  task: Omit<LaneTask, 'port'>;
  /** Jobs at a time; by default what the handler's config says. */
  concurrency: number | undefined;
  /** By default what the handler's config says, else 10 minutes. */
  setupTimeoutMs: number | undefined;
  memoryLimitMb: number | undefined;
  writeLog: (lines: Uint8Array) => void;
  events: LaneEvents;
}

const DEFAULT_SETUP_TIMEOUT_MS = 600_000;

type Exit = Extract<FromThread, { kind: 'exit' }>;

export class Lane {
  readonly #options: LaneOptions;
  readonly #port: MessagePort;
  readonly #outbox: PortOutbox<ToThread>;
  readonly #jobs = new Map<number, ManagedExecution>();
  #state: 'starting' | 'ready' | 'leaving' | 'gone' = 'starting';
  #threadId: number | undefined;
  #slots = 0;
  #nextNumber = 1;
  #isKilled = false;
  #hasServed = false;
  #failure: string | undefined;
  #exit: Exit | undefined;
  #config: HandlerConfig = {};
  #timer: NodeJS.Timeout | undefined;
  readonly #whenGone: (() => void)[] = [];

  constructor(options: LaneOptions) {
    this.#options = options;
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    this.#outbox = new PortOutbox({ port: port1, schedule: queueMicrotask, payloads: 'lent' });
    port1.on('message', (packet) => this.#unpack(packet));
    this.#limitSetup(options.setupTimeoutMs ?? DEFAULT_SETUP_TIMEOUT_MS);
    const { pool, entry, task } = options;
    // Never with a signal: piscina gives such a task a thread to itself and kills that on abort.
    pool
      .run({ ...task, port: port2 }, { filename: entry, name: 'serveLane', transferList: [port2] })
      .then(
        () => this.#depart(undefined),
        (error: unknown) => this.#depart(error),
      );
  }

  /** The thread has begun to run; before that nothing can be said of it or done to it. */
  get isUp(): boolean {
    return this.#threadId !== undefined;
  }

  get wasReady(): boolean {
    return this.#slots > 0;
  }

  /** It ran a job to its end, or was killed for one that did not end. */
  get wasOfUse(): boolean {
    return this.wasReady && (this.#hasServed || this.#isKilled);
  }

  get free(): number {
    return this.#state === 'ready' && !this.#isKilled ? this.#slots - this.#jobs.size : 0;
  }

  run(job: ManagedExecution): void {
    const number = this.#nextNumber++;
    const { lease, timeoutMs } = job;
    const { jobId, attempt } = lease;
    this.#jobs.set(number, job);
    job.begin({
      stop: (reason) => this.#outbox.push({ kind: 'stop', number, reason }),
      grant: (bytes) => this.#outbox.push({ kind: 'grant', number, bytes }),
      kill: () => this.kill(),
    });
    this.#outbox.push({ kind: 'job', number, jobId, attempt, timeoutMs }, lease.input);
  }

  stopJobs(): void {
    for (const job of this.#jobs.values()) job.stop('shutdown');
  }

  /** Runs the author's teardown; resolves when the thread's task has ended, by itself or killed. */
  leave(teardownMs: number): Promise<void> {
    if (this.#state === 'gone') return Promise.resolve();
    return new Promise((resolve) => {
      this.#whenGone.push(resolve);
      if (this.#state !== 'ready') return this.kill();
      this.#state = 'leaving';
      this.#outbox.push({ kind: 'teardown' });
      this.#timer = setTimeout(() => this.kill(), teardownMs);
    });
  }

  /** Ends the thread, whatever it does. Those of its jobs that were not to be stopped are released. */
  kill(): void {
    if (this.#isKilled || this.#state === 'gone') return;
    this.#isKilled = true;
    clearTimeout(this.#timer);
    const thread = this.#options.pool.threads.find(({ threadId }) => threadId === this.#threadId);
    if (this.isUp && thread) {
      this.#timer = setTimeout(() => this.#declareStuck(), TERMINATE_MS);
      void thread.terminate();
    } else {
      this.abandon('the thread did not start');
    }
  }

  /** Gives up a lane whose thread never came up. */
  abandon(reason: string): void {
    this.#failure ??= reason;
    this.#depart(undefined);
  }

  #unpack(packet: Parameters<typeof unpack<FromThread>>[0]): void {
    for (const { message, payload } of unpack(packet)) this.#receive(message, payload);
  }

  #receive(message: FromThread, payload: Uint8Array = new Uint8Array(0)): void {
    switch (message.kind) {
      case 'up':
        this.#threadId = message.threadId;
        return;
      case 'loaded':
        this.#config = message.config;
        this.#limitSetup(
          this.#options.setupTimeoutMs ?? message.config.setupTimeoutMs ?? DEFAULT_SETUP_TIMEOUT_MS,
        );
        return;
      case 'ready':
        this.#becomeReady();
        return;
      case 'failed':
        this.#failStart(message.reason);
        return;
      case 'exit':
        this.#exit = message;
        return;
      case 'log':
        this.#receiveLog(message, payload);
        return;
      default:
        this.#receiveOfJob(message, payload);
    }
  }

  #receiveLog({ number, dropped }: Extract<FromThread, { kind: 'log' }>, lines: Uint8Array): void {
    this.#options.writeLog(lines);
    if (number !== undefined) this.#jobs.get(number)?.sink?.log(lines, dropped);
  }

  #receiveOfJob(
    message: Extract<FromThread, { kind: 'chunks' | 'progress' | 'end' }>,
    payload: Uint8Array,
  ): void {
    const job = this.#jobs.get(message.number);
    if (!job) return;
    switch (message.kind) {
      case 'chunks':
        job.sink?.chunks({ sizes: message.sizes, bytes: payload });
        return;
      case 'progress':
        job.sink?.progress(payload);
        return;
      case 'end': {
        const { outcome } = message;
        const hasOutput = outcome.kind === 'completed' && outcome.output === 'value';
        this.#jobs.delete(message.number);
        this.#hasServed = true;
        job.settle({ outcome, output: hasOutput ? payload : undefined });
        this.#options.events.onFree();
      }
    }
  }

  #becomeReady(): void {
    if (this.#state !== 'starting' || this.#isKilled) return;
    clearTimeout(this.#timer);
    this.#state = 'ready';
    this.#slots = this.#options.concurrency ?? this.#config.concurrency ?? 1;
    this.#options.events.onReady(this, this.#config);
  }

  #limitSetup(ms: number): void {
    clearTimeout(this.#timer);
    const { handlerPath } = this.#options.task;
    const reason = `${handlerPath}: loading and setup took longer than ${ms} ms`;
    this.#timer = setTimeout(() => this.#failStart(reason), ms);
  }

  /** The module stays broken in a thread that has failed to load it, so the thread goes too. */
  #failStart(reason: string): void {
    this.#failure ??= reason;
    this.kill();
  }

  #declareStuck(): void {
    this.#settleJobs(undefined);
    this.#options.events.onStuck(this);
    this.#announceGone();
  }

  #depart(error: unknown): void {
    if (this.#state === 'gone') return;
    // What the thread said before it died may still lie in the port.
    for (;;) {
      const last = receiveMessageOnPort(this.#port);
      if (!last) break;
      this.#unpack(last.message);
    }
    clearTimeout(this.#timer);
    this.#state = 'gone';
    const crash = this.#describeCrash(error);
    this.#settleJobs(this.#isKilled ? undefined : crash);
    this.#port.close();
    this.#options.events.onGone(this, this.#failure ?? crash.message);
    this.#announceGone();
  }

  #announceGone(): void {
    for (const resolve of this.#whenGone.splice(0)) resolve();
  }

  /** `crash` is undefined if the thread was killed for those that were to be stopped. */
  #settleJobs(crash: AttemptError | undefined): void {
    const culprit = this.#findCulprit();
    for (const [number, job] of this.#jobs) {
      if (job.isStopping) job.settleStopped('thread');
      else if (crash && number === culprit) job.settleCrashed(crash);
      else job.settleReleased('neighbour');
    }
    this.#jobs.clear();
  }

  /** The job in whose code the exit or the exception came up; else the only one, if there is one. */
  #findCulprit(): number | undefined {
    const [only] = this.#jobs.keys();
    return this.#exit?.number ?? (this.#jobs.size === 1 ? only : undefined);
  }

  #describeCrash(error: unknown): AttemptError {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'ERR_WORKER_OUT_OF_MEMORY') {
      const { memoryLimitMb } = this.#options;
      const limit = memoryLimitMb === undefined ? '' : ` (its limit is ${memoryLimitMb} MB)`;
      return { code: 'out_of_memory', message: `the handler's thread ran out of memory${limit}` };
    }
    if (this.#exit?.because === 'exit') {
      const message = `the handler ended its thread with process.exit(${this.#exit.code})`;
      return { code: 'thread_crashed', message };
    }
    const { message, type, stack } = describeThrown(error ?? 'it ended without a reason');
    return {
      code: 'thread_crashed',
      message: `the handler's thread died: ${message}`,
      ...(type === undefined ? {} : { type }),
      ...(stack === undefined ? {} : { stack }),
    };
  }
}
