// One simulated world: the real queue and real workers in virtual time, an unreliable network between
// them, and actions of clients, operators and faults. The seed determines everything.
import { type ResumableClock, SteadyTime } from '../../src/base/clock.ts';
import { silentLog } from '../../src/base/log.ts';
import type { ChangePage, ChangeRequest } from '../../src/queue/job-changes.ts';
import { Queue } from '../../src/queue/queue.ts';
import { type Store, StoreUnavailableError, type UnusedPayload } from '../../src/store/store.ts';
import { PARENT_POLICIES, type ParentReference } from '../../src/wire/job/job.ts';
import type { JobRecord } from '../../src/wire/job/job-records.ts';
import type { WorkerLink } from '../../src/wire/link/worker-link.ts';
import { ProblemError } from '../../src/wire/problem.ts';
import { type EndpointDeployment, endpointSettings } from '../../src/wire/resources/endpoint.ts';
import type { RateLimit } from '../../src/wire/resources/field.ts';
import type { StoredSchedule } from '../../src/wire/resources/schedule.ts';
import { USUAL_DEPLOYMENT } from '../support/store/stored-jobs.ts';
import { BULK_TAG } from './bulk-change.ts';
import { CALM, type Weather } from './flaky-link.ts';
import { choosePlan, GPU_TYPES, type JobPlan, SHORT_TIMEOUT_MS, TIMEOUT_MS } from './job-plan.ts';
import { Ledger } from './ledger.ts';
import { MemoryStore } from './memory-store.ts';
import { planSchedule } from './schedule-plan.ts';
import { SimulatedWorker } from './simulated-worker.ts';
import { StreamClient } from './stream-client.ts';
import { VirtualTime } from './virtual-time.ts';
import { watchStore } from './watched-store.ts';

const JOB_LIMIT_MS = 36_000_000;
const PRIORITIES = 3;
const STREAMED_SHARE = 0.25;

/** Nothing starts its workers. */
const DEPLOYMENT: EndpointDeployment = {
  ...USUAL_DEPLOYMENT,
  ...{ name: 'simulated', templateId: 'none', gpuTypeIds: GPU_TYPES },
  ...{ workersMin: 0, workersMax: 0, idleTimeout: 1 },
  scaler: { type: 'QUEUE_DELAY', seconds: 4 },
  retryOutOfMemoryOn: 'NEXT_GPU_TYPE',
};

interface ClientJob {
  plan: JobPlan;
  parents: readonly ParentReference[];
  stream: StreamClient | undefined;
  isCancelled: boolean;
  isDoomed: boolean;
}

export interface WorldOptions {
  store: Store;
  /** Unique for the store, which other worlds may have used. */
  endpointId: string;
  random: () => number;
  /** Only jobs kill processes, and the network loses nothing. */
  isSheltered: boolean;
  /** Most leases of one group of jobs. Default: any number. */
  groupLimit?: number | undefined;
  /** Most jobs that start in a time, of all and of one group. Default: any number. */
  rateLimit?: RateLimit;
  groupRateLimit?: RateLimit;
  /** Workers have GPUs of several types, and jobs may need a later type. Default: false. */
  hasGpus?: boolean;
}

export class World {
  readonly clock = new VirtualTime();
  readonly ledger: Ledger;
  readonly endpointId: string;
  readonly random: () => number;
  readonly isSheltered: boolean;
  readonly jobs = new Map<string, ClientJob>();
  weather: Weather = CALM;
  queue: Queue;
  readonly #store: Store;
  readonly #restartStore: () => void;
  readonly #workers: SimulatedWorker[] = [];
  readonly #over = new AbortController();
  readonly #groupLimit: number | undefined;
  readonly #rates: Pick<WorldOptions, 'groupRateLimit' | 'rateLimit'>;
  readonly #hasGpus: boolean;
  #workerCount = 0;
  /** Difference between the platform's wall clock and the time of the world, ms. */
  #wallOffsetMs = 0;
  #link: WorkerLink | undefined;

