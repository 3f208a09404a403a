// The verbs that read: live jobs and endpoints from memory, everything else from the database.
import type {
  ChunkBatch,
  ChunkRange,
  DueDeliveries,
  FoundJobs,
  JobKey,
  JobListing,
  JobPreview,
  JobSearch,
  LogRange,
  OutgrownLoad,
  Reader,
  ReceiverKey,
  ResourceKey,
  ResourceListing,
  StagedPayload,
  Step,
  StoredDelivery,
  StoredEndpoint,
  StoredJob,
  StoredKey,
  StoredResource,
  StoredWorker,
  UnusedPayload,
  VersionKey,
} from '../store.ts';
import type { Tables } from '../tables.ts';
import type { LiveJobs } from './live-jobs.ts';

/** For use between commits, when the database has everything. */
export class LiveReader implements Reader {
  protected readonly tables: Tables;
  protected readonly live: LiveJobs;

  constructor(tables: Tables, live: LiveJobs) {
    this.tables = tables;
    this.live = live;
  }

  /** Runs before a query whose result may depend on changes that are only in memory. */
  protected *writeBack(): Step<void> {}

  *endpoint(id: string): Step<StoredEndpoint | undefined> {
    const known = this.live.endpoint(id);
    if (known) return known;
    if (this.live.isUncounted(id)) yield* this.writeBack();
    const found = yield* this.tables.endpoint(id);
    if (found) this.live.remember(found);
    return found;
  }

  *endpoints(): Step<StoredEndpoint[]> {
    const known = this.live.endpoints();
    if (known) return known;
    yield* this.writeBack();
    const all = yield* this.tables.endpoints();
    this.live.rememberAll(all);
    return all;
  }

  *job(key: JobKey): Step<StoredJob | undefined> {
    const job = this.live.job(key);
    if (job === 'unknown') return yield* this.tables.job(key);
    return job === 'absent' ? undefined : job;
  }

  *jobByIdempotencyKey(endpointId: string, idempotencyKey: string): Step<StoredJob | undefined> {
    const id = this.live.findNewKey(endpointId, idempotencyKey);
    if (id !== undefined) return yield* this.job({ endpointId, id });
    const stored = yield* this.tables.jobByIdempotencyKey(endpointId, idempotencyKey);
    return stored && (yield* this.job(stored));
  }

  *jobs({ status, ...listing }: JobListing): Step<StoredJob[]> {
    if (status === 'IN_PROGRESS') {
      yield* this.loadLeased();
      return this.live.leased.listRunning(listing);
    }
    yield* this.writeBack();
    return yield* this.tables.jobs({ ...listing, status });
  }

  *findJobs({ status, ...search }: JobSearch): Step<FoundJobs> {
    if (status === 'IN_PROGRESS') {
      yield* this.loadLeased();
      const { limit } = search;
      const found = this.live.leased.listRunning({ ...search, limit: limit + 1 });
      const jobs = found.slice(0, limit);
      return { jobs, next: found.length > limit ? jobs.at(-1)?.position : undefined };
    }
    yield* this.writeBack();
    return yield* this.tables.findJobs({ ...search, status });
  }

  *readyJobs(endpointId: string, limit: number): Step<StoredJob[]> {
    const ready = this.live.readyJobs(endpointId, limit);
    if (ready) return ready;
    yield* this.writeBack();
    const loaded = Math.max(limit, this.live.windowJobs(endpointId));
    this.live.loadReady(endpointId, yield* this.tables.readyJobs(endpointId, loaded), loaded);
    return this.live.readyJobs(endpointId, limit) ?? [];
  }

  *queuedJobs(endpointId: string, limit: number, upTo?: number): Step<StoredJob[]> {
    yield* this.writeBack();
    return yield* this.tables.queuedJobs(endpointId, limit, upTo);
  }

  *jobsOfWorker(endpointId: string, workerId: string): Step<StoredJob[]> {
    yield* this.writeBack();
    return yield* this.tables.jobsOfWorker(endpointId, workerId);
  }

  *countGroupLeases(endpointId: string, group: string): Step<number> {
    yield* this.loadLeased();
    return this.live.leased.countOfGroup(endpointId, group);
  }

  *leasedJobs(): Step<StoredJob[]> {
    yield* this.loadLeased();
    const jobs = yield* this.#readAll([...this.live.leased.keys()]);
    return jobs.sort((a, b) => a.position - b.position);
  }

