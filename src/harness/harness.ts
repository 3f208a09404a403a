// Platform and worker in the test's own process: the real queue, the real worker, no sockets, time
// that can be moved, and faults to order.
import { ManualClock } from '../base/clock.ts';
import { silentLog } from '../base/log.ts';
import type { HandlerFunction } from '../handler/define.ts';
import { type LoadedHandler, readHandler } from '../handler/load.ts';
import { Queue } from '../queue/queue.ts';
import type { QueueSettings } from '../queue/settings.ts';
import { openSqliteStore } from '../store/sqlite.ts';
import type { Store } from '../store/store.ts';
import type { Chunk } from '../wire/chunk/chunk.ts';
import type { JobPolicy, S3Config } from '../wire/job.ts';
import { type Json, stringifyJson } from '../wire/json.ts';
import type { Device } from '../wire/link/worker-link.ts';
import { endpointSettings } from '../wire/resources/endpoint.ts';
import { readTraceContext } from '../wire/trace-context.ts';
import { InlineExecutor } from '../worker/execution/inline-executor.ts';
import { createWorker, type Worker } from '../worker/worker.ts';
import { FaultyLink, type LinkCall } from './faulty-link.ts';
import { FlowingClock, type MovableClock } from './flowing-clock.ts';
import { HarnessJob } from './harness-job.ts';

/** A handler function, what defineHandler gives, or a whole module (`import * as handler from …`). */
export type TestedHandler =
  | HandlerFunction<never>
  | { readonly run: HandlerFunction<never> }
  | { readonly default: unknown };

export interface HarnessOptions {
  handler: TestedHandler;
  /** Jobs at a time. Default: the handler's `config.concurrency`, else 4. */
  slots?: number;
  /** Failures after which a job is FAILED. Default 3, as on the platform. */
  maxAttempts?: number;
  /** `flowing`: time passes and can be moved on. `manual`: it stands still until `advance`. */
  clock?: 'flowing' | 'manual';
  /** What the handler sees as `ctx.devices`. Default: one CPU. */
  devices?: readonly Device[];
  /** Other numbers for the queue, such as `leaseMs`. */
  queue?: Partial<QueueSettings>;
}

/** Beside the policy of the job: the trace of the client's request, as its headers would have it. */
export interface HarnessJobOptions extends JobPolicy {
  traceparent?: string;
  tracestate?: string;
  /** What the handler sees as `job.s3Config`. */
  s3Config?: S3Config;
}

const ENDPOINT_ID = 'harness';
const WORKER_ID = 'harness-worker';
const GHOST_ID = 'harness-ghost';
const DEFAULT_SLOTS = 4;
const CPU: Device = { kind: 'cpu', index: 0, uuid: 'cpu', name: 'harness', memoryBytes: 0 };

/** Starts platform and worker. @throws HandlerLoadError, HandlerNotLoadedError (setup threw) */
export async function createHarness(options: HarnessOptions): Promise<Harness> {
  const harness = new Harness(options);
  await harness.start();
  return harness;
}

export class Harness implements AsyncDisposable {
  readonly #handler: LoadedHandler;
  readonly #options: HarnessOptions;
  readonly #clock: MovableClock;
  readonly #store: Store = openSqliteStore({ path: ':memory:' });
  #queue: Queue;
  #isPlatformUp = false;
  #link: FaultyLink;
  #executor: InlineExecutor;
  #worker: Worker;
  #incarnation = 1;
  #ghosts = 0;

  constructor(options: HarnessOptions) {
    this.#options = options;
    this.#handler = readHandler(options.handler, 'handler');
    this.#clock = options.clock === 'manual' ? new ManualClock() : new FlowingClock();
    this.#queue = this.#createQueue();
    this.#link = this.#openLink();
    this.#executor = this.#createExecutor();
    this.#worker = this.#createWorker();
  }

  async start(): Promise<void> {
    const { maxAttempts = 3 } = this.#options;
    const settings = endpointSettings.parse({ maxAttempts });
    const createdAt = this.#clock.now();
    await this.#store.write((tx) => tx.putEndpoint({ id: ENDPOINT_ID, settings, createdAt }));
    await this.#queue.start();
    this.#isPlatformUp = true;
    this.#link.connect(this.#queue.link(ENDPOINT_ID));
    await this.#worker.start();
  }

