// Platform and worker in the test's own process: the real queue and worker without sockets, with
// controllable time and injected faults.
import type { z } from 'zod';
import { ManualClock } from '../base/clock.ts';
import { silentLog } from '../base/log.ts';
import type { BatchFunction, BatchOptions, HandlerFunction } from '../handler/define.ts';
import { type LoadedHandler, readHandler } from '../handler/loading/load.ts';
import { Queue } from '../queue/queue.ts';
import type { ScheduleCall } from '../queue/schedules/schedules.ts';
import type { QueueSettings } from '../queue/settings.ts';
import { openSqliteStore } from '../store/sqlite/sqlite.ts';
import type { Store } from '../store/store.ts';
import type { Chunk } from '../wire/chunk/chunk.ts';
import type { ChunkOf, InputOf, OutputOf } from '../wire/job/handler-types.ts';
import { isTerminal, type JobPolicy, type S3Config } from '../wire/job/job.ts';
import type { JobRecord } from '../wire/job/job-records.ts';
import { requireJsonInput } from '../wire/job/json-input.ts';
import type { RetryPolicy } from '../wire/job/retry-policy.ts';
import { type Json, stringifyJson } from '../wire/json.ts';
import type { Device, WorkerLink } from '../wire/link/worker-link.ts';
import { type EndpointSettings, endpointSettings } from '../wire/resources/endpoint.ts';
import { type StoredSchedule, scheduleCreation } from '../wire/resources/schedule.ts';
import { readTraceContext } from '../wire/trace-context.ts';
import { InlineExecutor } from '../worker/execution/inline-executor.ts';
import { createWorker, type Worker } from '../worker/worker.ts';
import { FaultyLink, type LinkCall } from './faulty-link.ts';
import { FlowingClock, keepAlive, type MovableClock } from './flowing-clock.ts';
import {
  HARNESS_FORMS,
  type HarnessBatch,
  type HarnessBatchLine,
  type HarnessBatchOptions,
  submitBatch,
} from './harness-batch.ts';
import { type HarnessFlow, type HarnessFlowJob, submitFlow } from './harness-flow.ts';
import { HarnessJob } from './harness-job.ts';

/**
 * A handler function, the result of `defineHandler` or `defineBatchHandler`, or a whole module
 * (`import * as handler from …`).
 */
export type TestedHandler =
  | HandlerFunction<never>
  | { readonly run: HandlerFunction<never> }
  | { readonly run: BatchFunction<never>; readonly batch: BatchOptions<never> }
  | { readonly default: unknown };

export interface HarnessOptions<Handler extends TestedHandler = TestedHandler> {
  handler: Handler;
  /**
   * Concurrent jobs. Default: the handler's `config.concurrency`, else 4. A batch handler has as many
   * as its batches in flight can hold.
   */
  slots?: number;
  /** Failed attempts after which a job is FAILED. Default 3, as on the platform. */
  maxAttempts?: number;
  /** Retry policy of the endpoint. Default: none. */
  retry?: Omit<RetryPolicy, 'maxAttempts'>;
  /** Further endpoints, by their IDs, each with the handler that its worker runs: for the children that `ctx.run` starts. */
  endpoints?: Readonly<Record<string, TestedHandler>>;
  /** Limits of the endpoint. Default: none. */
  limits?: Partial<Pick<EndpointSettings, 'groupConcurrency' | 'groupRateLimit' | 'rateLimit'>>;
  /** `flowing`: real time that you can move forward. `manual`: time moves only with `advance`. */
  clock?: 'flowing' | 'manual';
  /** Where the manual clock starts. Default: 2026-01-01 UTC. */
  startAt?: Date;
  /** `ctx.devices` for the handler. Default: one CPU. */
  devices?: readonly Device[];
  /** Overrides settings of the queue, such as `leaseMs`. */
  queue?: Partial<QueueSettings>;
}

/** The job's policy and the trace headers of the client's request. */
export interface HarnessJobOptions extends JobPolicy {
  traceparent?: string;
  tracestate?: string;
  /** `job.s3Config` for the handler. */
  s3Config?: S3Config;
}

/** A schedule for tests; the fields are those of `POST /v1/schedules`. */
export type HarnessSchedule<Input = object> = Partial<
  Omit<z.input<typeof scheduleCreation>, 'endpointId' | 'input'>
> & { input?: Input };