  *dueJobs(now: number, limit: number): Step<StoredJob[]> {
    yield* this.loadLeased();
    yield* this.writeBack();
    const due = yield* this.tables.dueJobs(now, limit);
    due.push(...(yield* this.#readAll(this.live.leased.listDue(now, limit))));
    return due.sort((a, b) => a.dueAt - b.dueAt || a.position - b.position).slice(0, limit);
  }

  *nextDueAt(): Step<number | undefined> {
    yield* this.loadLeased();
    yield* this.writeBack();
    const next = yield* this.tables.nextDueAt();
    const dueAt = Math.min(next ?? Number.POSITIVE_INFINITY, this.live.leased.nextDueAt);
    return dueAt === Number.POSITIVE_INFINITY ? undefined : dueAt;
  }

  *#readAll(keys: readonly JobKey[]): Step<StoredJob[]> {
    const jobs: StoredJob[] = [];
    for (const key of keys) {
      const job = yield* this.job(key);
      if (job) jobs.push(job);
    }
    return jobs;
  }

  *oldestQueuedAt(endpointId: string): Step<number | undefined> {
    yield* this.writeBack();
    return yield* this.tables.oldestQueuedAt(endpointId);
  }

  *countReady(endpointId: string, limit: number): Step<number> {
    yield* this.writeBack();
    return yield* this.tables.countReady(endpointId, limit);
  }

  *outgrownLoads(endpointId: string): Step<OutgrownLoad[]> {
    yield* this.writeBack();
    return yield* this.tables.outgrownLoads(endpointId);
  }

  /** All jobs with a lease are in memory from now on. */
  protected *loadLeased(): Step<void> {
    if (this.live.leased.isLoaded) return;
    yield* this.writeBack();
    this.live.loadLeased(yield* this.tables.leasedJobs());
  }

  input(key: JobKey): Step<Uint8Array | undefined> {
    return this.tables.input(key);
  }

  output(key: JobKey): Step<Uint8Array | undefined> {
    return this.tables.output(key);
  }

  outputBytes(key: JobKey): Step<number> {
    return this.tables.outputBytes(key);
  }

  payloadUpTo(
    kind: StagedPayload['kind'],
    key: JobKey,
    maxBytes: number,
  ): Step<Uint8Array | number | undefined> {
    return this.tables.payloadUpTo(kind, key, maxBytes);
  }

  payloadPart(
    kind: StagedPayload['kind'],
    key: JobKey,
    index: number,
  ): Step<Uint8Array | undefined> {
    return this.tables.payloadPart(kind, key, index);
  }

  *jobPreview(key: JobKey, maxInputBytes: number): Step<JobPreview | undefined> {
    yield* this.writeBack();
    return yield* this.tables.jobPreview(key, maxInputBytes);
  }

  payloadFile(kind: StagedPayload['kind'], key: JobKey): Step<StagedPayload | undefined> {
    return this.tables.payloadFile(kind, key);
  }

  unusedPayloads(limit: number): Step<UnusedPayload[]> {
    return this.tables.unusedPayloads(limit);
  }

  filesOf(payload: UnusedPayload): Step<StagedPayload[]> {
    return this.tables.filesOf(payload);
  }

  deliveriesOf(endpointId: string, limit: number): Step<StoredDelivery[]> {
    return this.tables.deliveriesOf(endpointId, limit);
  }

  chunks(range: ChunkRange): Step<ChunkBatch[]> {
    return this.tables.chunks(range);
  }

  log(range: LogRange): Step<Uint8Array> {
    return this.tables.log(range);
  }

  receivers(): Step<(ReceiverKey & { nextAt: number })[]> {
    return this.tables.receivers();
  }

  dueDeliveries(due: DueDeliveries): Step<StoredDelivery[]> {
    return this.tables.dueDeliveries(due);
  }

  nextDeliveryAt(receiver: ReceiverKey, after: number): Step<number | undefined> {
    return this.tables.nextDeliveryAt(receiver, after);
  }

  deliveryPart(key: JobKey, at: number): Step<Uint8Array | undefined> {
    return this.tables.deliveryPart(key, at);
  }

  countDeliveries(): Step<{ endpointId: string; count: number }[]> {
    return this.tables.countDeliveries();
  }

  worker(endpointId: string, id: string): Step<StoredWorker | undefined> {
    return this.tables.worker(endpointId, id);
  }

  workers(): Step<StoredWorker[]> {
    return this.tables.workers();
  }

  resource(key: ResourceKey): Step<StoredResource | undefined> {
    return this.tables.resource(key);
  }

  resources(listing: ResourceListing): Step<StoredResource[]> {
    return this.tables.resources(listing);
  }

  versionPart(key: VersionKey, index: number): Step<Uint8Array | undefined> {
    return this.tables.versionPart(key, index);
  }

  versionsWithParts(): Step<VersionKey[]> {
    return this.tables.versionsWithParts();
  }

  keyByHash(hash: string): Step<StoredKey | undefined> {
    return this.tables.keyByHash(hash);
  }

  keys(): Step<StoredKey[]> {
    return this.tables.keys();
  }

  keysOfUser(userId: string): Step<StoredKey[]> {
    return this.tables.keysOfUser(userId);
  }
}
