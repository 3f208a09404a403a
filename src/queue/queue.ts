// The queue as a whole: starts and stops its parts, and gives each endpoint its worker link.
import type { ResumableClock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Store, StoredEndpoint } from '../store/store.ts';
import { type LeaseRef, RUNPOD_WORKER_VERSION, type WorkerLink } from '../wire/link/worker-link.ts';
import { ProblemError } from '../wire/problem.ts';
import type { EndpointHealth, InputSchemaRecord } from '../wire/resources/endpoint.ts';
import type { Pause } from '../wire/resources/pause.ts';
import { QueueActivity } from './activity/activity.ts';
import type { BatchForms } from './batches/batch-form.ts';
import { Batches } from './batches/batches.ts';
import { type BatchCounts, Feeder } from './batches/feeder.ts';
import type { Files } from './batches/files.ts';
import { NextLines } from './batches/next-lines.ts';
import { ResultWriter } from './batches/result-writer.ts';
import { DeadLetters } from './dead-letters.ts';
import { type EndpointRemoval, readEndpoint } from './endpoint-removal.ts';
import { Fills } from './flows/fills.ts';
import { Flows } from './flows/flows.ts';
import { Handovers } from './handover/handovers.ts';
import type { Peers, ShardService } from './handover/peers.ts';
import type { HistoryCounts } from './history/history.ts';
import type { HistoryTarget } from './history/history-files.ts';
import type { JobTimes } from './job-times.ts';
import type { TracingOptions } from './job-tracing.ts';
import { Jobs } from './jobs.ts';
import { Leases } from './leases/leases.ts';
import { OpenLeases } from './leases/open-leases.ts';
import { isHeldBack, type PresentWorker } from './leases/presence.ts';
import { Renewals } from './leases/renewals.ts';
import { drainWorker, type GpuTotals, type WorkerLoads } from './leases/worker-loads.ts';
import type { Pauses } from './limits/pauses.ts';
import type { SharedLimitSource } from './limits/shared/buckets.ts';
import type { SharedLimits } from './limits/shared/shared-limits.ts';
import { createParts, type QueueParts } from './queue-parts.ts';
import type { RecordFormats } from './records.ts';
import { Reports } from './reports/reports.ts';
import { Streams } from './reports/streams.ts';
import type { Schedules } from './schedules/schedules.ts';
import type { QueueSettings } from './settings.ts';
import { Submissions } from './submissions.ts';
import { extendLeases, sweep } from './sweeper.ts';
import type { FindScaling } from './waits.ts';
import type { DeliveryCounts } from './webhooks/deliveries.ts';
import type { WebhookSender } from './webhooks/webhooks.ts';

/** Operations of the queue reject with this error if the disk is full or failing. */
export { StoreUnavailableError } from '../store/store.ts';

export interface QueueOptions {
  store: Store;
  clock: ResumableClock;
  log: Log;
  settings?: Partial<QueueSettings>;
  /** Uniform in [0, 1); for the jitter of retries. */
  random?: () => number;
  /** Record formats of other APIs, for the webhooks of their jobs. Default: none. */
  formats?: RecordFormats;
  /** Forms of the lines of batches. Default: there are no batches. */
  batchForms?: BatchForms;
  /** Closed with the queue. Default: nothing is sent, but deliveries are stored. */
  webhooks?: WebhookSender;
  /** Where the history of jobs goes; closed with the queue. Default: no job has one. */
  history?: HistoryTarget | undefined;
  /** What the scaler knows of an endpoint's workers. Default: the platform starts no workers. */
  findScaling?: FindScaling;
  /** Records what happens at endpoints, for time series. Default false. */
  isRecording?: boolean | undefined;
  /** Whether an endpoint of the store is one of this queue. Default: all are. */
  owns?: ((endpointId: string) => boolean) | undefined;
  /** The other shards of the platform. Default: there is one. */
  peers?: Peers | undefined;
  /** Default: no limits are shared. */
  sharedLimits?: SharedLimitSource | undefined;
  /** Default: no spans. */
  tracing?: TracingOptions | undefined;
  /** Wraps the link of an endpoint, between the carriers and the queue. Default: nothing does. */
  wrapLink?: ((link: WorkerLink, endpointId: string) => WorkerLink) | undefined;
}

/** Webhook counts of an endpoint: results since the start, and deliveries that wait. */
export interface WebhookCounts {
  counts: DeliveryCounts;
  waiting: number;
}

