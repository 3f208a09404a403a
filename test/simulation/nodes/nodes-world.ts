// A simulated world with three nodes on one database: the real queues and memberships, real workers, and clients that
// call any node. The seed determines everything.
import { createUuidV7 } from '../../../src/base/id.ts';
import type { LiveEndpoint } from '../../../src/control/endpoints/endpoint-records.ts';
import type { ShardedQueues } from '../../../src/queue/sharded-queues.ts';
import { OWNER, StoreUnavailableError } from '../../../src/store/store.ts';
import { isTerminal, type JobRecord } from '../../../src/wire/job.ts';
import type { WorkerLink } from '../../../src/wire/link/worker-link.ts';
import { ProblemError } from '../../../src/wire/problem.ts';
import { endpointSettings } from '../../../src/wire/resources/endpoint.ts';
import { CALM, type Weather } from '../flaky-link.ts';
import { choosePlan, type JobPlan, SHORT_TIMEOUT_MS, TIMEOUT_MS } from '../job-plan.ts';
import { Ledger } from '../ledger.ts';
import { SimulatedWorker } from '../simulated-worker.ts';
import { StreamClient } from '../stream-client.ts';
import { VirtualTime } from '../virtual-time.ts';
import { type CommitFate, TARGET } from './database.ts';
import { type Asking, type Call, Entrance } from './entrance.ts';
import { NodeEvents } from './node-events.ts';
import { ServiceMonitor, TAKEOVER_MS } from './service-monitor.ts';
import { SimulatedNode } from './simulated-node.ts';
import { SimulatedPostgres } from './simulated-postgres.ts';

const NODES = 3;
const SHARDS = 3;
const JOB_LIMIT_MS = 36_000_000;
const PRIORITIES = 3;
const STREAMED_SHARE = 0.25;
const KILLER_SHARE = 0.03;
export const STREAM_PAUSE_MS = 8_000;
/** How far the clock of a node may be from that of another. */
const CLOCK_TOLERANCE_MS = 3_000;
const MAX_RESTART_MS = 4_000;
const RETRIES = 6;
const RETRY_PAUSE_MS = 2_000;
/** So few that the queue has to page jobs in and drop them all the time. */
const LIVE = { windowJobs: 3, readyJobs: 6, endedJobs: 2 };

export interface NodesJob {
  endpointId: string;
  plan: JobPlan;
  stream: StreamClient | undefined;
  isCancelled: boolean;
  mayBeCancelled: boolean;
  isDoomed: boolean;
}

export class NodesWorld {
  readonly clock = new VirtualTime();
  readonly random: () => number;
  readonly faults: string[] = [];
  readonly events = new NodeEvents();
  readonly jobs = new Map<string, NodesJob>();
  readonly nodes: SimulatedNode[] = [];
  readonly workers: { endpointId: string; worker: SimulatedWorker }[] = [];
  readonly ledgers: ReadonlyMap<string, Ledger>;
  readonly postgres: SimulatedPostgres;
  readonly monitor: ServiceMonitor;
  weather: Weather = CALM;
  /** Share of lost messages. */
  lost = 0;
  chooseFate: () => CommitFate = () => 'done';
  /** Share of transactions that fail before their commit. */
  failedWrites = 0;
  readonly #endpoints: readonly LiveEndpoint[];
  readonly #entrance: Entrance;
  readonly #over = new AbortController();
  readonly #tables: { smallBytes: number; rowsAtOnce: number };
  /** Those of the calls that clients have not ended. */
  readonly #calls = new Set<Promise<unknown>>();
  #submitted = 0;
  #started = 0;
  #workerCount = 0;
  #calmAt = Number.POSITIVE_INFINITY;
  /** The node that has opened a shard last. */
  readonly #openers = new Map<number, SimulatedNode>();

