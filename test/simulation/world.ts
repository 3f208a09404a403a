// One simulated world: the real queue and real workers on a virtual clock, a flaky network between
// them, clients that submit, cancel and retry, and accidents. Everything follows from the seed.
import { ManualClock, sleep } from '../../src/base/clock.ts';
import { silentLog } from '../../src/base/log.ts';
import type { Context, Job } from '../../src/handler/define.ts';
import { readHandler } from '../../src/handler/load.ts';
import { Queue } from '../../src/queue/queue.ts';
import { openSqliteStore } from '../../src/store/sqlite.ts';
import type { Store } from '../../src/store/store.ts';
import { endpointSettings } from '../../src/wire/endpoint.ts';
import { ProblemError } from '../../src/wire/problem.ts';
import type { Device, Report, ReportReply, WorkerLink } from '../../src/wire/worker-link.ts';
import { InlineExecutor } from '../../src/worker/inline-executor.ts';
import { createWorker, type Worker } from '../../src/worker/worker.ts';
import { CALM, FlakyLink, type Weather } from './flaky-link.ts';
import { findFault, watchStore } from './watched-store.ts';

export const ENDPOINT = 'e';
const CPU: Device = { kind: 'cpu', index: 0, uuid: 'cpu', name: 'simulated', memoryBytes: 0 };
const JOB_LIMIT_MS = 3_600_000;

export interface JobPlan {
  n: number;
  chunks: number;
  stepMs: number;
  /** Attempts that throw before one succeeds. */
  failures: number;
}

/** A worker's place; processes come and go in it. */
interface Seat {
  id: string;
  incarnation: number;
  link: FlakyLink;
  worker: Worker;
}

export class World {
  readonly clock = new ManualClock();
  readonly random: () => number;
  readonly faults: string[] = [];
  /** By job: the attempts whose completion the platform has acknowledged. */
  readonly acknowledged = new Map<string, number>();
  weather: Weather = CALM;
  queue: Queue;
  readonly #store: Store;
  readonly #seats: Seat[] = [];
  #link: WorkerLink | undefined;

  constructor(random: () => number) {
    this.random = random;
    const store = openSqliteStore({ path: ':memory:', cacheBytes: 1_048_576 });
    this.#store = watchStore(store, (before, after) => {
      const fault = findFault(before, after);
      if (fault) this.faults.push(fault);
    });
    this.queue = this.#createQueue();
  }

  async start(workers: number): Promise<void> {
    const settings = endpointSettings.parse({ maxAttempts: 3 });
    const endpoint = { id: ENDPOINT, settings, createdAt: this.clock.now() };
    await this.#store.write((tx) => tx.putEndpoint(endpoint));
    await this.queue.start();
    this.#link = this.queue.link(ENDPOINT);
    for (let i = 0; i < workers; i++) this.#seats.push(this.#createSeat(`w${i}`, 1));
  }

  async submit(plan: JobPlan): Promise<string> {
    const { id } = await this.queue.submissions.submit({
      endpointId: ENDPOINT,
      mode: 'run',
      input: Buffer.from(JSON.stringify(plan)),
      policy: { executionTimeout: 120_000, ttl: JOB_LIMIT_MS * 10 },
      idempotency: undefined,
    });
    return id;
  }

  /** Cancel or retry; a refusal is an answer too. */
  async ask(what: 'cancel' | 'retry', id: string): Promise<void> {
    await this.queue.jobs[what]({ endpointId: ENDPOINT, id }).catch((error: unknown) => {
      if (!(error instanceof ProblemError)) throw error;
    });
  }

  async restartPlatform(downMs: number): Promise<void> {
    this.#link = undefined;
    await this.queue.close();
    await this.clock.advance(downMs);
    this.queue = this.#createQueue();
    await this.queue.start();
    this.#link = this.queue.link(ENDPOINT);
  }

  /** The process is gone from one moment to the next; its successor comes a little later. */
  async killWorker(index: number): Promise<void> {
    const seat = this.#seats[index];
    if (!seat) return;
    seat.link.kill();
    this.#seats[index] = this.#createSeat(seat.id, seat.incarnation + 1);
  }

  /** Cut off from the platform for a while, longer perhaps than its leases. */
  partWorker(index: number, ms: number): void {
    this.#seats[index]?.link.part(ms);
  }

  async drainWorker(index: number): Promise<void> {
    const seat = this.#seats[index];
    if (!seat) return;
    void seat.worker.drain();
    this.#seats[index] = this.#createSeat(`${seat.id}x`, 1);
  }

  async close(): Promise<void> {
    this.#link = undefined;
    for (const { link } of this.#seats) link.kill();
    await this.queue.close();
    await this.clock.advance(60_000);
    await this.#store.close();
  }

  get workers(): number {
    return this.#seats.length;
  }

  #createQueue(): Queue {
    const { clock, random } = this;
    const settings = { retentionMs: { run: JOB_LIMIT_MS * 10, runsync: JOB_LIMIT_MS * 10 } };
    return new Queue({ store: this.#store, clock, log: silentLog, settings, random });
  }

  #createSeat(id: string, incarnation: number): Seat {
    const { clock, random } = this;
    const link = new FlakyLink({
      clock,
      random,
      weather: () => this.weather,
      platform: () => this.#link,
      onReply: (report, reply) => this.#noteReply(report, reply),
    });
    const handler = readHandler(
      (job: Job<JobPlan>, ctx: Context) => this.#handle(job, ctx),
      'simulated',
    );
    const worker = createWorker({
      link,
      executor: new InlineExecutor({ handler, devices: [CPU], slots: 3, clock }),
      workerId: id,
      incarnation,
      version: 'simulated',
      devices: [CPU],
      clock,
    });
    worker.start().catch(() => {
      // Killed or told to leave before it was up.
    });
    return { id, incarnation, link, worker };
  }

  async *#handle({ input }: Job<JobPlan>, ctx: Context) {
    for (let i = 0; i < input.chunks; i++) {
      await sleep(this.clock, input.stepMs, ctx.signal);
      ctx.signal.throwIfAborted();
      yield { attempt: ctx.attempt, i };
    }
    await sleep(this.clock, input.stepMs, ctx.signal);
    ctx.signal.throwIfAborted();
    if (ctx.attempt <= input.failures) throw new Error(`failure ${ctx.attempt}`);
    return { n: input.n, attempt: ctx.attempt };
  }

  #noteReply(report: Report, reply: ReportReply): void {
    if (report.kind !== 'outcome' || report.outcome.kind !== 'completed') return;
    if (reply.answer === 'applied') this.acknowledged.set(report.jobId, report.attempt);
  }
}