export class Queue {
  readonly submissions: Submissions;
  readonly jobs: Jobs;
  readonly deadLetters: DeadLetters;
  readonly flows: Flows;
  readonly files: Files;
  readonly batches: Batches;
  readonly streams: Streams;
  readonly openLeases: OpenLeases;
  readonly workerLoads: WorkerLoads;
  readonly activity: QueueActivity;
  readonly schedules: Schedules;
  readonly removal: EndpointRemoval;
  readonly pauses: Pick<Pauses, 'list' | 'pause' | 'resume'>;
  readonly sharedLimits: Pick<SharedLimits, 'lend'>;
  readonly settings: QueueSettings;
  readonly #parts: QueueParts;
  readonly #leases: Leases;
  readonly #renewals: Renewals;
  readonly #reports: Reports;
  readonly #fills: Fills;
  readonly #handovers: Handovers;
  readonly #feeder: Feeder;
  readonly #closing = new AbortController();
  readonly #isRecording: boolean;
  readonly #wrapLink: NonNullable<QueueOptions['wrapLink']>;
  #sweeping: Promise<void> = Promise.resolve();
  #recording: Promise<void> = Promise.resolve();

  constructor(options: QueueOptions) {
    const parts = createParts(options, this.#closing.signal);
    this.#parts = parts;
    this.settings = parts.settings;
    this.schedules = parts.schedules;
    this.removal = parts.removal;
    this.pauses = parts.pauses;
    this.sharedLimits = parts.sharedLimits;
    this.workerLoads = parts.workerLoads;
    this.submissions = new Submissions(parts);
    this.jobs = new Jobs(parts);
    this.deadLetters = new DeadLetters(parts, this.submissions);
    this.flows = new Flows(parts);
    this.files = parts.files;
    const lines = new NextLines(parts);
    const results = new ResultWriter({ ...parts, jobs: this.jobs });
    this.#feeder = new Feeder({ ...parts, lines, results });
    this.batches = new Batches(parts, (batch) => this.#feeder.note(batch));
    this.streams = new Streams(parts);
    this.openLeases = new OpenLeases(parts);
    this.activity = new QueueActivity(parts);
    this.#leases = new Leases(parts);
    this.#renewals = new Renewals(parts);
    this.#reports = new Reports(parts);
    this.#fills = new Fills(parts);
    this.#handovers = new Handovers(parts);
    this.#isRecording = options.isRecording ?? false;
    this.#wrapLink = options.wrapLink ?? ((link) => link);
  }

  /** Continues an earlier run: extends leases and deadlines by `leaseMs`, then starts the sweeper. */
  async start(): Promise<void> {
    const { absence, clock, deliveries, histories, keptFlows, pauses, positions } = this.#parts;
    const { presence, rates, recordedTime, sharedLimits, store } = this.#parts;
    const wasSetBack = await recordedTime.resume();
    await positions.resume(store);
    // Before any job ends: lines of this run are counted as they arrive, those of earlier runs here.
    await histories.start();
    await pauses.load();
    await rates.load();
    await sharedLimits.load();
    await keptFlows.count();
    for (const worker of await store.read((tx) => tx.workers())) {
      presence.arrive(worker, clock.now());
    }
    await absence.end({ wasSetBack });
    const leased = await extendLeases(this.#parts, 0);
    for (const job of leased) presence.jobChanged(undefined, job);
    this.#sweeping = sweep(this.#parts);
    await this.schedules.start();
    await deliveries.start();
    await this.#fills.start();
    await this.#handovers.start();
    await this.files.start();
    await this.#feeder.start();
    if (this.#isRecording) this.#recording = this.activity.record();
  }

  /** By endpoint. */
  batchCounts(): ReadonlyMap<string, BatchCounts> {
    return this.#feeder.counts();
  }

  /** When a batch has something to do next, Unix ms; Infinity without open batches. */
  get nextBatchStepAt(): number {
    return this.#feeder.nextAt;
  }

  /** `close` was called: all waits end. */
  get isClosing(): boolean {
    return this.#closing.signal.aborted;
  }

  /** All waits at the endpoint end: the platform stops, or another node takes the endpoint over. */
  isClosingAt(_endpointId: string): boolean {
    return this.isClosing;
  }

  /** Callers reach the platform from now on. */
  reached(): void {
    this.#parts.absence.reached();
  }

  /**
   * The platform stops. RunPod workers do not repeat a lost call, but the workers of these attempts were
   * told to send again later: they lose nothing in a short absence.
   */
  bridge(tokens: readonly string[]): void {
    this.#parts.absence.bridge(tokens);
  }

  /** Answers every open wait with the current state; does not close the store. */
  async close(): Promise<void> {
    const { absence, deliveries, histories } = this.#parts;
    this.#closing.abort();
    await Promise.all([
      this.#sweeping,
      this.#fills.close(),
      this.#handovers.close(),
      this.files.close(),
      this.#feeder.close(),
      this.#recording,
      this.schedules.closed(),
      deliveries.close(),
      histories.close(),
    ]);
    await absence.begin();
  }

  /** For the queues of other shards. */
  get shardService(): ShardService {
    return this.#handovers;
  }

  /**
   * The endpoint's queue as a worker sees it. `podId`: the pod of the worker's key, which owns the
   * worker whatever ID the worker uses; null without a pod.
   */
  link(endpointId: string, podId: string | null = null): WorkerLink {
    const link: WorkerLink = {
      hello: (hello) => this.#leases.hello(endpointId, hello, podId),
      take: (request, signal) => this.#leases.take(endpointId, request, signal),
      renew: (request, signal) => this.#renewals.renew(endpointId, request, signal),
      report: (request) => this.#reports.report(endpointId, request),
      bye: (bye) => this.#leases.bye(endpointId, bye),
    };
    return this.#wrapLink(link, endpointId);
  }

  /** Tells a worker with its next renewal to drain. */
  drainWorker(endpointId: string, workerId: string): void {
    const { presence, signals } = this.#parts;
    const worker = presence.find(endpointId, workerId);
    if (!worker) throw new ProblemError('not_found', `worker ${workerId} not found`);
    drainWorker(worker, signals);
  }

  /**
   * Removes a pod's workers after the pod ended. Their leases end at once, except those whose outcome
   * is in an outbox: another worker will deliver that outcome. Without `readOutbox` the outboxes cannot
   * be read, so every lease lasts for `leaseMs`; within that time the next worker with the same outbox
   * names the attempts that it delivers.
   */
  async endPod(
    endpointId: string,
    podId: string,
    readOutbox?: (workerId: string) => Promise<LeaseRef[]>,
  ): Promise<void> {
    for (const worker of this.workerLoads.ofPod(endpointId, podId)) {
      const { id: workerId, incarnation } = worker;
      const why = { reason: 'crashed', detail: 'its pod ended' } as const;
      const outbox = (await readOutbox?.(workerId)) ?? (await this.#listPossiblyLeft(worker));
      await this.#leases.bye(endpointId, { workerId, incarnation, outbox, ...why });
    }
  }

  async #listPossiblyLeft({ endpointId, id, version }: PresentWorker): Promise<LeaseRef[]> {
    if (version === RUNPOD_WORKER_VERSION) return [];
    return this.openLeases.ofWorker(endpointId, id);
  }

  /**
   * Webhook counts by endpoint: results of delivery attempts since the start, and waiting deliveries.
   */
  async webhookCounts(): Promise<Map<string, WebhookCounts>> {
    const all = new Map<string, WebhookCounts>();
    for (const [endpointId, counts] of this.#parts.deliveries.counts) {
      all.set(endpointId, { counts, waiting: 0 });
    }
    for (const { count, endpointId } of await this.#parts.store.read((tx) =>
      tx.countDeliveries(),
    )) {
      all.set(endpointId, { counts: all.get(endpointId)?.counts ?? {}, waiting: count });
    }
    return all;
  }

  /** Lines of history by endpoint. */
  historyCounts(): ReadonlyMap<string, HistoryCounts> {
    return this.#parts.histories.counts;
  }

  /** What ended attempts used of GPUs since the start, by endpoint. */
  gpuTotals(): GpuTotals['all'] {
    return this.#parts.gpuTotals.all;
  }

  /** How long jobs waited and ran since the start, by endpoint. */
  jobTimes(): JobTimes['all'] {
    return this.#parts.jobTimes.all;
  }

  /** Endpoints with their counters, without deleted ones. */
  async endpoints(): Promise<StoredEndpoint[]> {
    const all = await this.#parts.store.read((tx) => tx.endpoints());
    return all.filter(({ deleted }) => !deleted);
  }

  /** What the endpoint's handler accepts, if its workers have said so. @throws ProblemError `not_found` */
  inputSchema(endpointId: string): Promise<InputSchemaRecord> {
    return this.#parts.inputSchemas.read(endpointId);
  }

  /** `failed` counts FAILED and TIMED_OUT. @throws ProblemError `not_found` */
  async health(endpointId: string): Promise<EndpointHealth> {
    const { clock, pauses, presence, settings, store } = this.#parts;
    const endpoint = await store.read((tx) => readEndpoint(tx, endpointId));
    const workers = { idle: 0, running: 0 };
    let parked = 0;
    const aliveSince = clock.now() - settings.leaseMs;
    for (const worker of presence.ofEndpoint(endpointId)) {
      if (worker.seenAt < aliveSince) continue;
      if (worker.parking?.state === 'parked') parked++;
      else if (worker.leases.size > 0) workers.running++;
      // A draining or parked worker takes no jobs.
      else if (!worker.draining && !isHeldBack(worker)) workers.idle++;
    }
    const { completed, failed, timedOut, inProgress, inQueue, retried } = endpoint;
    const paused = pauses.find({ endpointId, group: null });
    const pausedGroups = pauses.list(endpointId).length - (paused ? 1 : 0);
    return {
      jobs: { completed, failed: failed + timedOut, inProgress, inQueue, retried },
      workers: { ...workers, ...(parked > 0 && { parked }) },
      ...(paused && { paused }),
      ...(pausedGroups > 0 && { pausedGroups }),
    };
  }

  /** Those that hold now. @throws ProblemError `not_found` */
  async listPauses(endpointId: string): Promise<Pause[]> {
    await this.#parts.store.read((tx) => readEndpoint(tx, endpointId));
    return this.pauses.list(endpointId);
  }
}
