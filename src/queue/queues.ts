// The queues of endpoints as the API and the control plane see them: one queue has all endpoints, or each shard has a
// queue of its own.
import type { StoredEndpoint } from '../store/store.ts';
import type { LeaseRef, WorkerLink } from '../wire/link/worker-link.ts';
import { ProblemError } from '../wire/problem.ts';
import type { ShardService } from './handover/peers.ts';
import { mergeFailed } from './job-lists.ts';
import type { LoanAnswer, LoanMessage } from './limits/shared/loans.ts';
import { type Queue, StoreUnavailableError, type WebhookCounts } from './queue.ts';
import { cutSchedules } from './schedules/schedules.ts';
import type { QueueSettings } from './settings.ts';

/** The methods of a class, without its private members, so that another class can have them too. */
type MethodsOf<T> = { readonly [Name in keyof T]: T[Name] };

type Parts =
  | 'batches'
  | 'deadLetters'
  | 'flows'
  | 'jobs'
  | 'openLeases'
  | 'streams'
  | 'submissions'
  | 'workerLoads';
type OfFiles = 'append' | 'delete' | 'list' | 'part' | 'read' | 'upload';
type OfSchedules = 'call' | 'counts' | 'entries' | 'page';
type OfAll = 'bridge' | 'close' | 'isClosing' | 'reached' | 'settings';
type OfEndpoint = 'endPod' | 'health' | 'inputSchema' | 'isClosingAt' | 'link' | 'listPauses';
type Listings =
  | 'batchCounts'
  | 'endpoints'
  | 'gpuTotals'
  | 'historyCounts'
  | 'jobTimes'
  | 'webhookCounts';

/** What callers may do with one queue or several. See queue.ts for each member. */
export type Queues = { readonly [Part in Parts]: MethodsOf<Queue[Part]> } & {
  readonly files: Pick<Queue['files'], OfFiles>;
  readonly activity: Pick<Queue['activity'], 'now' | 'series'>;
  readonly pauses: Pick<Queue['pauses'], 'pause' | 'resume'>;
  readonly schedules: Pick<Queue['schedules'], OfSchedules>;
} & Pick<Queue, OfAll | OfEndpoint | Listings>;

export interface ShardedQueuesOptions {
  settings: QueueSettings;
  /** Undefined for an unknown endpoint. */
  shardOf: (endpointId: string) => number | undefined;
}

export class ShardedQueues implements Queues {
  readonly settings: QueueSettings;
  readonly #shardOf: ShardedQueuesOptions['shardOf'];
  readonly #served = new Map<number, Queue>();
  readonly #workListeners = new Set<(endpointId: string) => void>();
  #isReached = false;
  #isClosing = false;

  constructor({ settings, shardOf }: ShardedQueuesOptions) {
    this.settings = settings;
    this.#shardOf = shardOf;
  }