export interface HarnessScheduled<Output = Json, ChunkOutput = Json> {
  readonly id: string;
  /** `nextTick`: ISO 8601; null: none comes. */
  state(): Promise<
    Pick<StoredSchedule, 'jobs' | 'lastTicks' | 'skipped'> & { nextTick: string | null }
  >;
  /** With false, it goes on. */
  pause(paused?: boolean): Promise<void>;
  /** Makes a job now. */
  trigger(): Promise<HarnessJob<Output, ChunkOutput>>;
  /** A job of `lastTicks`. */
  job(id: string): HarnessJob<Output, ChunkOutput>;
}

/** Before work is due, the worker gets this time to poll again, ms. */
const WAKING_MS = 2_000;
/** Time from work that is due to the next look, ms. */
const WORKING_MS = 1_000;
const SHORTEST_SKIP_MS = 60_000;
const FOREVER = Number.POSITIVE_INFINITY;

/** Jobs that have not come together by then, because of a fault perhaps, run without the others. */
const MAX_GATHER_ITERATIONS = 1_000;
const ENDPOINT_ID = 'harness';
const WORKER_ID = 'harness-worker';
const DEFAULT_SLOTS = 4;
const CPU: Device = { kind: 'cpu', index: 0, uuid: 'cpu', name: 'harness', memoryBytes: 0 };

type HarnessOf<Handler> = Harness<
  InputOf<Handler>,
  OutputOf<Handler, Json>,
  ChunkOf<Handler, Json>
>;

/**
 * Starts platform and worker. The handler types the inputs, outputs and chunks of the jobs.
 * @throws HandlerLoadError, HandlerNotLoadedError (setup threw)
 */
export async function createHarness<Handler extends TestedHandler>(
  options: HarnessOptions<Handler>,
): Promise<HarnessOf<Handler>> {
  const harness = new Harness<InputOf<Handler>, OutputOf<Handler, Json>, ChunkOf<Handler, Json>>(
    options,
  );
  await keepAlive(harness.start());
  return harness;
}

export class Harness<Input = object, Output = Json, ChunkOutput = Json> implements AsyncDisposable {
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
  readonly #otherWorker = new OtherWorker([CPU]);
  readonly #further: FurtherEndpoint[] = [];

  constructor(options: HarnessOptions) {
    this.#options = options;
    this.#handler = readHandler(options.handler, 'handler');
    const { clock, startAt } = options;
    this.#clock = clock === 'manual' ? new ManualClock(startAt?.getTime()) : new FlowingClock();
    this.#queue = this.#createQueue();
    this.#link = this.#openLink();
    this.#executor = this.#createExecutor();
    this.#worker = this.#createWorker();
  }

