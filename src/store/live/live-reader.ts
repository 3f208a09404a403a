// The verbs that read: live jobs and endpoints from memory, everything else from the database.
import {
  type ChunkBatch,
  type ChunkRange,
  type DueDeliveries,
  type FileKey,
  type FoundJobs,
  isDeadLetter,
  type JobKey,
  type JobListing,
  type JobPreview,
  type JobSearch,
  type LogRange,
  type OutgrownLoad,
  type Reader,
  type ReceiverKey,
  type ResourceKey,
  type ResourceListing,
  type StagedPayload,
  type Step,
  type StoredDelivery,
  type StoredEndpoint,
  type StoredJob,
  type StoredKey,
  type StoredResource,
  type StoredWorker,
  type UnusedPayload,
  type VersionKey,
} from '../store.ts';
import type { Tables } from '../tables.ts';
import type { LiveJobs } from './live-jobs.ts';

/** What an operation has returned or thrown. */
export type Result<T> = { value: T } | { error: unknown };

/** What the database is asked. */
interface Question {
  name: string;
  read: () => Step<unknown>;
  /** The answer may depend on jobs whose rows are not written yet. */
  needsRows: boolean;
}

/** An operation whose questions change with each run would never end. */
const MAX_RUNS = 10_000;

/** Thrown by a verb whose result is not in memory. Not an Error, which would take a stack. */
class NotLoaded {
  readonly questions: readonly Question[];

  constructor(questions: readonly Question[]) {
    this.questions = questions;
  }
}

/**
 * For one operation, between commits, when the database has everything. A verb whose result is not in memory throws
 * `NotLoaded`: `run` asks the database, and runs the operation again from its start.
 */
export class LiveReader implements Reader {
  protected readonly tables: Tables;
  protected readonly live: LiveJobs;
  /** What the database has answered, by question. */
  #answers: Map<string, unknown> | undefined;

  constructor(tables: Tables, live: LiveJobs) {
    this.tables = tables;
    this.live = live;
  }

  /** The steps of the operation: its reads, until it returns or throws. They throw if rows cannot be written. */
  *run<T>(operation: () => T): Step<Result<T>> {
    let asked = '';
    for (let runs = 0; runs < MAX_RUNS; runs++) {
      let questions: readonly Question[];
      try {
        return { value: operation() };
      } catch (thrown) {
        if (!(thrown instanceof NotLoaded)) return { error: thrown };
        questions = thrown.questions;
      }
      asked = questions[0]?.name ?? '';
      if (questions.some(({ needsRows }) => needsRows)) yield* this.writeBack();
      try {
        yield* this.#ask(questions);
      } catch (error) {
        return { error };
      }
    }
    return {
      error: new Error(`an operation never ends: it has run ${MAX_RUNS} times for ${asked}`),
    };
  }

  *#ask(questions: readonly Question[]): Step<void> {
    this.#answers ??= new Map();
    for (const { name, read } of questions) {
      if (!this.#answers.has(name)) this.#answers.set(name, yield* read());
    }
  }

  each<Item, Value>(items: Iterable<Item>, read: (item: Item) => Value): Value[] {
    const values: Value[] = [];
    const questions: Question[] = [];
    for (const item of items) {
      try {
        values.push(read(item));
      } catch (thrown) {
        if (!(thrown instanceof NotLoaded)) throw thrown;
        questions.push(...thrown.questions);
      }
    }
    if (questions.length > 0) throw new NotLoaded(questions);
    return values;
  }