  constructor(random: () => number) {
    this.random = random;
    const { clock } = this;
    this.#tables = { smallBytes: 64, rowsAtOnce: 1 + 2 * Math.floor(random() * 2) };
    this.#endpoints = Array.from({ length: SHARDS }, (_, shard) => ({
      ...{ id: `e${shard}`, userId: OWNER, deployment: null, shard, createdAt: clock.now() },
      settings: endpointSettings.parse({ maxAttempts: 3 }),
    }));
    const ids = this.#endpoints.map(({ id }) => id);
    this.ledgers = new Map(
      ids.map((id) => [id, new Ledger(clock, { toleranceMs: CLOCK_TOLERANCE_MS })]),
    );
    const complain = (fault: string) => this.faults.push(fault);
    this.postgres = new SimulatedPostgres({
      ...{ time: clock, random, shards: SHARDS, tables: this.#tables, complain },
      chooseFate: () => this.chooseFate(),
      failsWrite: () => this.#failsWrite(),
      onFenced: () => this.events.count('fenced'),
    });
    this.#declareEndpoints();
    this.monitor = new ServiceMonitor({
      ...{ clock, nodes: this.nodes, postgres: this.postgres, endpointIds: ids, complain },
      signal: this.#over.signal,
    });
    this.#entrance = new Entrance({
      ...{ time: clock, random, lost: () => this.lost },
      findNode: (url) => this.nodes.find((node) => node.url === url && !node.process.isDead),
      onServe: (node, endpointId) => this.monitor.checkServing(node, endpointId),
      count: (event) => this.events.count(event),
    });
    for (let place = 0; place < NODES; place++) this.nodes.push(this.#createNode(place));
  }

  /** Aborted when the world is closed. */
  get signal(): AbortSignal {
    return this.#over.signal;
  }

  get endpointIds(): string[] {
    return this.#endpoints.map(({ id }) => id);
  }

  start(workers: number): void {
    for (const endpointId of this.endpointIds) {
      for (let n = 0; n < workers; n++) this.addWorker(endpointId);
    }
    this.monitor.start();
  }

  addWorker(endpointId: string): void {
    const worker = this.#createWorker(endpointId);
    this.workers.push({ endpointId, worker });
  }

  /** Starts the node of this place again, when its process has ended. */
  restartLater(place: number): void {
    const downMs = Math.floor(this.random() * MAX_RESTART_MS);
    this.clock.after(downMs, () => {
      if (this.signal.aborted || !this.nodes[place]?.process.isDead) return;
      this.nodes[place] = this.#createNode(place);
    });
  }

  submit(): void {
    const n = this.#submitted++;
    const plan = choosePlan({ n, killerShare: KILLER_SHARE }, this.random);
    const endpointId = this.#choose(this.endpointIds);
    const key = this.random() < 0.4 ? `key ${n}` : undefined;
    this.#track(this.#submit(endpointId, plan, key));
  }

  async #submit(endpointId: string, plan: JobPlan, key: string | undefined): Promise<void> {
    const accepted = await this.#submitUntilAccepted(endpointId, plan, key);
    if (!accepted) return;
    const { id } = accepted;
    if (this.jobs.has(id)) this.faults.push(`job ${id} was given to two clients`);
    const queue = { streams: { read: this.#readStream } };
    const { clock, faults, signal } = this;
    const ledger = this.#ledger(endpointId);
    const world = { clock, faults, signal, queue, ledger, pauseMs: STREAM_PAUSE_MS };
    const isStreamed = this.random() < STREAMED_SHARE;
    const stream = isStreamed ? new StreamClient(world, { endpointId, id }) : undefined;
    const fresh = { isCancelled: false, mayBeCancelled: false, isDoomed: false };
    this.jobs.set(id, { endpointId, plan, stream, ...fresh });
    stream?.follow().catch((error: unknown) => {
      if (!signal.aborted) faults.push(`stream of ${id}: ${error}`);
    });
  }

  /** A client repeats what it can name: a submission with an idempotency key. */
  async #submitUntilAccepted(
    endpointId: string,
    plan: JobPlan,
    key: string | undefined,
  ): Promise<{ id: string } | undefined> {
    const executionTimeout = plan.fate === 'overruns' ? SHORT_TIMEOUT_MS : TIMEOUT_MS;
    for (let retry = 0; retry < RETRIES; retry++) {
      const id = createUuidV7(this.clock.now());
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
          this.monitor.checkStored(node, { endpointId, id: ref.id });
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
    this.#ledger(endpointId).retried.add(id);
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

  /** From now on nothing disturbs the world. */
  calmDown(): void {
    this.weather = CALM;
    this.lost = 0;
    this.#calmAt = this.clock.now();
    this.chooseFate = () => 'done';
    this.failedWrites = 0;
    for (const { network, process } of this.nodes) {
      network.latencyMs = 1;
      network.isRefused = false;
      process.resume();
    }
    this.monitor.noteFault();
  }

  /** Whether all jobs that clients know have ended in the database. */
  get areJobsOver(): boolean {
    if (this.#calls.size > 0) return false;
    return [...this.jobs].every(([id, { endpointId }]) => {
      const job = this.monitor.findStored({ endpointId, id });
      return !job || isTerminal(job.status);
    });
  }

  async readRecord(id: string, endpointId: string): Promise<JobRecord | undefined> {
    const record = this.#ask({
      ...{ endpointId, isRepeatable: true },
      run: async (queues) => (await queues.jobs.record({ endpointId, id })).body.toString(),
    });
    const text = await this.#await(record);
    return text === undefined ? undefined : JSON.parse(text);
  }

  async readChunks(id: string, endpointId: string): Promise<unknown[]> {
    const after = { attempt: 0, n: -1 };
    const range = { endpointId, id, after, waitMs: 0, maxBytes: 1_000_000 };
    const page = await this.#await(
      this.#ask({
        ...{ endpointId, isRepeatable: true },
        run: (queues, { signal }) => queues.streams.read({ ...range, signal }),
      }),
    );
    const chunks = page?.chunks ?? [];
    return chunks.map((bytes) => JSON.parse(Buffer.from(bytes).toString()).output);
  }

  close(): void {
    this.#over.abort();
    for (const { worker } of this.workers) worker.close();
    for (const { process } of this.nodes) process.kill();
  }

  #ledger(endpointId: string): Ledger {
    const ledger = this.ledgers.get(endpointId);
    if (!ledger) throw new Error(`endpoint ${endpointId} has no ledger`);
    return ledger;
  }

  /** Advances time until the answer is there. */
  async #await<T>(answer: Promise<T>): Promise<T> {
    let isDone = false;
    const done = () => {
      isDone = true;
    };
    answer.then(done, done);
    while (!isDone) await this.clock.advance(10);
    return answer;
  }

  #track(call: Promise<unknown>): void {
    const ended = call.catch((error: unknown) => this.faults.push(`a client's call: ${error}`));
    this.#calls.add(ended);
    void ended.then(() => this.#calls.delete(ended));
  }

  /** Undefined if the platform refuses the call or does not answer. */
  async #ask<T>(call: Omit<Call<T>, 'isWorker'>): Promise<T | undefined> {
    const isCalm = this.clock.now() > this.#calmAt + TAKEOVER_MS;
    try {
      return await this.#entrance.ask(this.#choose(this.#listNodes()), {
        ...call,
        isWorker: false,
      });
    } catch (error) {
      if (isCalm && error instanceof StoreUnavailableError) {
        this.faults.push(`${this.clock.now()}: a call failed in calm: ${error.message}`);
      }
      if (error instanceof ProblemError || error instanceof StoreUnavailableError) return undefined;
      throw error;
    }
  }

  readonly #readStream: ShardedQueues['streams']['read'] = async (request) => {
    for (;;) {
      try {
        return await this.#entrance.ask(this.#choose(this.#listNodes()), {
          ...{ endpointId: request.endpointId, isWorker: false, isRepeatable: true },
          signal: this.signal,
          run: (queues, { signal }) => queues.streams.read({ ...request, signal }),
        });
      } catch (error) {
        if (!(error instanceof StoreUnavailableError) || this.signal.aborted) throw error;
        await this.#sleep(RETRY_PAUSE_MS);
      }
    }
  };

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.clock.after(ms, resolve));
  }

  #choose<T>(from: readonly T[]): T {
    const chosen = from[Math.floor(this.random() * from.length)];
    if (chosen === undefined) throw new Error('nothing to choose from');
    return chosen;
  }

  /** A load balancer calls nodes that have started. */
  #listNodes(): readonly SimulatedNode[] {
    const started = this.nodes.filter(({ parts, process }) => parts && !process.isDead);
    return started.length > 0 ? started : this.nodes;
  }

  #declareEndpoints(): void {
    const { tables } = this.postgres.schema(TARGET.schema);
    for (const endpoint of this.#endpoints) tables.putEndpoint(endpoint).next();
    tables.commit();
  }

  #createNode(place: number): SimulatedNode {
    const { clock: time, postgres, random } = this;
    const url = `http://node-${place}`;
    const { wallOffsetMs = 0 } = this.nodes[place] ?? {};
    const node: SimulatedNode = new SimulatedNode({
      ...{ id: `node_${++this.#started}`, url, time, random, postgres, live: LIVE },
      tables: this.#tables,
      endpoints: this.#endpoints,
      settings: {
        retentionMs: { run: JOB_LIMIT_MS, runsync: JOB_LIMIT_MS },
        payloadPartBytes: 64,
      },
      onChange: (before, after) => {
        const endpointId = (after ?? before)?.endpointId;
        if (endpointId !== undefined) this.#ledger(endpointId).note(before, after);
      },
      onOpen: (shard) => this.#noteOpen(shard, node),
      onLost: () => this.events.count('lost'),
      callNode: async (from, toUrl) => {
        const to = this.nodes.find((each) => each.url === toUrl);
        if (!to) return;
        const { signal } = new AbortController();
        await this.#entrance.send({ from, to, signal }, () => to.reload());
      },
    });
    node.wallOffsetMs = wallOffsetMs;
    node.process.onDeath(() => {
      if (!this.signal.aborted) this.restartLater(place);
    });
    return node;
  }

  #failsWrite(): boolean {
    const fails = this.random() < this.failedWrites;
    if (!fails) return false;
    this.events.count('write_failed');
    this.monitor.noteFault();
    return true;
  }

  #noteOpen(shard: number, node: SimulatedNode): void {
    const before = this.#openers.get(shard);
    this.#openers.set(shard, node);
    this.#ledger(`e${shard}`).platformRestarted();
    this.events.count('opened');
    if (!before || before === node || before.isLeaving) return;
    if (before.process.isDead) this.events.count('taken_over');
    else if (!before.process.isRunning) this.events.count('taken_from_paused');
  }

  #createWorker(endpointId: string): SimulatedWorker {
    const { clock, random } = this;
    const ledger = this.#ledger(endpointId);
    const link = this.#createLink(endpointId);
    return new SimulatedWorker({
      id: `w${this.#workerCount++}`,
      ...{ clock, random, weather: () => this.weather, platform: () => link },
      onReply: (report, reply) => ledger.noteReply(report, reply),
      onDeath: (left) => ledger.noteLeft([...left.values()]),
      hasDisk: random() < 0.6,
      isSupervised: random() < 0.6,
    });
  }

  /** Each call goes to any node. */
  #createLink(endpointId: string): WorkerLink {
    const ledger = this.#ledger(endpointId);
    const ask = <T>(
      run: (link: WorkerLink, asking: Asking) => Promise<T>,
      signal?: AbortSignal,
    ): Promise<T> =>
      this.#entrance.ask(this.#choose(this.#listNodes()), {
        ...{ endpointId, isWorker: true, isRepeatable: true, ...(signal && { signal }) },
        run: (queues, asking) => run(ledger.watch(queues.link(endpointId)), asking),
      });
    return {
      hello: (hello) => ask((link) => link.hello(hello)),
      take: (request, signal) => ask((link, asking) => link.take(request, asking.signal), signal),
      renew: (request, signal) => ask((link, asking) => link.renew(request, asking.signal), signal),
      report: (request) => ask((link) => link.report(request)),
      bye: (bye) => ask((link) => link.bye(bye)),
    };
  }
}