  /** Lets the worker leave and closes the platform; what still runs is stopped. */
  async close(): Promise<void> {
    await this.#endWorker(() => this.#worker.stop());
    await this.stopPlatform();
    await this.#store.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  // --- jobs ---

  /** Runs a job to its end. @returns its output @throws JobFailedError */
  async run(input: object, options: HarnessJobOptions = {}): Promise<Json> {
    return (await this.submit(input, options)).result();
  }

  /** Runs a job and gives what it yields as it comes. @throws JobFailedError at its end */
  async *stream(input: object, options: HarnessJobOptions = {}): AsyncGenerator<Chunk, void, void> {
    const job = await this.submit(input, options);
    yield* job.chunks();
    await job.result();
  }

  /** Puts a job into the queue; resolves when it is stored. */
  async submit(input: object, options: HarnessJobOptions = {}): Promise<HarnessJob> {
    const { s3Config, traceparent, tracestate, ...policy } = options;
    const { id } = await this.#queue.submissions.submit({
      endpointId: ENDPOINT_ID,
      mode: 'run',
      input: Buffer.from(stringifyJson(input, 'input')),
      policy,
      idempotency: undefined,
      trace: readTraceContext(traceparent, tracestate),
      attachment: s3Config && { format: null, handlerData: JSON.stringify(s3Config) },
    });
    return new HarnessJob(id, ENDPOINT_ID, () => this.#queue);
  }

  async cancel(id: string): Promise<void> {
    await this.#queue.jobs.cancel({ endpointId: ENDPOINT_ID, id });
  }

  // --- time and faults ---

  /** Moves time on: leases run out, retries become due, timeouts strike. */
  advance(ms: number): Promise<void> {
    return this.#clock.advance(ms);
  }

  /** The worker's next call of this kind does not arrive; it is made again. */
  dropNextRequest(call: LinkCall = 'report'): void {
    this.#link.dropNext(call, 'request');
  }

  /** It arrives and counts, but its answer is lost or unreadable: the call will come twice. */
  dropNextAnswer(call: LinkCall = 'report'): void {
    this.#link.dropNext(call, 'answer');
  }

  /** It is on its way until the returned function is called: calls that begin later overtake it. */
  holdNextRequest(call: LinkCall = 'report'): () => void {
    return this.#link.holdNext(call, 'request');
  }

  /** It counts at once; the worker learns of that when the returned function is called. */
  holdNextAnswer(call: LinkCall = 'report'): () => void {
    return this.#link.holdNext(call, 'answer');
  }

  /** From now on each request and each answer takes so long, by the clock of the harness; 0 ends it. */
  slowDown(ms: number): void {
    this.#link.delay(ms);
  }

  /** All open calls of the worker break off, the waiting ones too. New ones get through. */
  cutConnections(): void {
    this.#link.cut();
  }

  /** The worker's network is gone: each of its calls fails at once, until `reconnect`. */
  disconnect(): void {
    this.#link.turn('refusing');
  }

  /**
   * The worker's connections are half-open: nothing arrives, no answer comes and nothing fails, so
   * that it has to lose its patience, until `reconnect`.
   */
  fallSilent(): void {
    this.#link.turn('silent');
  }

  /** Ends `disconnect` and `fallSilent`. What hangs is not heard of any more: the worker gives it up. */
  reconnect(): void {
    this.#link.turn('open');
  }