  async start(): Promise<void> {
    const { limits = {}, maxAttempts = 3, retry = null } = this.#options;
    const settings = endpointSettings.parse({ ...limits, maxAttempts, retry });
    const createdAt = this.#clock.now();
    await this.#store.write((tx) => tx.putEndpoint({ id: ENDPOINT_ID, settings, createdAt }));
    await this.#queue.start();
    this.#isPlatformUp = true;
    this.#link.connect(this.#queue.link(ENDPOINT_ID));
    await this.#worker.start();
    for (const [id, handler] of Object.entries(this.#options.endpoints ?? {})) {
      await this.#store.write((tx) => tx.putEndpoint({ id, settings, createdAt }));
      this.#further.push(this.#openEndpoint(id, readHandler(handler, `handler of ${id}`)));
    }
    for (const { worker } of this.#further) await worker.start();
  }

  /** Drains the worker and closes the platform; running jobs are stopped. */
  close(): Promise<void> {
    return keepAlive(this.#close());
  }

  async #close(): Promise<void> {
    await this.#endWorker(() =>
      Promise.all([this.#worker.stop(), ...this.#further.map(({ worker }) => worker.stop())]),
    );
    await this.stopPlatform();
    await this.#store.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  // --- jobs ---

  /** Runs a job to its end. @returns its output @throws JobFailedError */
  async run(input: Input, options: HarnessJobOptions = {}): Promise<Output> {
    return (await this.submit(input, options)).result();
  }

  /** Runs a job and yields its chunks as they arrive. @throws JobFailedError at its end */
  async *stream(
    input: Input,
    options: HarnessJobOptions = {},
  ): AsyncGenerator<Chunk<ChunkOutput>, void, void> {
    const job = await this.submit(input, options);
    yield* job.chunks();
    await job.result();
  }

  /** Submits a job; resolves when it is stored. */
  async submit(
    input: Input,
    options: HarnessJobOptions = {},
  ): Promise<HarnessJob<Output, ChunkOutput>> {
    const { s3Config, traceparent, tracestate, ...policy } = options;
    requireJsonInput(input);
    const { id } = await this.#queue.submissions.submit({
      endpointId: ENDPOINT_ID,
      mode: 'run',
      input: Buffer.from(stringifyJson(input, 'input')),
      policy,
      idempotency: undefined,
      trace: readTraceContext(traceparent, tracestate),
      attachment: s3Config && { format: null, handlerData: JSON.stringify(s3Config) },
    });
    return new HarnessJob<Output, ChunkOutput>(id, ENDPOINT_ID, () => this.#queue);
  }

  /**
   * Runs one job for each input of a batch handler, together in as few batches as `maxSize` and `key`
   * allow. @returns the jobs' records, in order, with any status
   */
  async runBatch(
    inputs: readonly Input[],
    options: HarnessJobOptions = {},
  ): Promise<JobRecord<Output>[]> {
    const release = this.#executor.holdBatches();
    const jobs: HarnessJob<Output, ChunkOutput>[] = [];
    try {
      for (const input of inputs) jobs.push(await this.submit(input, options));
      await this.#untilGathered(jobs);
    } finally {
      release();
    }
    return Promise.all(jobs.map((job) => job.end()));
  }

  /** Creates a schedule: its ticks make jobs as the time advances. @throws ProblemError */
  async schedule(schedule: HarnessSchedule<Input>): Promise<HarnessScheduled<Output, ChunkOutput>> {
    const { input, ...given } = schedule;
    if (input !== undefined) requireJsonInput(input);
    const creation = scheduleCreation.parse({
      ...{ name: 'schedule', ...given, endpointId: ENDPOINT_ID },
      ...(input !== undefined && { input: JSON.parse(stringifyJson(input, 'input')) }),
    });
    const userId = 'harness';
    const created = await this.#queue.schedules.call(ENDPOINT_ID, {
      ...{ verb: 'create', userId, creation },
    });
    const { id } = created.schedule;
    const call = (made: ScheduleCall) => this.#queue.schedules.call(ENDPOINT_ID, made);
    return {
      id,
      async state() {
        const { jobs, lastTicks, nextAt, skipped } = (await call({ verb: 'get', id })).schedule;
        const next = nextAt === null ? null : new Date(nextAt).toISOString();
        return { jobs, lastTicks, nextTick: next, skipped };
      },
      async pause(paused = true) {
        await call({ verb: 'update', id, update: { paused } });
      },
      trigger: async () => {
        const { jobId = '' } = await call({ verb: 'trigger', id });
        return new HarnessJob<Output, ChunkOutput>(jobId, ENDPOINT_ID, () => this.#queue);
      },
      job: (jobId) => new HarnessJob<Output, ChunkOutput>(jobId, ENDPOINT_ID, () => this.#queue),
    };
  }

  /** Submits a graph of jobs; resolves when all are stored. @throws ProblemError */
  submitFlow(jobs: readonly HarnessFlowJob<Input>[]): Promise<HarnessFlow<Output, ChunkOutput>> {
    return submitFlow({ jobs, endpointId: ENDPOINT_ID, queue: () => this.#queue });
  }

  /** Submits the lines of a batch. @throws ProblemError */
  submitBatch(
    lines: readonly HarnessBatchLine<Input>[],
    options: HarnessBatchOptions = {},
  ): Promise<HarnessBatch<Output>> {
    return submitBatch({ lines, options, endpointId: ENDPOINT_ID, queue: () => this.#queue });
  }

  async cancel(id: string): Promise<void> {
    await this.#queue.jobs.cancel({ endpointId: ENDPOINT_ID, id });
  }

  /** Queues a FAILED or TIMED_OUT job again, as a client does. */
  async retry(id: string): Promise<void> {
    await this.#queue.jobs.retry({ endpointId: ENDPOINT_ID, id });
  }

  /** Starts no more jobs, or none of one group, until `resume` or `until` (Unix ms of the harness's clock). */
  async pause({
    group = null,
    until = null,
  }: {
    group?: string | null;
    until?: number | null;
  } = {}): Promise<void> {
    await this.#queue.pauses.pause({ endpointId: ENDPOINT_ID, group, until, reason: null });
  }

  async resume({ group = null }: { group?: string | null } = {}): Promise<void> {
    await this.#queue.pauses.resume({ endpointId: ENDPOINT_ID, group });
  }

  // --- time and faults ---

  /** Moves the time forward: leases expire, retries become due, timeouts fire, schedules tick. */
  async advance(ms: number): Promise<void> {
    const until = this.#clock.now() + ms;
    for (let idleUntil = 0; idleUntil < until; ) {
      idleUntil = Math.min(until, await this.#findNextWork());
      const skippedMs = idleUntil - WAKING_MS - this.#clock.now();
      // Without it, the polls of a month would take minutes.
      if (skippedMs > SHORTEST_SKIP_MS) this.#clock.startFrom(this.#clock.now() + skippedMs);
      const idleMs = idleUntil - this.#clock.now();
      const step = idleMs > 0 ? idleMs + WORKING_MS : SHORTEST_SKIP_MS;
      await this.#clock.advance(Math.min(step, until - this.#clock.now()));
    }
    await this.#clock.advance(until - this.#clock.now());
  }

  /** When the queue has work to do next: now, if it has some or nobody knows. */
  async #findNextWork(): Promise<number> {
    const now = this.#clock.now();
    if (!this.#isPlatformUp || this.#link.isDisturbed) return now;
    const dueAt = await this.#store.read((tx) => {
      const ids = [ENDPOINT_ID, ...this.#further.map(({ id }) => id)];
      const isBusy = tx.leasedJobs().length > 0 || ids.some((id) => tx.countReady(id, 1) > 0);
      return isBusy ? now : tx.nextDueAt();
    });
    const { nextBatchStepAt, schedules } = this.#queue;
    return Math.max(now, Math.min(dueAt ?? FOREVER, schedules.nextTickAt, nextBatchStepAt));
  }

  /** Drops the worker's next call of this kind; the worker repeats it. */
  dropNextRequest(call: LinkCall = 'report'): void {
    this.#link.dropNext(call, 'request');
  }

  /** Applies the next call but drops its answer; the worker repeats the call. */
  dropNextAnswer(call: LinkCall = 'report'): void {
    this.#link.dropNext(call, 'answer');
  }

  /** Delays the next call until the returned function is called; later calls overtake it. */
  holdNextRequest(call: LinkCall = 'report'): () => void {
    return this.#link.holdNext(call, 'request');
  }

  /** Applies the next call at once but delays its answer until the returned function is called. */
  holdNextAnswer(call: LinkCall = 'report'): () => void {
    return this.#link.holdNext(call, 'answer');
  }

  /** Delays each request and each answer by this time of the harness's clock; 0 ends it. */
  slowDown(ms: number): void {
    this.#link.delay(ms);
  }

  /** Breaks all open calls of the worker, waiting ones included. New calls work. */
  cutConnections(): void {
    this.#link.cut();
  }

  /** Takes the worker's network away: every call fails at once until `reconnect`. */
  disconnect(): void {
    this.#link.setNetwork('refusing');
  }

  /**
   * Makes the worker's connections half-open until `reconnect`: nothing arrives, nothing is
   * answered and nothing fails, so the worker must give up by itself.
   */
  fallSilent(): void {
    this.#link.setNetwork('silent');
  }

  /** Ends `disconnect` and `fallSilent`. Hanging calls stay lost: the worker gives them up. */
  reconnect(): void {
    this.#link.setNetwork('open');
  }

  /** Closes the platform; jobs cannot be submitted or read until `startPlatform`. */
  async stopPlatform(): Promise<void> {
    if (!this.#isPlatformUp) return;
    this.#isPlatformUp = false;
    this.#link.disconnect();
    for (const { link } of this.#further) link.disconnect();
    await this.#queue.close();
  }

  /** Starts the platform again on the same store. */
  async startPlatform(): Promise<void> {
    if (this.#isPlatformUp) return;
    this.#queue = this.#createQueue();
    await this.#queue.start();
    this.#isPlatformUp = true;
    this.#link.connect(this.#queue.link(ENDPOINT_ID));
    for (const { id, link } of this.#further) link.connect(this.#queue.link(id));
  }

  /** `stopPlatform`, then `startPlatform`. */
  async restartPlatform(): Promise<void> {
    await this.stopPlatform();
    await this.startPlatform();
  }

  /**
   * Simulates the death of the job's thread: the job fails with `thread_crashed` and the other jobs
   * of the thread return to the queue. The harness cannot kill a handler in its own process: it
   * aborts the handler's signal and ignores its further reports; it does not reload the module.
   * @throws Error if the job is not running
   */
  killThread(id: string): void {
    if (!this.#executor.crash(id)) throw new Error(`job ${id} is not running`);
  }

  /**
   * Simulates the death of the worker and starts a new one. The harness cannot kill a handler in
   * its own process: it aborts the handler's signal and ignores its further reports.
   */
  killWorker(): Promise<void> {
    return keepAlive(this.#replaceWorker());
  }

  async #replaceWorker(): Promise<void> {
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
   * Lets the job's lease expire unnoticed; another worker gets the job and releases it. The
   * handler's signal aborts, and reports of the old attempt have no effect.
   */
  async loseLease(id: string): Promise<void> {
    const { leaseMs, renewEveryMs } = this.#queue.settings;
    const job = new HarnessJob(id, ENDPOINT_ID, () => this.#queue);
    const { attempt } = await job.record();
    this.#link.hideJob(id);
    try {
      await this.#clock.advance(leaseMs + 1);
      while ((await job.record()).attempt === attempt) {
        const released = await this.#otherWorker.takeAndRelease(this.#queue.link(ENDPOINT_ID));
        if (released === 0) await this.#clock.advance(1_000);
      }
    } finally {
      this.#link.showJob(id);
    }
    // The worker learns of it with its next renewal.
    await this.#clock.advance(renewEveryMs);
  }

  /** Each job waits for its batch, or has ended; no more wait than the worker has slots. */
  async #untilGathered(jobs: readonly HarnessJob<Output, ChunkOutput>[]): Promise<void> {
    for (let at = 0; at < MAX_GATHER_ITERATIONS; at++) {
      await this.#clock.advance(0);
      const records = await Promise.all(jobs.map((job) => job.record()));
      const live = records.filter(({ status }) => !isTerminal(status)).length;
      if (this.#executor.waitingForBatch >= Math.min(live, this.#executor.slots)) return;
    }
  }

  #createQueue(): Queue {
    const { queue: settings = {} } = this.#options;
    const parts = { store: this.#store, clock: this.#clock, log: silentLog };
    return new Queue({ ...parts, settings, batchForms: HARNESS_FORMS });
  }

  /** Ends the worker even if it waits for something or if time stands still. */
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

  #openEndpoint(id: string, handler: LoadedHandler): FurtherEndpoint {
    const link = new FaultyLink(this.#queue.link(id), this.#clock);
    return { id, link, worker: this.#createWorker(link, this.#createExecutor(handler)) };
  }

  #createExecutor(handler = this.#handler): InlineExecutor {
    const { devices = [CPU], slots = handler.config.concurrency ?? DEFAULT_SLOTS } = this.#options;
    return new InlineExecutor({ handler, devices, slots, clock: this.#clock });
  }

  #createWorker(link = this.#link, executor = this.#executor): Worker {
    const { devices = [CPU] } = this.#options;
    return createWorker({
      link,
      executor,
      workerId: WORKER_ID,
      incarnation: this.#incarnation,
      version: 'harness',
      devices,
      clock: this.#clock,
    });
  }
}

/** An endpoint besides the tested one. */
interface FurtherEndpoint {
  id: string;
  link: FaultyLink;
  worker: Worker;
}

const OTHER_WORKER_ID = 'harness-other';

/** A second worker, which takes a job whose lease has expired and releases it. */
class OtherWorker {
  readonly #devices: Device[];
  #incarnation = 0;

  constructor(devices: Device[]) {
    this.#devices = devices;
  }

  /** @returns the number of jobs that it took: one, or none if none is available */
  async takeAndRelease(link: WorkerLink): Promise<number> {
    this.#incarnation += 1;
    const identity = { workerId: OTHER_WORKER_ID, incarnation: this.#incarnation };
    const rest = { protocol: 1, version: 'other', slots: 1, outbox: [] };
    await link.hello({ ...identity, ...rest, devices: this.#devices });
    const take = { takeId: `other-${this.#incarnation}`, max: 1, waitMs: 0, held: [] };
    const leases = await link.take({ ...identity, ...take }, AbortSignal.timeout(1_000));
    await link.bye({ ...identity, reason: 'drained', outbox: [] });
    return leases.length;
  }
}