  /** The answer of the database. */
  protected load<T>(verb: string, args: unknown, read: () => Step<T>, needsRows = false): T {
    const name = `${verb} ${typeof args === 'string' ? args : JSON.stringify(args)}`;
    if (!this.#answers?.has(name)) throw new NotLoaded([{ name, read, needsRows }]);
    // The answer to the same question, which `read` has given.
    return this.#answers.get(name) as T;
  }

  /** The same, for what may depend on jobs whose rows are not written yet. */
  protected list<T>(verb: string, args: unknown, read: () => Step<T>): T {
    return this.load(verb, args, read, true);
  }

  /** Writes the rows that only the memory has. */
  protected *writeBack(): Step<void> {}

  endpoint(id: string): StoredEndpoint | undefined {
    const known = this.live.endpoint(id);
    if (known) return known;
    const needsRows = this.live.isUncounted(id);
    const found = this.load('endpoint', id, () => this.tables.endpoint(id), needsRows);
    if (found) this.live.remember(found);
    return found;
  }

  endpoints(): StoredEndpoint[] {
    const known = this.live.endpoints();
    if (known) return known;
    const all = this.list('endpoints', null, () => this.tables.endpoints());
    this.live.rememberAll(all);
    return all;
  }

  job(key: JobKey): StoredJob | undefined {
    const job = this.anyJob(key);
    return job && isDeadLetter(job) ? undefined : job;
  }

  oldestDeadLetters(endpointId: string, limit: number): StoredJob[] {
    return this.list('oldestDeadLetters', [endpointId, limit], () =>
      this.tables.oldestDeadLetters(endpointId, limit),
    );
  }

  anyJob(key: JobKey): StoredJob | undefined {
    const job = this.live.job(key);
    if (job === 'unknown') return this.load('job', nameOf(key), () => this.tables.job(key));
    return job === 'absent' ? undefined : job;
  }

  jobByIdempotencyKey(endpointId: string, idempotencyKey: string): StoredJob | undefined {
    const id = this.live.findNewKey(endpointId, idempotencyKey);
    if (id !== undefined) return this.job({ endpointId, id });
    const stored = this.load('jobByIdempotencyKey', [endpointId, idempotencyKey], () =>
      this.tables.jobByIdempotencyKey(endpointId, idempotencyKey),
    );
    if (!stored) return undefined;
    const job = this.live.job(stored);
    if (job === 'unknown') return stored;
    return job === 'absent' ? undefined : job;
  }

  jobs({ status, ...listing }: JobListing): StoredJob[] {
    if (status === 'IN_PROGRESS') {
      this.loadLeased();
      return this.live.leased.listRunning(listing);
    }
    const those = { ...listing, status };
    return this.list('jobs', those, () => this.tables.jobs(those));
  }

  findJobs({ status, ...search }: JobSearch): FoundJobs {
    if (status === 'IN_PROGRESS') {
      this.loadLeased();
      const { limit } = search;
      const found = this.live.leased.listRunning({ ...search, limit: limit + 1 });
      const jobs = found.slice(0, limit);
      return { jobs, next: found.length > limit ? jobs.at(-1)?.position : undefined };
    }
    const those = { ...search, status };
    return this.list('findJobs', those, () => this.tables.findJobs(those));
  }

  readyJobs(endpointId: string, limit: number): StoredJob[] {
    return this.list('readyJobs', [endpointId, limit], () =>
      this.tables.readyJobs(endpointId, limit),
    );
  }

  queuedJobs(endpointId: string, limit: number, upTo?: number): StoredJob[] {
    return this.list('queuedJobs', [endpointId, limit, upTo], () =>
      this.tables.queuedJobs(endpointId, limit, upTo),
    );
  }

  jobsOfWorker(endpointId: string, workerId: string): StoredJob[] {
    return this.list('jobsOfWorker', [endpointId, workerId], () =>
      this.tables.jobsOfWorker(endpointId, workerId),
    );
  }

  countLeases(endpointId: string, group?: string): number {
    this.loadLeased();
    const { leased } = this.live;
    return group === undefined ? leased.count(endpointId) : leased.countOfGroup(endpointId, group);
  }

  leasedJobs(): StoredJob[] {
    this.loadLeased();
    const jobs = this.list('leasedJobs', null, () => this.#readAll([...this.live.leased.keys()]));
    return jobs.sort((a, b) => a.position - b.position);
  }

  dueJobs(now: number, limit: number): StoredJob[] {
    this.loadLeased();
    const due = this.list('dueJobs', [now, limit], () => this.#readDue(now, limit));
    return due.sort((a, b) => a.dueAt - b.dueAt || a.position - b.position).slice(0, limit);
  }

  *#readDue(now: number, limit: number): Step<StoredJob[]> {
    const due = yield* this.tables.dueJobs(now, limit);
    return [...due, ...(yield* this.#readAll(this.live.leased.listDue(now, limit)))];
  }

  nextDueAt(): number | undefined {
    this.loadLeased();
    const next = this.list('nextDueAt', null, () => this.tables.nextDueAt());
    const dueAt = Math.min(next ?? Number.POSITIVE_INFINITY, this.live.leased.nextDueAt);
    return dueAt === Number.POSITIVE_INFINITY ? undefined : dueAt;
  }

  *#readAll(keys: readonly JobKey[]): Step<StoredJob[]> {
    const jobs: StoredJob[] = [];
    for (const key of keys) {
      const known = this.live.job(key);
      const job = known === 'unknown' ? yield* this.tables.job(key) : known;
      if (job && job !== 'absent') jobs.push(job);
    }
    return jobs;
  }

  oldestQueuedAt(endpointId: string): number | undefined {
    return this.list('oldestQueuedAt', endpointId, () => this.tables.oldestQueuedAt(endpointId));
  }

  countReady(endpointId: string, limit: number): number {
    return this.list('countReady', [endpointId, limit], () =>
      this.tables.countReady(endpointId, limit),
    );
  }

  outgrownLoads(endpointId: string): OutgrownLoad[] {
    return this.list('outgrownLoads', endpointId, () => this.tables.outgrownLoads(endpointId));
  }

  /** All jobs with a lease are in memory from now on. */
  protected loadLeased(): void {
    if (this.live.leased.isLoaded) return;
    this.live.loadLeased(this.list('leased', null, () => this.tables.leasedJobs()));
  }

  input(key: JobKey): Uint8Array | undefined {
    return this.load('input', nameOf(key), () => this.tables.input(key));
  }

  output(key: JobKey): Uint8Array | undefined {
    return this.load('output', nameOf(key), () => this.tables.output(key));
  }

  outputBytes(key: JobKey): number {
    return this.load('outputBytes', nameOf(key), () => this.tables.outputBytes(key));
  }

  payloadUpTo(
    kind: StagedPayload['kind'],
    key: JobKey,
    maxBytes: number,
  ): Uint8Array | number | undefined {
    return this.load('payloadUpTo', [kind, nameOf(key), maxBytes], () =>
      this.tables.payloadUpTo(kind, key, maxBytes),
    );
  }

  inputsUpTo(
    endpointId: string,
    ids: readonly string[],
    maxBytes: number,
  ): Map<string, Uint8Array | number> {
    return this.load('inputsUpTo', [endpointId, ids, maxBytes], () =>
      this.tables.inputsUpTo(endpointId, ids, maxBytes),
    );
  }

  payloadPart(kind: StagedPayload['kind'], key: JobKey, index: number): Uint8Array | undefined {
    return this.load('payloadPart', [kind, nameOf(key), index], () =>
      this.tables.payloadPart(kind, key, index),
    );
  }

  jobPreview(key: JobKey, maxInputBytes: number): JobPreview | undefined {
    return this.list('jobPreview', [nameOf(key), maxInputBytes], () =>
      this.tables.jobPreview(key, maxInputBytes),
    );
  }

  payloadFile(kind: StagedPayload['kind'], key: JobKey): StagedPayload | undefined {
    return this.load('payloadFile', [kind, nameOf(key)], () => this.tables.payloadFile(kind, key));
  }

  unusedPayloads(limit: number): UnusedPayload[] {
    return this.load('unusedPayloads', limit, () => this.tables.unusedPayloads(limit));
  }

  filesOf(payload: UnusedPayload): StagedPayload[] {
    return this.load('filesOf', payload, () => this.tables.filesOf(payload));
  }

  deliveriesOf(endpointId: string, limit: number): StoredDelivery[] {
    return this.load('deliveriesOf', [endpointId, limit], () =>
      this.tables.deliveriesOf(endpointId, limit),
    );
  }

  chunks(range: ChunkRange): ChunkBatch[] {
    return this.load('chunks', range, () => this.tables.chunks(range));
  }

  log(range: LogRange): Uint8Array {
    return this.load('log', range, () => this.tables.log(range));
  }

  receivers(): (ReceiverKey & { nextAt: number })[] {
    return this.load('receivers', null, () => this.tables.receivers());
  }

  dueDeliveries(due: DueDeliveries): StoredDelivery[] {
    return this.load('dueDeliveries', due, () => this.tables.dueDeliveries(due));
  }

  nextDeliveryAt(receiver: ReceiverKey, after: number): number | undefined {
    return this.load('nextDeliveryAt', [receiver, after], () =>
      this.tables.nextDeliveryAt(receiver, after),
    );
  }

  deliveryPart(key: JobKey, at: number): Uint8Array | undefined {
    return this.load('deliveryPart', [nameOf(key), at], () => this.tables.deliveryPart(key, at));
  }

  countDeliveries(): { endpointId: string; count: number }[] {
    return this.load('countDeliveries', null, () => this.tables.countDeliveries());
  }

  countResources(kind: string): { parent: string; count: number }[] {
    return this.load('countResources', kind, () => this.tables.countResources(kind));
  }

  worker(endpointId: string, id: string): StoredWorker | undefined {
    return this.load('worker', [endpointId, id], () => this.tables.worker(endpointId, id));
  }

  workers(): StoredWorker[] {
    return this.load('workers', null, () => this.tables.workers());
  }

  resource({ id, kind }: ResourceKey): StoredResource | undefined {
    return this.load('resource', [kind, id], () => this.tables.resource({ kind, id }));
  }

  resources(listing: ResourceListing): StoredResource[] {
    return this.load('resources', listing, () => this.tables.resources(listing));
  }

  filePart(key: FileKey, index: number): Uint8Array | undefined {
    return this.load('filePart', [key, index], () => this.tables.filePart(key, index));
  }

  fileParts(key: FileKey): number {
    return this.load('fileParts', key, () => this.tables.fileParts(key));
  }

  versionPart(key: VersionKey, index: number): Uint8Array | undefined {
    return this.load('versionPart', [key, index], () => this.tables.versionPart(key, index));
  }

  versionParts(key: VersionKey): number {
    return this.load('versionParts', key, () => this.tables.versionParts(key));
  }

  versionsWithParts(): VersionKey[] {
    return this.load('versionsWithParts', null, () => this.tables.versionsWithParts());
  }

  keyByHash(hash: string): StoredKey | undefined {
    return this.load('keyByHash', hash, () => this.tables.keyByHash(hash));
  }

  keys(): StoredKey[] {
    return this.load('keys', null, () => this.tables.keys());
  }

  keysOfUser(userId: string): StoredKey[] {
    return this.load('keysOfUser', userId, () => this.tables.keysOfUser(userId));
  }
}

/** Of a job, a delivery: keys are often whole records. */
export function nameOf({ endpointId, id }: JobKey): string {
  return `${endpointId}/${id}`;
}