  /** Serves the shard from now on. The queue has started. */
  add(shard: number, queue: Queue): void {
    this.#served.set(shard, queue);
    queue.workerLoads.onWork((endpointId) => {
      for (const listener of this.#workListeners) listener(endpointId);
    });
    if (this.#isReached) queue.reached();
  }

  /** Stops serving the shard. The caller closes its queue. */
  remove(shard: number): void {
    this.#served.delete(shard);
  }

  /** Undefined if another node serves the shard. */
  serviceOf(shard: number): ShardService | undefined {
    return this.#served.get(shard)?.shardService;
  }

  serves(shard: number): boolean {
    return this.#served.has(shard);
  }

  /** @throws ProblemError `not_found`, StoreUnavailableError if another node serves the endpoint */
  of(endpointId: string): Queue {
    const shard = this.#shardOf(endpointId);
    if (shard === undefined) {
      throw new ProblemError('not_found', `endpoint ${endpointId} not found`);
    }
    const queue = this.#served.get(shard);
    if (queue) return queue;
    throw new StoreUnavailableError(`another node serves endpoint ${endpointId}`);
  }

  /** Lends starts of limits that belong to a shard. @throws StoreUnavailableError if another node serves it */
  async lend(message: LoanMessage): Promise<LoanAnswer> {
    const queue = this.#served.get(message.home);
    if (queue) return queue.sharedLimits.lend(message);
    throw new StoreUnavailableError(`another node serves shard ${message.home}`);
  }

  /** Undefined if another node serves the endpoint, or it does not exist. */
  #find(endpointId: string): Queue | undefined {
    const shard = this.#shardOf(endpointId);
    return shard === undefined ? undefined : this.#served.get(shard);
  }

  readonly submissions: Queues['submissions'] = {
    submit: async (submission) => this.of(submission.endpointId).submissions.submit(submission),
    submitMany: async (batch) => this.of(batch.endpointId).submissions.submitMany(batch),
  };

  readonly flows: Queues['flows'] = {
    submit: async (flow) => this.of(flow.endpointId).flows.submit(flow),
    read: async (key) => this.of(key.endpointId).flows.read(key),
    counts: async () => {
      const all = await Promise.all(this.#listQueues().map((each) => each.flows.counts()));
      return new Map(all.flatMap((counts) => [...counts]));
    },
    list: async (listing) => this.of(listing.endpointId).flows.list(listing),
    cancel: async (key, selection) => this.of(key.endpointId).flows.cancel(key, selection),
    retry: async (key, selection) => this.of(key.endpointId).flows.retry(key, selection),
  };

  readonly files: Queues['files'] = {
    upload: async (file, source) => this.of(file.endpointId).files.upload(file, source),
    append: async (key, write) => this.of(key.endpointId).files.append(key, write),
    read: async (key) => this.of(key.endpointId).files.read(key),
    list: async (listing) => this.of(listing.endpointId).files.list(listing),
    delete: async (key) => this.of(key.endpointId).files.delete(key),
    part: async (key, index) => this.of(key.endpointId).files.part(key, index),
  };

  readonly batches: Queues['batches'] = {
    create: async (batch) => this.of(batch.endpointId).batches.create(batch),
    read: async (key) => this.of(key.endpointId).batches.read(key),
    waitForEnd: async (key, waitMs) => this.of(key.endpointId).batches.waitForEnd(key, waitMs),
    list: async (listing) => this.of(listing.endpointId).batches.list(listing),
    cancel: async (key) => this.of(key.endpointId).batches.cancel(key),
  };

  readonly jobs: Queues['jobs'] = {
    record: async (key) => this.of(key.endpointId).jobs.record(key),
    details: async (key) => this.of(key.endpointId).jobs.details(key),
    outline: async (key) => this.of(key.endpointId).jobs.outline(key),
    watch: (key) => this.of(key.endpointId).jobs.watch(key),
    inputBytes: async (key) => this.of(key.endpointId).jobs.inputBytes(key),
    recordBytes: async (key) => this.of(key.endpointId).jobs.recordBytes(key),
    waitForEnd: async (key, ...wait) => this.of(key.endpointId).jobs.waitForEnd(key, ...wait),
    untilEnd: async (key, ...wait) => this.of(key.endpointId).jobs.untilEnd(key, ...wait),
    cancel: async (key) => this.of(key.endpointId).jobs.cancel(key),
    retry: async (key, ...how) => this.of(key.endpointId).jobs.retry(key, ...how),
    setTtl: async (key, ttlMs) => this.of(key.endpointId).jobs.setTtl(key, ttlMs),
    purge: async (endpointId) => this.of(endpointId).jobs.purge(endpointId),
    changeMany: async (request) => this.of(request.endpointId).jobs.changeMany(request),
    list: async (listing) => this.of(listing.endpointId).jobs.list(listing),
    listFailed: async (endpointIds, listing) => {
      const ofQueues = Map.groupBy(endpointIds, (id) => this.#find(id));
      const pages = [...ofQueues].map(([queue, ids]) => queue?.jobs.listFailed(ids, listing));
      const found = (await Promise.all(pages)).filter((page) => page !== undefined);
      return mergeFailed(found, listing.limit);
    },
    log: async (key, from) => this.of(key.endpointId).jobs.log(key, from),
  };

  readonly deadLetters: Queues['deadLetters'] = {
    details: async (key) => this.of(key.endpointId).deadLetters.details(key),
    measure: async (key) => this.of(key.endpointId).deadLetters.measure(key),
    resubmit: async (endpointId, ids) => this.of(endpointId).deadLetters.resubmit(endpointId, ids),
    delete: async (endpointId, ids) => this.of(endpointId).deadLetters.delete(endpointId, ids),
  };

  readonly streams: Queues['streams'] = {
    read: async (request) => this.of(request.endpointId).streams.read(request),
    noteSending: async (key, at) => this.of(key.endpointId).streams.noteSending(key, at),
    noteSent: async (key, at) => this.of(key.endpointId).streams.noteSent(key, at),
    readStatus: async (key) => this.of(key.endpointId).streams.readStatus(key),
    splitBytes: async (key) => this.of(key.endpointId).streams.splitBytes(key),
  };

  readonly openLeases: Queues['openLeases'] = {
    ofWorker: async (endpointId, id) => this.of(endpointId).openLeases.ofWorker(endpointId, id),
    ofJob: async (key) => this.of(key.endpointId).openLeases.ofJob(key),
  };

  readonly workerLoads: Queues['workerLoads'] = {
    load: async (endpointId) => this.of(endpointId).workerLoads.load(endpointId),
    oldestQueuedAt: async (endpointId) =>
      this.of(endpointId).workerLoads.oldestQueuedAt(endpointId),
    isPresent: (endpointId, id) =>
      this.#find(endpointId)?.workerLoads.isPresent(endpointId, id) ?? false,
    drain: (endpointId, podId) => this.#find(endpointId)?.workerLoads.drain(endpointId, podId),
    park: (endpointId, podId, wish) =>
      this.#find(endpointId)?.workerLoads.park(endpointId, podId, wish),
    ofPod: (endpointId, podId) =>
      this.#find(endpointId)?.workerLoads.ofPod(endpointId, podId) ?? [],
    listPresent: () =>
      [...this.#served.values()].flatMap(({ workerLoads }) => workerLoads.listPresent()),
    onWork: (listener) => {
      this.#workListeners.add(listener);
      return () => this.#workListeners.delete(listener);
    },
  };

  readonly activity: Queues['activity'] = {
    now: async (endpointId) => this.of(endpointId).activity.now(endpointId),
    series: async (endpointId, range) => this.of(endpointId).activity.series(endpointId, range),
  };

  readonly pauses: Queues['pauses'] = {
    pause: async (request) => this.of(request.endpointId).pauses.pause(request),
    resume: async (target) => this.of(target.endpointId).pauses.resume(target),
  };

  async listPauses(endpointId: string): ReturnType<Queues['listPauses']> {
    return this.of(endpointId).listPauses(endpointId);
  }

  readonly schedules: Queues['schedules'] = {
    call: async (endpointId, call) => this.of(endpointId).schedules.call(endpointId, call),
    counts: () => new Map(this.#listQueues().flatMap((each) => [...each.schedules.counts()])),
    entries: (userId) => this.#listQueues().flatMap((each) => each.schedules.entries(userId)),
    page: async (userId, page) => {
      const pages = this.#listQueues().map((each) => each.schedules.page(userId, page));
      return cutSchedules(await Promise.all(pages), page.limit);
    },
  };

  #listQueues(): Queue[] {
    return [...this.#served.values()];
  }

  get isClosing(): boolean {
    return this.#isClosing;
  }

  /** Also if another node serves the endpoint. */
  isClosingAt(endpointId: string): boolean {
    return this.#find(endpointId)?.isClosing ?? true;
  }

  reached(): void {
    this.#isReached = true;
    for (const queue of this.#served.values()) queue.reached();
  }

  bridge(tokens: readonly string[]): void {
    for (const queue of this.#served.values()) queue.bridge(tokens);
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await Promise.all([...this.#served.values()].map((queue) => queue.close()));
  }

  link(endpointId: string, podId: string | null = null): WorkerLink {
    const now = () => this.of(endpointId).link(endpointId, podId);
    return {
      hello: async (hello) => now().hello(hello),
      take: async (request, signal) => now().take(request, signal),
      renew: async (request, signal) => now().renew(request, signal),
      report: async (request) => now().report(request),
      bye: async (bye) => now().bye(bye),
    };
  }

  async endPod(
    endpointId: string,
    podId: string,
    readOutbox?: (workerId: string) => Promise<LeaseRef[]>,
  ): Promise<void> {
    await this.of(endpointId).endPod(endpointId, podId, readOutbox);
  }

  async endpoints(): Promise<StoredEndpoint[]> {
    const served = [...this.#served].map(async ([shard, queue]) => {
      // The schema of shard 0 names the endpoints of all shards.
      const all = await queue.endpoints();
      return all.filter(({ id }) => this.#shardOf(id) === shard);
    });
    return (await Promise.all(served)).flat();
  }

  async webhookCounts(): Promise<Map<string, WebhookCounts>> {
    const all = await Promise.all([...this.#served.values()].map((each) => each.webhookCounts()));
    return new Map(all.flatMap((counts) => [...counts]));
  }

  gpuTotals(): ReturnType<Queues['gpuTotals']> {
    return new Map([...this.#served.values()].flatMap((each) => [...each.gpuTotals()]));
  }

  batchCounts(): ReturnType<Queues['batchCounts']> {
    return new Map([...this.#served.values()].flatMap((each) => [...each.batchCounts()]));
  }

  historyCounts(): ReturnType<Queues['historyCounts']> {
    return new Map([...this.#served.values()].flatMap((each) => [...each.historyCounts()]));
  }

  jobTimes(): ReturnType<Queues['jobTimes']> {
    return new Map([...this.#served.values()].flatMap((each) => [...each.jobTimes()]));
  }

  async inputSchema(endpointId: string): ReturnType<Queues['inputSchema']> {
    return this.of(endpointId).inputSchema(endpointId);
  }

  async health(endpointId: string): ReturnType<Queues['health']> {
    return this.of(endpointId).health(endpointId);
  }
}
