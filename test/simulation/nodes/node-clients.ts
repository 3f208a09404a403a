// The clients of a world with nodes: they submit jobs, change them and read their streams, each call at any node.
import { createUuidV7 } from '../../../src/base/id.ts';
import type { NewFlowJob } from '../../../src/queue/flows/flow-insertion.ts';
import type { ShardedQueues } from '../../../src/queue/queues.ts';
import { OWNER, StoreUnavailableError } from '../../../src/store/store.ts';
import type { FlowRecord } from '../../../src/wire/job/flow-records.ts';
import type { ParentReference } from '../../../src/wire/job/job.ts';
import type { JobRecord } from '../../../src/wire/job/job-records.ts';
import { ProblemError } from '../../../src/wire/problem.ts';
import type { StoredSchedule } from '../../../src/wire/resources/schedule.ts';
import { choosePlan, type JobPlan, SHORT_TIMEOUT_MS, TIMEOUT_MS } from '../job-plan.ts';
import type { Ledger } from '../ledger.ts';
import { planSchedule } from '../schedule-plan.ts';
import { StreamClient } from '../stream-client.ts';
import type { VirtualTime } from '../virtual-time.ts';
import type { Call, Entrance } from './entrance.ts';
import { type ServiceMonitor, TAKEOVER_MS } from './service-monitor.ts';
import type { SimulatedNode } from './simulated-node.ts';

export const JOB_LIMIT_MS = 36_000_000;
const PRIORITIES = 3;
const STREAMED_SHARE = 0.25;
const KILLER_SHARE = 0.03;
const RETRIES = 6;
const RETRY_PAUSE_MS = 2_000;
export const STREAM_PAUSE_MS = 8_000;

export interface NodesJob {
  endpointId: string;
  plan: JobPlan;
  stream: StreamClient | undefined;
  isCancelled: boolean;
  mayBeCancelled: boolean;
  isDoomed: boolean;
  /** Default: none. */
  parents?: readonly ParentReference[];
}

/** A flow that the platform has accepted: IDs of its jobs. */
export interface NodesFlow {
  endpointId: string;
  id: string;
  jobs: readonly string[];
}

export interface NodeClientsOptions {
  clock: VirtualTime;
  random: () => number;
  entrance: Entrance;
  monitor: ServiceMonitor;
  faults: string[];
  signal: AbortSignal;
  endpointIds: readonly string[];
  ledgerOf: (endpointId: string) => Ledger;
  /** The nodes that a load balancer calls. */
  listNodes: () => readonly SimulatedNode[];
}

export class NodeClients {
  /** The jobs that the platform has accepted. */
  readonly jobs = new Map<string, NodesJob>();
  readonly flows: NodesFlow[] = [];
  readonly #options: NodeClientsOptions;
  /** Those that have not ended. */
  readonly #calls = new Set<Promise<unknown>>();
  #submitted = 0;
  #calmAt = Number.POSITIVE_INFINITY;

  constructor(options: NodeClientsOptions) {
    this.#options = options;
  }

  /** From now on, and after one takeover more, no call may fail. */
  calmDown(): void {
    this.#calmAt = this.#options.clock.now();
  }

