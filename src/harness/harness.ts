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
import type { Chunk } from '../wire/chunk.ts';
import { ChunkJoiner } from '../wire/chunk-joiner.ts';
import { endpointSettings } from '../wire/endpoint.ts';
import { isTerminal, type JobPolicy, type JobRecord, LIMITS } from '../wire/job.ts';
import { type Json, stringifyJson } from '../wire/json.ts';
import type { Device } from '../wire/worker-link.ts';
import { InlineExecutor } from '../worker/inline-executor.ts';
import { createWorker, type Worker } from '../worker/worker.ts';
import { FaultyLink } from './faulty-link.ts';
import { FlowingClock, type MovableClock } from './flowing-clock.ts';

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

/** The job ended, and not as COMPLETED. */
export class JobFailedError extends Error {
  override readonly name = 'JobFailedError';
  /** As `GET /status` gives it. */
  readonly record: JobRecord;

  constructor(record: JobRecord) {
    super(`job ${record.id} is ${record.status}: ${record.error?.message ?? 'no error given'}`);
    this.record = record;
  }
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
  #link: FaultyLink;
  #worker: Worker;
  #incarnation = 1;
  #ghosts = 0;

  constructor(options: HarnessOptions) {
    this.#options = options;
    this.#handler = readHandler(options.handler, 'handler');
    this.#clock = options.clock === 'manual' ? new ManualClock() : new FlowingClock();
    this.#queue = this.#createQueue();
    this.#link = new FaultyLink(this.#queue.link(ENDPOINT_ID));
    this.#worker = this.#createWorker();
  }

  async start(): Promise<void> {
    const { maxAttempts = 3 } = this.#options;
    const settings = endpointSettings.parse({ maxAttempts });
    const createdAt = this.#clock.now();
    await this.#store.write((tx) => tx.putEndpoint({ id: ENDPOINT_ID, settings, createdAt }));
    await this.#queue.start();
    await this.#worker.start();
  }

  /** Lets the worker leave and closes the platform; what still runs is stopped. */
  async close(): Promise<void> {
    await this.#worker.stop();
    await this.#queue.close();
    await this.#store.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  // --- jobs ---

  /** Runs a job to its end. @returns its output @throws JobFailedError */
  async run(input: object, policy: JobPolicy = {}): Promise<Json> {
    return (await this.submit(input, policy)).result();
  }

  /** Runs a job and gives what it yields as it comes. @throws JobFailedError at its end */
  async *stream(input: object, policy: JobPolicy = {}): AsyncGenerator<Chunk, void, void> {
    const job = await this.submit(input, policy);
    yield* job.chunks();
    await job.result();
  }

  /** Puts a job into the queue; resolves when it is stored. */
  async submit(input: object, policy: JobPolicy = {}): Promise<HarnessJob> {
    const { id } = await this.#queue.submissions.submit({
      endpointId: ENDPOINT_ID,
      mode: 'run',
      input: Buffer.from(stringifyJson(input, 'input')),
      policy,
      idempotency: undefined,
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

  /** The worker's next report does not arrive; it has to send it again. */
  dropNextReport(): void {
    this.#link.failNextReport('request');
  }

  /** The next report arrives and counts, but its answer is lost: it will come twice. */
  dropNextReply(): void {
    this.#link.failNextReport('answer');
  }

  /** The platform closes and comes back on the same store; open calls of the worker break off. */
  async restartPlatform(): Promise<void> {
    this.#link.disconnect();
    await this.#queue.close();
    this.#queue = this.#createQueue();
    await this.#queue.start();
    this.#link.connect(this.#queue.link(ENDPOINT_ID));
  }

  /**
   * The worker dies with what it runs, and a new one takes its place. In this process a handler cannot
   * be killed: its signal aborts, and nothing that it still says is heard.
   */
  async killWorker(): Promise<void> {
    this.#link.kill();
    await this.#worker.ended;
    this.#incarnation++;
    this.#link = new FaultyLink(this.#queue.link(ENDPOINT_ID));
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

  #createWorker(): Worker {
    const { devices = [CPU], slots = this.#handler.config.concurrency ?? DEFAULT_SLOTS } =
      this.#options;
    const clock = this.#clock;
    return createWorker({
      link: this.#link,
      executor: new InlineExecutor({ handler: this.#handler, devices, slots, clock }),
      workerId: WORKER_ID,
      incarnation: this.#incarnation,
      version: 'harness',
      devices,
      clock,
    });
  }
}

/** One job in the harness. */
export class HarnessJob {
  readonly id: string;
  readonly #endpointId: string;
  readonly #queue: () => Queue;

  constructor(id: string, endpointId: string, queue: () => Queue) {
    this.id = id;
    this.#endpointId = endpointId;
    this.#queue = queue;
  }

  get #key() {
    return { endpointId: this.#endpointId, id: this.id };
  }

  /** As `GET /status` gives it. */
  async record(): Promise<JobRecord> {
    return JSON.parse((await this.#queue().jobs.record(this.#key)).body.toString());
  }

  /** Waits for the end, whatever it is. */
  async end(): Promise<JobRecord> {
    const forever = new AbortController().signal;
    for (;;) {
      const record = await this.#queue().jobs.waitForEnd(this.#key, LIMITS.waitMs.max, forever);
      if (isTerminal(record.status)) return JSON.parse(record.body.toString());
    }
  }

  /** Waits for the end. @returns the output @throws JobFailedError */
  async result(): Promise<Json> {
    const record = await this.end();
    if (record.status !== 'COMPLETED') throw new JobFailedError(record);
    return JSON.parse(JSON.stringify(record.output ?? null));
  }

  /** What it yields, as it comes, pieces put together; from the start again after a new attempt. */
  async *chunks(): AsyncGenerator<Chunk, void, void> {
    const signal = new AbortController().signal;
    let position = { attempt: 0, n: -1 };
    const joiner = new ChunkJoiner();
    for (;;) {
      const page = await this.#queue().streams.read({
        ...this.#key,
        after: position,
        waitMs: LIMITS.streamWaitMs.max,
        maxBytes: LIMITS.streamAnswerBytes,
        signal,
      });
      if (page.reset) joiner.reset();
      for (const bytes of page.chunks) {
        const chunk = joiner.push(JSON.parse(Buffer.from(bytes).toString()));
        if (chunk) yield chunk;
      }
      position = page.position;
      if (page.complete) return;
    }
  }

  async cancel(): Promise<void> {
    await this.#queue().jobs.cancel(this.#key);
  }

  /** What the handler logged so far: one object a line. */
  async log(): Promise<Record<string, unknown>[]> {
    const { lines } = await this.#queue().jobs.log(this.#key, 0);
    const text = Buffer.from(lines).toString();
    return text.split('\n').flatMap((line) => (line === '' ? [] : [JSON.parse(line)]));
  }
}