  constructor(options: WorldOptions) {
    const { store, endpointId, groupLimit, hasGpus = false, random, isSheltered } = options;
    this.#hasGpus = hasGpus;
    this.#rates = {
      ...(options.rateLimit && { rateLimit: options.rateLimit }),
      ...(options.groupRateLimit && { groupRateLimit: options.groupRateLimit }),
    };
    this.ledger = new Ledger(this.clock, { groupLimit, ...this.#rates });
    this.#groupLimit = groupLimit;
    this.#restartStore = () => {
      if (store instanceof MemoryStore) store.restart();
    };
    this.endpointId = endpointId;
    this.random = random;
    this.isSheltered = isSheltered;
    this.#store = watchStore(store, (before, after) => {
      if (!this.#over.signal.aborted) this.ledger.note(before, after);
    });
    this.queue = this.#createQueue();
  }

  /** Aborted when the world is closed. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  get faults(): string[] {
    return this.ledger.faults;
  }

  get workers(): readonly SimulatedWorker[] {
    return this.#workers;
  }

  async start(workers: number): Promise<void> {
    const settings = endpointSettings.parse({
      maxAttempts: 3,
      ...this.#rates,
      ...(this.#groupLimit !== undefined && { groupConcurrency: this.#groupLimit }),
    });
    const deployment = this.#hasGpus ? DEPLOYMENT : null;
    const endpoint = { id: this.endpointId, settings, deployment, createdAt: this.clock.now() };
    await this.clock.finish(this.#store.write((tx) => tx.putEndpoint(endpoint)));
    await this.#open();
    for (let i = 0; i < workers; i++) this.#workers.push(this.#createWorker(i));
  }

  async submit(): Promise<void> {
    const killerShare = this.isSheltered ? 0.15 : 0.05;
    const plan = choosePlan(
      { n: this.jobs.size, killerShare, hasGpus: this.#hasGpus },
      this.random,
    );
    const executionTimeout = plan.fate === 'overruns' ? SHORT_TIMEOUT_MS : TIMEOUT_MS;
    const { endpointId } = this;
    const submission = {
      endpointId,
      mode: 'run' as const,
      input: Buffer.from(JSON.stringify(plan)),
      policy: { executionTimeout, ttl: JOB_LIMIT_MS, ...this.#choosePlace() },
      idempotency: undefined,
    };
    const parents = this.#chooseParents();
    const accepted = await this.#unlessRefused(
      this.queue.submissions.submit({
        ...submission,
        ...(parents.length > 0 && { after: parents }),
      }),
    );
    if (!accepted) return;
    const { id } = accepted;
    const isStreamed = this.random() < STREAMED_SHARE;
    const stream = isStreamed ? new StreamClient(this, { endpointId, id }) : undefined;
    this.jobs.set(id, { plan, parents, stream, isCancelled: false, isDoomed: false });
    stream?.follow().catch((error: unknown) => this.faults.push(`stream of ${id}: ${error}`));
  }

  /** Takes no random number, as below. Some jobs wait for one or two of the jobs before them. */
  #chooseParents(): ParentReference[] {
    const n = this.jobs.size;
    if (n % 4 !== 3) return [];
    const ids = [...this.jobs.keys()];
    const chosen = [ids.at(-1), n % 3 === 0 ? ids.at(-3) : undefined];
    return chosen.flatMap((id, index) => {
      const onFailure = PARENT_POLICIES[(n + index) % PARENT_POLICIES.length] ?? 'fail';
      const as = n % 8 === 7 ? `parent${index}` : undefined;
      return id === undefined ? [] : [{ id, onFailure, ...(as !== undefined && { as }) }];
    });
  }

  /** Takes no random number, as below. */
  #choosePlace(): { priority: number; group?: string; tags?: string[] } {
    const n = this.jobs.size;
    // The first group has twice the jobs of the second one.
    const group = n % 5 < 2 ? 'a' : n % 5 === 2 ? 'b' : undefined;
    const tags = n % 2 === 0 && { tags: [BULK_TAG] };
    return { priority: n % PRIORITIES, ...(group !== undefined && { group }), ...tags };
  }

  async cancel(id: string): Promise<void> {
    const isDone = await this.#ask((key) => this.queue.jobs.cancel(key), id);
    const job = this.jobs.get(id);
    if (job && isDone) job.isCancelled = true;
  }

  async retry(id: string): Promise<void> {
    this.ledger.retried.add(id);
    await this.#ask((key) => this.queue.jobs.retry(key), id);
  }

  /** Undefined: nothing happened. */
  changeMany(request: Omit<ChangeRequest, 'endpointId'>): Promise<ChangePage | undefined> {
    const { endpointId } = this;
    return this.#unlessUnavailable(this.queue.jobs.changeMany({ endpointId, ...request }));
  }

  /** A group, or the endpoint for null. */
  async pause(group: string | null): Promise<void> {
    const { endpointId } = this;
    this.ledger.notePause(group, 'pause', 'asked');
    const pause = this.queue.pauses.pause({ endpointId, group, until: null, reason: null });
    if (await this.#unlessUnavailable(pause)) this.ledger.notePause(group, 'pause', 'done');
  }

  async resume(group: string | null): Promise<void> {
    const { endpointId } = this;
    this.ledger.notePause(group, 'resume', 'asked');
    const resumed = this.queue.pauses.resume({ endpointId, group }).then(() => true);
    if (await this.#unlessUnavailable(resumed)) this.ledger.notePause(group, 'resume', 'done');
  }

  async doom(id: string, ttlMs: number): Promise<void> {
    const isDone = await this.#ask((key) => this.queue.jobs.setTtl(key, ttlMs), id);
    const job = this.jobs.get(id);
    if (job && isDone) job.isDoomed = true;
  }

  async schedule(seed: number): Promise<void> {
    const { endpointId } = this;
    const creation = planSchedule({ endpointId, seed, ttl: JOB_LIMIT_MS }, this.random);
    const call = { verb: 'create', userId: 'client', creation } as const;
    await this.#unlessUnavailable(this.queue.schedules.call(endpointId, call));
  }

  async readSchedules(): Promise<StoredSchedule[]> {
    const page = this.queue.schedules.page('client', { limit: 10 });
    return (await this.clock.finish(page)).listed.map(({ schedule }) => schedule);
  }

  /** Payloads that no job has. */
  listUnused(): Promise<UnusedPayload[]> {
    return this.clock.finish(this.#store.read((tx) => tx.unusedPayloads(10)));
  }

  /** Undefined if the job is no longer stored. */
  async readRecord(id: string): Promise<JobRecord | undefined> {
    try {
      const key = { endpointId: this.endpointId, id };
      const { body } = await this.clock.finish(this.queue.jobs.record(key));
      return JSON.parse(body.toString());
    } catch (error) {
      if (error instanceof ProblemError) return undefined;
      throw error;
    }
  }

  async readChunks(id: string): Promise<unknown[]> {
    const { endpointId } = this;
    const after = { attempt: 0, n: -1 };
    const { signal } = new AbortController();
    const range = { endpointId, id, after, waitMs: 0, maxBytes: 1_000_000, signal };
    const page = await this.clock.finish(this.queue.streams.read(range));
    return page.chunks.map((bytes) => JSON.parse(Buffer.from(bytes).toString()).output);
  }

  async restartPlatform(downMs: number): Promise<void> {
    this.#link = undefined;
    await this.clock.finish(this.queue.close());
    this.#restartStore();
    await this.clock.advance(downMs);
    // Takes no random number: one more draw would change the world of every seed.
    if (downMs % 3 === 0) this.#wallOffsetMs -= 100 * downMs;
    this.queue = this.#createQueue();
    await this.#open();
    this.ledger.platformRestarted();
  }

  /** Drains the worker; a new one with another ID takes its place. */
  drainWorker(index: number): void {
    const worker = this.#workers[index];
    if (!worker) return;
    void worker.drain();
    this.#workers[index] = this.#createWorker(index);
  }

  /** Removes everything except the endpoint from the store. */
  async close(): Promise<void> {
    this.#over.abort();
    this.#link = undefined;
    for (const worker of this.#workers) worker.close();
    await this.clock.finish(this.queue.close());
    const { endpointId } = this;
    await this.clock.finish(
      this.#store.write((tx) => {
        const all = { endpointId, status: undefined, before: undefined, limit: 10_000 };
        const schedules = tx.resources({ kind: 'schedule', limit: 10 });
        for (const job of tx.jobs(all)) tx.removeJob(job);
        for (const { id, kind } of schedules) tx.removeResource({ kind, id });
        for (const { id } of tx.workers()) tx.removeWorker(endpointId, id);
        // The next world starts at its own time.
        for (const id of ['last', 'time']) tx.removeResource({ kind: 'run', id });
      }),
    );
  }

  /** Returns false if the platform refuses the call. */
  async #ask(
    ask: (key: { endpointId: string; id: string }) => Promise<unknown>,
    id: string,
  ): Promise<boolean> {
    try {
      const answer = ask({ endpointId: this.endpointId, id });
      return (await this.#unlessUnavailable(answer.then(() => true))) ?? false;
    } catch (error) {
      if (error instanceof ProblemError) return false;
      throw error;
    }
  }

  /** Undefined also if a parent is not stored any more. */
  async #unlessRefused<T>(answer: Promise<T>): Promise<T | undefined> {
    try {
      return await this.#unlessUnavailable(answer);
    } catch (error) {
      if (error instanceof ProblemError) return undefined;
      throw error;
    }
  }

  /** Undefined if the commit failed: nothing happened. */
  async #unlessUnavailable<T>(answer: Promise<T>): Promise<T | undefined> {
    try {
      return await this.clock.finish(answer);
    } catch (error) {
      if (error instanceof StoreUnavailableError) return undefined;
      throw error;
    }
  }

  async #open(): Promise<void> {
    // As a supervisor does: a platform whose start failed is started again.
    while (!(await this.#unlessUnavailable(this.queue.start().then(() => true)))) {
      await this.clock.finish(this.queue.close());
      this.queue = this.#createQueue();
    }
    this.#link = this.ledger.watch(this.queue.link(this.endpointId));
  }

  #createQueue(): Queue {
    const { random } = this;
    const clock = this.#openPlatformClock();
    const retentionMs = { run: JOB_LIMIT_MS, runsync: JOB_LIMIT_MS };
    // Most inputs and outputs are then stored in parts.
    const settings = { retentionMs, payloadPartBytes: 8 };
    return new Queue({ store: this.#store, clock, log: silentLog, settings, random });
  }

  /** Creates the clock of one platform process. */
  #openPlatformClock(): ResumableClock {
    const { clock } = this;
    const wall = () => clock.now() + this.#wallOffsetMs;
    const { monotonic, now, startFrom } = new SteadyTime({ wall, monotonic: clock.now });
    return { now, startFrom, monotonic, after: (ms, act) => clock.after(ms, act) };
  }

  /** The first worker has the last type, so that some worker can run each job. */
  #createWorker(index: number): SimulatedWorker {
    const { clock, random } = this;
    const gpu = this.#hasGpus ? Math.max(0, GPU_TYPES.length - 1 - index) : undefined;
    const id = `w${this.#workerCount++}`;
    if (gpu !== undefined) this.ledger.gpus.set(id, gpu);
    return new SimulatedWorker({
      ...{ id, gpu },
      clock,
      random,
      weather: () => this.weather,
      platform: () => this.#link,
      onReply: (report, reply) => this.ledger.noteReply(report, reply),
      onDeath: (left) => this.ledger.noteLeft([...left.values()]),
      hasDisk: random() < 0.6,
      isSupervised: random() < 0.6,
    });
  }
}