  /** The platform closes; nobody can submit or read jobs until `startPlatform`. */
  async stopPlatform(): Promise<void> {
    if (!this.#isPlatformUp) return;
    this.#isPlatformUp = false;
    this.#link.disconnect();
    await this.#queue.close();
  }

  /** It comes back on the same store. */
  async startPlatform(): Promise<void> {
    if (this.#isPlatformUp) return;
    this.#queue = this.#createQueue();
    await this.#queue.start();
    this.#isPlatformUp = true;
    this.#link.connect(this.#queue.link(ENDPOINT_ID));
  }

  /** `stopPlatform`, and at once `startPlatform`. */
  async restartPlatform(): Promise<void> {
    await this.stopPlatform();
    await this.startPlatform();
  }

  /**
   * The thread dies in the code of that job, which fails with `thread_crashed`; jobs beside it go back
   * to the queue. In this process a handler cannot be killed: its signal aborts, and it goes on
   * unheard; nor is the module loaded anew. @throws Error if the job is not running
   */
  killThread(id: string): void {
    if (!this.#executor.crash(id)) throw new Error(`job ${id} is not running`);
  }

  /**
   * The worker dies with what it runs, and a new one takes its place. In this process a handler cannot
   * be killed: its signal aborts, and nothing that it still says is heard.
   */
  async killWorker(): Promise<void> {
    await this.#endWorker(() => {
      this.#link.kill();
      return this.#worker.ended;
    });
    this.#incarnation++;
    this.#link = this.#openLink();
    this.#executor = this.#createExecutor();
    this.#worker = this.#createWorker();
    await this.#worker.start();
  }

  /**
   * The job's lease runs out unnoticed and another worker is given the job, which hands it back: the
   * handler's signal aborts, and what the old attempt still reports has no effect.
   */
  async loseLease(id: string): Promise<void> {
    const { leaseMs, renewEveryMs } = this.#queue.settings;
    const job = new HarnessJob(id, ENDPOINT_ID, () => this.#queue);
    const { attempt } = await job.record();
    this.#link.hideJob(id);
    try {
      await this.#clock.advance(leaseMs + 1);
      while ((await job.record()).attempt === attempt) await this.#takeAsGhost();
    } finally {
      this.#link.showJob(id);
    }
    // With the next renewal the worker learns of it.
    await this.#clock.advance(renewEveryMs);
  }

  /** Another worker takes what is there, and gives it back. */
  async #takeAsGhost(): Promise<void> {
    const link = this.#queue.link(ENDPOINT_ID);
    const ghost = { workerId: GHOST_ID, incarnation: ++this.#ghosts };
    const hello = { protocol: 1, version: 'ghost', slots: 1, devices: [CPU], outbox: [] };
    await link.hello({ ...ghost, ...hello });
    const take = { takeId: `ghost-${this.#ghosts}`, max: 1, waitMs: 0, held: [] };
    const leases = await link.take({ ...ghost, ...take }, AbortSignal.timeout(1_000));
    await link.bye({ ...ghost, reason: 'drained', outbox: [] });
    if (leases.length === 0) await this.#clock.advance(1_000);
  }

  #createQueue(): Queue {
    const { queue: settings = {} } = this.#options;
    return new Queue({ store: this.#store, clock: this.#clock, log: silentLog, settings });
  }

  /** What a worker waits for before it can go does not hold the test up, nor does time that stands. */
  async #endWorker(end: () => Promise<unknown>): Promise<void> {
    const { isDisturbed } = this.#link;
    const mustAdvance = isDisturbed || this.#clock instanceof ManualClock;
    if (isDisturbed) this.#link.kill();
    let isOver = false;
    const ending = end().finally(() => {
      isOver = true;
    });
    while (mustAdvance && !isOver) await this.#clock.advance(1_000);
    await ending;
  }

  #openLink(): FaultyLink {
    const link = new FaultyLink(this.#queue.link(ENDPOINT_ID), this.#clock);
    if (!this.#isPlatformUp) link.disconnect();
    return link;
  }

  #createExecutor(): InlineExecutor {
    const handler = this.#handler;
    const { devices = [CPU], slots = handler.config.concurrency ?? DEFAULT_SLOTS } = this.#options;
    return new InlineExecutor({ handler, devices, slots, clock: this.#clock });
  }

  #createWorker(): Worker {
    const { devices = [CPU] } = this.#options;
    return createWorker({
      link: this.#link,
      executor: this.#executor,
      workerId: WORKER_ID,
      incarnation: this.#incarnation,
      version: 'harness',
      devices,
      clock: this.#clock,
    });
  }
}