  submit(): void {
    const n = this.#submitted++;
    const plan = choosePlan({ n, killerShare: KILLER_SHARE }, this.#options.random);
    const endpointId = this.#choose(this.#options.endpointIds);
    const key = this.#options.random() < 0.4 ? `key ${n}` : undefined;
    this.#track(this.#submit(endpointId, plan, key));
  }

  async #submit(endpointId: string, plan: JobPlan, key: string | undefined): Promise<void> {
    const accepted = await this.#submitUntilAccepted(endpointId, plan, key);
    if (!accepted) return;
    const { id } = accepted;
    if (this.jobs.has(id)) this.#options.faults.push(`job ${id} was given to two clients`);
    const queue = { streams: { read: this.#readStream } };
    const { clock, faults, signal } = this.#options;
    const ledger = this.#options.ledgerOf(endpointId);
    const world = { clock, faults, signal, queue, ledger, pauseMs: STREAM_PAUSE_MS };
    const isStreamed = this.#options.random() < STREAMED_SHARE;
    const stream = isStreamed ? new StreamClient(world, { endpointId, id }) : undefined;
    const fresh = { isCancelled: false, mayBeCancelled: false, isDoomed: false };
    this.jobs.set(id, { endpointId, plan, stream, ...fresh });
    stream?.follow().catch((error: unknown) => {
      if (!signal.aborted) faults.push(`stream of ${id}: ${error}`);
    });
  }

  /** A flow of two to five jobs on any endpoints, each after some of those before it. */
  submitFlow(): void {
    const { random } = this.#options;
    const endpointId = this.#choose(this.#options.endpointIds);
    const jobs = Array.from({ length: 2 + Math.floor(random() * 4) }, (_, at) => {
      const n = this.#submitted++;
      const plan = choosePlan({ n, killerShare: KILLER_SHARE }, random);
      const executionTimeout = plan.fate === 'overruns' ? SHORT_TIMEOUT_MS : TIMEOUT_MS;
      const earlier = Array.from({ length: at }, (_, parent) => parent);
      const onFailure = this.#choose(['fail', 'run', 'skip'] as const);
      return {
        ...{ name: `j${at}`, endpointId: this.#choose(this.#options.endpointIds), plan },
        input: Buffer.from(JSON.stringify(plan)),
        policy: { executionTimeout, ttl: JOB_LIMIT_MS, priority: plan.n % PRIORITIES },
        webhook: undefined,
        after: earlier
          .filter(() => random() < 0.5)
          .map((parent) => ({ job: `j${parent}`, onFailure })),
      };
    });
    this.#track(this.#submitFlow(endpointId, jobs));
  }

  async #submitFlow(
    endpointId: string,
    jobs: readonly (NewFlowJob & { plan: JobPlan })[],
  ): Promise<void> {
    const id = createUuidV7(this.#options.clock.now());
    const flow = await this.#ask({
      ...{ endpointId, isRepeatable: true },
      run: (queues, { isRepeated: _ }) =>
        queues.flows.submit({ endpointId, jobs, idempotency: undefined, newFlow: { id } }),
    });
    if (!flow) return;
    const ids = new Map(flow.jobs.map((job) => [job.name, job]));
    for (const { after, endpointId: of, name, plan } of jobs) {
      const parents = after.flatMap(({ job, onFailure }) => {
        const parent = ids.get(job);
        return parent ? [{ id: parent.id, endpoint: parent.endpoint, onFailure }] : [];
      });
      const fresh = { isCancelled: false, mayBeCancelled: false, isDoomed: false };
      const job = { endpointId: of, plan, stream: undefined, ...fresh, parents };
      this.jobs.set(ids.get(name)?.id ?? '', job);
    }
    this.flows.push({ endpointId, id: flow.id, jobs: flow.jobs.map((job) => job.id) });
  }

  readFlow({ endpointId, id }: NodesFlow): Promise<FlowRecord | undefined> {
    const run: Call<FlowRecord>['run'] = (queues) => queues.flows.read({ endpointId, id });
    return this.#await(this.#ask({ endpointId, isRepeatable: true, run }));
  }

  /** A client repeats what it can name: a submission with an idempotency key. */
  async #submitUntilAccepted(
    endpointId: string,
    plan: JobPlan,
    key: string | undefined,
  ): Promise<{ id: string } | undefined> {
    const executionTimeout = plan.fate === 'overruns' ? SHORT_TIMEOUT_MS : TIMEOUT_MS;
    for (let retry = 0; retry < RETRIES; retry++) {
      const id = createUuidV7(this.#options.clock.now());
      const submission = {
        ...{ endpointId, mode: 'run' as const, input: Buffer.from(JSON.stringify(plan)) },
        policy: { executionTimeout, ttl: JOB_LIMIT_MS, priority: plan.n % PRIORITIES },
        idempotency: key === undefined ? undefined : { key, requestHash: key },
      };
      const accepted = await this.#ask({
        ...{ endpointId, isRepeatable: true },
        run: async (queues, { isRepeated }, node) => {
          const newJob = { id, isRepeated };
          const ref = await queues.submissions.submit({ ...submission, newJob });
          this.#options.monitor.checkStored(node, { endpointId, id: ref.id });
          return ref;
        },
      });
      if (accepted || key === undefined) return accepted;
      await this.#sleep(RETRY_PAUSE_MS);
    }
    return undefined;
  }

  cancel(id: string): void {
    const job = this.jobs.get(id);
    if (!job) return;
    job.mayBeCancelled = true;
    const run: Call<void>['run'] = async (queues) => {
      await queues.jobs.cancel({ endpointId: job.endpointId, id });
      job.isCancelled = true;
    };
    this.#track(this.#ask({ endpointId: job.endpointId, isRepeatable: false, run }));
  }

  retry(id: string): void {
    const job = this.jobs.get(id);
    if (!job) return;
    const { endpointId } = job;
    this.#options.ledgerOf(endpointId).retried.add(id);
    const run: Call<void>['run'] = async (queues) => {
      await queues.jobs.retry({ endpointId, id });
    };
    this.#track(this.#ask({ endpointId, isRepeatable: false, run }));
  }

  doom(id: string, ttlMs: number): void {
    const job = this.jobs.get(id);
    if (!job) return;
    const { endpointId } = job;
    job.isDoomed = true;
    const run: Call<void>['run'] = async (queues) => {
      await queues.jobs.setTtl({ endpointId, id }, ttlMs);
    };
    this.#track(this.#ask({ endpointId, isRepeatable: false, run }));
  }

  /** Creates a schedule, if an answer comes. */
  schedule(seed: number): void {
    const endpointId = this.#choose(this.#options.endpointIds);
    const creation = planSchedule({ endpointId, seed, ttl: JOB_LIMIT_MS }, this.#options.random);
    const call = { verb: 'create', userId: OWNER, creation } as const;
    this.#track(
      this.#ask({
        ...{ endpointId, isRepeatable: false },
        run: (queues) => queues.schedules.call(endpointId, call),
      }),
    );
  }

  /** Undefined if the call was refused. */
  async readSchedules(endpointId: string): Promise<StoredSchedule[] | undefined> {
    const page = await this.#await(
      this.#ask({
        ...{ endpointId, isRepeatable: true },
        run: (queues) => queues.schedules.page(OWNER, { limit: 10 }),
      }),
    );
    const schedules = page?.listed.map(({ schedule }) => schedule);
    return schedules?.filter((schedule) => schedule.endpointId === endpointId);
  }

  /** Whether all calls of clients have ended, so that no job is submitted or changed any more. */
  get areCallsOver(): boolean {
    return this.#calls.size === 0;
  }

  async readRecord(id: string, endpointId: string): Promise<JobRecord | undefined> {
    const record = this.#ask({
      ...{ endpointId, isRepeatable: true },
      run: async (queues) => (await queues.jobs.record({ endpointId, id })).body.toString(),
    });
    const text = await this.#await(record);
    return text === undefined ? undefined : JSON.parse(text);
  }

  /** Undefined if the call was refused, such as for a job that has just been removed. */
  async readChunks(id: string, endpointId: string): Promise<unknown[] | undefined> {
    const after = { attempt: 0, n: -1 };
    const range = { endpointId, id, after, waitMs: 0, maxBytes: 1_000_000 };
    const page = await this.#await(
      this.#ask({
        ...{ endpointId, isRepeatable: true },
        run: (queues, { signal }) => queues.streams.read({ ...range, signal }),
      }),
    );
    return page?.chunks.map((bytes) => JSON.parse(Buffer.from(bytes).toString()).output);
  }

  /** Advances time until the answer is there. */
  async #await<T>(answer: Promise<T>): Promise<T> {
    let isDone = false;
    const done = () => {
      isDone = true;
    };
    answer.then(done, done);
    while (!isDone) await this.#options.clock.advance(10);
    return answer;
  }

  #choose<T>(from: readonly T[]): T {
    const chosen = from[Math.floor(this.#options.random() * from.length)];
    if (chosen === undefined) throw new Error('nothing to choose from');
    return chosen;
  }

  #track(call: Promise<unknown>): void {
    const ended = call.catch((error: unknown) =>
      this.#options.faults.push(`a client's call: ${error}`),
    );
    this.#calls.add(ended);
    void ended.then(() => this.#calls.delete(ended));
  }

  /** Undefined if the platform refuses the call or does not answer. */
  async #ask<T>(call: Omit<Call<T>, 'isWorker'>): Promise<T | undefined> {
    const isCalm = this.#options.clock.now() > this.#calmAt + TAKEOVER_MS;
    try {
      return await this.#options.entrance.ask(this.#choose(this.#options.listNodes()), {
        ...call,
        isWorker: false,
      });
    } catch (error) {
      if (isCalm && error instanceof StoreUnavailableError) {
        this.#options.faults.push(
          `${this.#options.clock.now()}: a call failed in calm: ${error.message}`,
        );
      }
      if (error instanceof ProblemError || error instanceof StoreUnavailableError) return undefined;
      throw error;
    }
  }

  readonly #readStream: ShardedQueues['streams']['read'] = async (request) => {
    for (;;) {
      try {
        return await this.#options.entrance.ask(this.#choose(this.#options.listNodes()), {
          ...{ endpointId: request.endpointId, isWorker: false, isRepeatable: true },
          signal: this.#options.signal,
          run: (queues, { signal }) => queues.streams.read({ ...request, signal }),
        });
      } catch (error) {
        if (!(error instanceof StoreUnavailableError) || this.#options.signal.aborted) throw error;
        await this.#sleep(RETRY_PAUSE_MS);
      }
    }
  };

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#options.clock.after(ms, resolve));
  }
}
