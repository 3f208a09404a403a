// The tables of a store on maps. Every change records how to undo it.
// biome-ignore-all lint/correctness/useYield: a step without a database query yields nothing

import { compareRanks, groupOf, isReady } from '../../src/store/live/group-queue.ts';
import { type Counts, noCounts } from '../../src/store/live/live-endpoint.ts';
import type { WantedJobs } from '../../src/store/live/ready-groups.ts';
import type { InlinePayloads } from '../../src/store/sql/job-row.ts';
import {
  type ChunkBatch,
  type ChunkRange,
  type DueDeliveries,
  type EndpointBase,
  type FileKey,
  type FoundJobs,
  hasTags,
  type JobKey,
  type JobPreview,
  type LogRange,
  type OutgrownLoad,
  OWNER,
  type Payload,
  type ReceiverKey,
  type RecordPiece,
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
} from '../../src/store/store.ts';
import { isDeadLetter, outgrownNumber } from '../../src/store/stored-records.ts';
import type {
  AddedRow,
  ChangedRow,
  GroupRange,
  OutgrownRange,
  TableListing,
  TableSearch,
  Tables,
} from '../../src/store/tables.ts';

const COUNTERS = [
  'inQueue',
  'inProgress',
  'completed',
  'failed',
  'cancelled',
  'timedOut',
  'retried',
] as const;

type Chunks = readonly (ChunkBatch & { attempt: number })[];
type LogPieces = readonly { at: number; lines: Uint8Array }[];

/** Origin of an entry for the whole input or output of a removed job. */
const ALL = -1;
/** Payloads of a job up to this size are deleted at once. */
const SMALL_ROWS = 128;

export interface MemoryTablesOptions {
  /** Payloads of a job up to this size are deleted at once. Default 256 KB. */
  smallBytes?: number;
  /** Rows that are written together. Default 1. */
  rowsAtOnce?: number;
}

export class MemoryTables implements Tables {
  readonly rowsAtOnce: number;
  readonly #smallBytes: number;
  readonly #endpoints = new Map<string, StoredEndpoint>();
  readonly #jobs = new Map<string, StoredJob>();
  readonly #inputs = new Map<string, Uint8Array>();
  readonly #outputs = new Map<string, Uint8Array>();
  readonly #staged = new Map<string, { payload: UnusedPayload; parts: Uint8Array[] }>();
  #lastOrigin = 0;
  /** The parts of payloads that were uploaded: each one is read in a turn of its own, as from SQL tables. */
  readonly #parts = new WeakMap<Uint8Array, readonly Uint8Array[]>();
  readonly #chunks = new Map<string, Chunks>();
  readonly #logs = new Map<string, LogPieces>();
  readonly #deliveries = new Map<string, StoredDelivery>();
  readonly #records = new Map<string, readonly Uint8Array[]>();
  readonly #workers = new Map<string, StoredWorker>();
  readonly #resources = new Map<string, StoredResource>();
  readonly #fileParts = new Map<string, readonly Uint8Array[]>();
  readonly #versionParts = new Map<string, { key: VersionKey; parts: readonly Uint8Array[] }>();
  readonly #keys = new Map<string, StoredKey>();
  readonly #changes: { undo: () => void; redo: () => void }[] = [];

  constructor({ rowsAtOnce = 1, smallBytes = 262_144 }: MemoryTablesOptions = {}) {
    this.rowsAtOnce = rowsAtOnce;
    this.#smallBytes = smallBytes;
  }

  /** The changes so far, for `undoTo`. */
  mark(): number {
    return this.#changes.length;
  }

  undoTo(mark: number): void {
    for (const { undo } of this.#changes.splice(mark).reverse()) undo();
  }

  /** Reads without the changes since the last commit. */
  readCommitted<T>(read: () => T): T {
    for (const { undo } of this.#changes.toReversed()) undo();
    try {
      return read();
    } finally {
      for (const { redo } of this.#changes) redo();
    }
  }

  /** All changes since the last commit stay. */
  commit(): void {
    this.#changes.length = 0;
  }

  *endpoint(id: string): Step<StoredEndpoint | undefined> {
    return this.#endpoints.get(id);
  }

  *endpoints(): Step<StoredEndpoint[]> {
    return sortBy([...this.#endpoints.values()], ({ id }) => id);
  }

  *job(key: JobKey): Step<StoredJob | undefined> {
    return this.#jobs.get(nameOf(key));
  }

  *jobByIdempotencyKey(endpointId: string, idempotencyKey: string): Step<StoredJob | undefined> {
    return this.#select(endpointId, (job) => job.idempotencyKey === idempotencyKey)[0];
  }

  *oldestDeadLetters(endpointId: string, limit: number): Step<StoredJob[]> {
    const dead = this.#select(endpointId, isDeadLetter);
    return sortBy(dead, ({ position }) => position)
      .slice(0, limit)
      .map(slim);
  }

  *jobs({ endpointId, status, before, from = 0, limit }: TableListing): Step<StoredJob[]> {
    const isWanted = (job: StoredJob) =>
      (status === undefined || job.status === status) &&
      job.position >= from &&
      job.position < (before ?? Number.MAX_SAFE_INTEGER);
    const found = sortBy(this.#select(endpointId, isWanted), (job) => -job.position);
    return found.slice(0, limit).map(slim);
  }

  *findJobs({ errorCode, from = 0, idPart = '', scan, ...search }: TableSearch): Step<FoundJobs> {
    const { endpointId, limit, status, workerId } = search;
    const isIndexed = (job: StoredJob) =>
      (status === undefined || status === 'COMPLETED' || job.status === status) &&
      job.position < (search.before ?? Number.MAX_SAFE_INTEGER) &&
      job.position >= from;
    const looked = sortBy(this.#select(endpointId, isIndexed), (job) => -job.position).slice(
      0,
      scan,
    );
    const found = looked.filter(
      (job) =>
        (status === undefined || job.status === status) &&
        job.id.includes(idPart) &&
        hasTags(job, search.tags) &&
        (workerId === undefined || (job.lease?.workerId ?? job.workerId) === workerId) &&
        (errorCode === undefined ||
          [job.error, ...job.history].some((error) => error?.code === errorCode)),
    );
    const jobs = found.slice(0, limit);
    const last = looked.length === scan ? looked.at(-1)?.position : undefined;
    const next = found.length > limit ? jobs.at(-1)?.position : last;
    return { jobs: jobs.map(slim), next };
  }

  *readyJobs(endpointId: string, limit: number): Step<StoredJob[]> {
    const ready = this.#select(endpointId, isReady);
    return ready
      .sort((a, b) => b.priority - a.priority || compareNames(a, b) || a.place - b.place)
      .slice(0, limit);
  }

  *readyPriorities(endpointId: string): Step<number[]> {
    const ready = this.#select(endpointId, isReady);
    return [...new Set(ready.map(({ priority }) => priority))].sort((a, b) => b - a);
  }

  *readyGroups({ after, endpointId, limit, priority }: GroupRange): Step<string[]> {
    const ready = this.#select(endpointId, (job) => isReady(job) && job.priority === priority);
    const names = [...new Set(ready.map(groupOf))].sort();
    return names.filter((name) => name > after || (after === '' && name === '')).slice(0, limit);
  }

  *readyJobsOfGroups(
    endpointId: string,
    wanted: readonly WantedJobs[],
    limit: number,
  ): Step<StoredJob[]> {
    return wanted.flatMap(({ from = 0, group, priority }) =>
      this.#select(
        endpointId,
        (job) =>
          isReady(job) && job.priority === priority && groupOf(job) === group && job.place >= from,
      )
        .sort(compareRanks)
        .slice(0, limit),
    );
  }

  *outgrownJobs({ endpointId, from, gpuType, limit }: OutgrownRange): Step<StoredJob[]> {
    const outgrown = this.#select(endpointId, (job) => outgrownNumber(job) === gpuType);
    const behind = outgrown.filter((job) => !from || compareRanks(job, from) >= 0);
    return behind.sort(compareRanks).slice(0, limit);
  }

  *outgrownLoads(endpointId: string): Step<OutgrownLoad[]> {
    const outgrown = this.#select(endpointId, (job) => outgrownNumber(job) > 0);
    const loads = [...Map.groupBy(outgrown, outgrownNumber)].map(([gpuType, jobs]) => {
      const first = jobs.sort(compareRanks).slice(0, 16);
      const oldestQueuedAt = Math.min(...first.map(({ queuedAt }) => queuedAt));
      return { gpuType, waiting: Math.min(jobs.length, 1_000), oldestQueuedAt };
    });
    return sortBy(loads, ({ gpuType }) => gpuType);
  }

  *queuedJobs(endpointId: string, limit: number, upTo = Number.MAX_VALUE): Step<StoredJob[]> {
    const isQueued = (job: StoredJob) => job.status === 'IN_QUEUE' && job.position <= upTo;
    return sortBy(this.#select(endpointId, isQueued), ({ position }) => position).slice(0, limit);
  }

  *jobsOfWorker(endpointId: string, workerId: string): Step<StoredJob[]> {
    const held = this.#select(endpointId, ({ lease }) => lease?.workerId === workerId);
    return sortBy(held, ({ position }) => position);
  }

  *leasedJobs(): Step<StoredJob[]> {
    const leased = [...this.#jobs.values()].filter(({ lease }) => lease !== null);
    return sortBy(leased, (job) => `${job.endpointId} ${job.lease?.workerId}`);
  }

  *dueJobs(now: number, limit: number): Step<StoredJob[]> {
    const due = [...this.#jobs.values()].filter(
      ({ dueAt, lease }) => lease === null && dueAt <= now,
    );
    return sortBy(due, ({ dueAt }) => dueAt).slice(0, limit);
  }

  *nextDueAt(): Step<number | undefined> {
    let next: number | undefined;
    for (const { dueAt, lease } of this.#jobs.values()) {
      if (lease === null) next = Math.min(next ?? dueAt, dueAt);
    }
    return next;
  }

  *input(key: JobKey): Step<Uint8Array | undefined> {
    return this.#inputs.get(nameOf(key));
  }

  *output(key: JobKey): Step<Uint8Array | undefined> {
    return this.#outputs.get(nameOf(key));
  }

  *chunks(range: ChunkRange): Step<ChunkBatch[]> {
    const found: ChunkBatch[] = [];
    let bytes = 0;
    for (const { attempt, ...batch } of this.#chunks.get(nameOf(range)) ?? []) {
      if (attempt !== range.attempt || batch.first + batch.sizes.length <= range.from) continue;
      found.push(batch);
      bytes += batch.bytes.length;
      if (bytes >= range.maxBytes) break;
    }
    return found;
  }

  *outputBytes(key: JobKey): Step<number> {
    return this.#outputs.get(nameOf(key))?.length ?? 0;
  }

  *log({ from, maxBytes, ...key }: LogRange): Step<Uint8Array> {
    const pieces = this.#logs.get(nameOf(key)) ?? [];
    return Buffer.concat(pieces.map(({ lines }) => lines)).subarray(from, from + maxBytes);
  }

  *receivers(): Step<(ReceiverKey & { nextAt: number })[]> {
    const first = new Map<string, ReceiverKey & { nextAt: number }>();
    for (const { receiver, nextAt, userId } of this.#deliveries.values()) {
      const name = `${userId} ${receiver}`;
      const known = first.get(name)?.nextAt ?? nextAt;
      first.set(name, { userId, receiver, nextAt: Math.min(known, nextAt) });
    }
    return sortBy([...first.values()], ({ receiver, userId }) => `${userId} ${receiver}`);
  }

  *dueDeliveries({ now, limit, ...receiver }: DueDeliveries): Step<StoredDelivery[]> {
    const due = this.#deliveriesTo(receiver).filter(({ nextAt }) => nextAt <= now);
    return due.slice(0, limit);
  }

  *nextDeliveryAt(receiver: ReceiverKey, after: number): Step<number | undefined> {
    return this.#deliveriesTo(receiver).find(({ nextAt }) => nextAt > after)?.nextAt;
  }

  *deliveryPart(key: JobKey, at: number): Step<Uint8Array | undefined> {
    return this.#records.get(nameOf(key))?.[at];
  }

  *deliveriesOf(endpointId: string, limit: number): Step<StoredDelivery[]> {
    const own = [...this.#deliveries.values()].filter((each) => each.endpointId === endpointId);
    return sortBy(own, ({ id }) => id).slice(0, limit);
  }

  *countDeliveries(): Step<{ endpointId: string; count: number }[]> {
    const counts = new Map<string, number>();
    for (const { endpointId } of this.#deliveries.values()) {
      counts.set(endpointId, (counts.get(endpointId) ?? 0) + 1);
    }
    const all = [...counts].map(([endpointId, count]) => ({ endpointId, count }));
    return sortBy(all, ({ endpointId }) => endpointId);
  }

  *resource(key: ResourceKey): Step<StoredResource | undefined> {
    return this.#resources.get(nameOfResource(key));
  }

  *countResources(kind: string): Step<{ parent: string; count: number }[]> {
    const ofKind = [...this.#resources.values()].filter((each) => each.kind === kind);
    const byParent = Map.groupBy(ofKind, ({ parent }) => parent);
    const all = [...byParent].map(([parent, { length: count }]) => ({ parent, count }));
    return sortBy(all, ({ parent }) => parent);
  }

  *resources(listing: ResourceListing): Step<StoredResource[]> {
    const { before = Number.MAX_SAFE_INTEGER, kind, limit, parent, userId } = listing;
    const found = [...this.#resources.values()].filter(
      (each) =>
        each.kind === kind &&
        each.position < before &&
        (userId === undefined || each.userId === userId) &&
        (parent === undefined || each.parent === parent),
    );
    return sortBy(found, ({ position }) => -position).slice(0, limit);
  }

  *oldestQueuedAt(endpointId: string): Step<number | undefined> {
    const ready = this.#select(endpointId, isReady);
    const times = ready.map(({ queuedAt }) => queuedAt);
    return times.length === 0 ? undefined : Math.min(...times);
  }

  *countReady(endpointId: string, limit: number): Step<number> {
    const queued = this.#select(endpointId, (job) => job.status === 'IN_QUEUE');
    const ready = queued.filter(isReady).length;
    return ready === queued.length ? ready : Math.min(ready, limit);
  }

  *worker(endpointId: string, id: string): Step<StoredWorker | undefined> {
    return this.#workers.get(nameOf({ endpointId, id }));
  }

  *workers(): Step<StoredWorker[]> {
    return sortBy([...this.#workers.values()], nameOf);
  }

  *keyByHash(hash: string): Step<StoredKey | undefined> {
    return [...this.#keys.values()].find((key) => key.hash === hash);
  }

  *keysOfUser(userId: string): Step<StoredKey[]> {
    return (yield* this.keys()).filter((key) => key.userId === userId);
  }

  *keys(): Step<StoredKey[]> {
    return sortBy(
      sortBy([...this.#keys.values()], ({ id }) => id),
      ({ createdAt }) => createdAt,
    );
  }

  *putEndpoint(endpoint: EndpointBase): Step<void> {
    const known = this.#endpoints.get(endpoint.id);
    const { deleted = false, deployment = null, settings, userId = OWNER } = endpoint;
    const shard = endpoint.shard ?? known?.shard ?? 0;
    const changed = { settings, deployment, deleted, shard };
    const added = { ...endpoint, ...changed, userId, ...noCounts() };
    this.#set(this.#endpoints, endpoint.id, known ? { ...known, ...changed } : added);
  }

  *removeEndpoint(id: string): Step<void> {
    for (const worker of [...this.#workers.values()]) {
      if (worker.endpointId === id) yield* this.removeWorker(id, worker.id);
    }
    for (const delivery of [...this.#deliveries.values()]) {
      if (delivery.endpointId === id) yield* this.removeDelivery(delivery);
    }
    for (const resource of [...this.#resources.values()]) {
      const kinds = ['decision', 'flow', 'flow_ended', 'flow_progress', 'input_schema', 'pause'];
      kinds.push('rate', 'schedule', 'series', 'version');
      const isOf = kinds.includes(resource.kind) && resource.parent === id;
      if (isOf) yield* this.removeResource(resource);
    }
    this.#delete(this.#endpoints, id);
  }

  *putResource(resource: StoredResource): Step<void> {
    const name = nameOfResource(resource);
    const known = this.#resources.get(name);
    this.#set(this.#resources, name, known ? { ...known, body: resource.body } : resource);
  }

  *removeResource(key: ResourceKey): Step<void> {
    this.#delete(this.#resources, nameOfResource(key));
  }

  *versionPart(key: VersionKey, index: number): Step<Uint8Array | undefined> {
    return this.#versionParts.get(nameOfVersion(key))?.parts[index];
  }

  *versionsWithParts(): Step<VersionKey[]> {
    const names = [...this.#versionParts.keys()].toSorted();
    return names.flatMap((name) => this.#versionParts.get(name)?.key ?? []);
  }

  *putVersionPart(key: VersionKey, index: number, part: Uint8Array): Step<void> {
    const name = nameOfVersion(key);
    const { parts } = this.#versionParts.get(name) ?? { parts: [] };
    const { endpointId, version } = key;
    const after = parts.toSpliced(index, 1, part.slice());
    this.#set(this.#versionParts, name, { key: { endpointId, version }, parts: after });
  }

  *versionParts(key: VersionKey): Step<number> {
    return this.#versionParts.get(nameOfVersion(key))?.parts.length ?? 0;
  }

  *removeVersionParts(key: VersionKey, limit: number): Step<void> {
    const name = nameOfVersion(key);
    const known = this.#versionParts.get(name);
    if (!known) return;
    const left = known.parts.slice(0, Math.max(0, known.parts.length - limit));
    if (left.length > 0) this.#set(this.#versionParts, name, { ...known, parts: left });
    else this.#delete(this.#versionParts, name);
  }

  *filePart(key: FileKey, index: number): Step<Uint8Array | undefined> {
    return this.#fileParts.get(nameOf(key))?.[index];
  }

  *fileParts(key: FileKey): Step<number> {
    return this.#fileParts.get(nameOf(key))?.length ?? 0;
  }

  *putFilePart(key: FileKey, index: number, part: Uint8Array): Step<void> {
    const parts = this.#fileParts.get(nameOf(key)) ?? [];
    this.#set(this.#fileParts, nameOf(key), parts.toSpliced(index, 1, part.slice()));
  }

  *removeFileParts(key: FileKey, limit: number): Step<void> {
    const parts = this.#fileParts.get(nameOf(key)) ?? [];
    const left = parts.slice(0, Math.max(0, parts.length - limit));
    if (left.length > 0) this.#set(this.#fileParts, nameOf(key), left);
    else this.#delete(this.#fileParts, nameOf(key));
  }

  *removeKey(id: string): Step<void> {
    this.#delete(this.#keys, id);
  }

  *addJobRows(added: readonly AddedRow[]): Step<void> {
    for (const { job, payloads } of added) yield* this.#addJobRow(job, payloads);
  }

  *#addJobRow(job: StoredJob, { input, output }: InlinePayloads): Step<void> {
    const { endpointId, id, idempotencyKey } = job;
    if (this.#jobs.has(nameOf(job))) throw new Error(`job ${id} exists already`);
    const isTaken = (other: StoredJob) => other.idempotencyKey === idempotencyKey;
    if (idempotencyKey !== null && this.#select(endpointId, isTaken).length > 0) {
      throw new Error(`another job has the idempotency key ${idempotencyKey}`);
    }
    this.#set(this.#jobs, nameOf(job), job);
    if (input) yield* this.putInput(job, input);
    if (output) yield* this.putOutput(job, output);
  }

  *changeJobRows(changes: readonly ChangedRow[]): Step<void> {
    for (const change of changes) yield* this.#changeJobRow(change);
  }

  *#changeJobRow({ after, before, output }: ChangedRow): Step<void> {
    if (!this.#jobs.has(nameOf(before))) throw new Error(`job ${before.id} does not exist`);
    this.#set(this.#jobs, nameOf(after), after);
    if (output) yield* this.putOutput(after, output);
  }

  *removeJobs(jobs: readonly StoredJob[]): Step<void> {
    for (const job of jobs) {
      yield* this.#removePayloads(job);
      this.#delete(this.#jobs, nameOf(job));
    }
  }

  *addCounts(counts: ReadonlyMap<string, Counts>): Step<void> {
    for (const [id, each] of counts) this.#addCounts(id, each);
  }

  #addCounts(endpointId: string, { ...counts }: Counts): void {
    const endpoint = this.#endpoints.get(endpointId);
    if (!endpoint) return;
    for (const counter of COUNTERS) counts[counter] += endpoint[counter];
    this.#set(this.#endpoints, endpointId, { ...endpoint, ...counts });
  }

  *putInput(key: JobKey, input: Payload): Step<void> {
    if (this.#inputs.has(nameOf(key))) throw new Error(`job ${key.id} has an input already`);
    this.#set(this.#inputs, nameOf(key), this.#use(input));
  }

  *replaceInput(key: JobKey, input: Payload): Step<void> {
    this.#delete(this.#inputs, nameOf(key));
    yield* this.putInput(key, input);
  }

  *nextOrigin(): Step<number> {
    return ++this.#lastOrigin;
  }

  *fileOrigin(): Step<number> {
    throw new Error('the store in memory has no files');
  }

  *beginPayload(payload: StagedPayload, part: Uint8Array): Step<void> {
    this.#set(this.#staged, nameOfStaged(payload), { payload, parts: [new Uint8Array(part)] });
  }

  *addPart(payload: StagedPayload, at: number, part: Uint8Array): Step<void> {
    const known = this.#staged.get(nameOfStaged(payload));
    if (!known) return;
    const { parts } = known;
    const bytes = parts.reduce((sum, { length }) => sum + length, 0);
    if (bytes !== at) throw new Error(`part at ${at} of job ${payload.id} follows ${bytes} bytes`);
    const added = [...parts, new Uint8Array(part)];
    this.#set(this.#staged, nameOfStaged(payload), { ...known, parts: added });
  }

  *beginFile(): Step<void> {
    throw new Error('the store in memory has no files');
  }

  *payloadFile(): Step<undefined> {}

  *filesOf(): Step<StagedPayload[]> {
    return [];
  }

  *deleteUnused(payloads: readonly UnusedPayload[], maxBytes: number): Step<void> {
    let left = maxBytes;
    let rows = 1_024;
    for (const payload of payloads) {
      const name = nameOfStaged(payload);
      const parts = [...(this.#staged.get(name)?.parts ?? [])];
      while (parts.length > 0 && left > 0 && rows > 0) {
        left -= parts.shift()?.length ?? 0;
        rows -= 1;
      }
      if (parts.length > 0) this.#set(this.#staged, name, { payload, parts });
      else this.#delete(this.#staged, name);
    }
  }

  *unusedPayloads(limit: number): Step<UnusedPayload[]> {
    return [...this.#staged.values()].slice(0, limit).map(({ payload }) => payload);
  }

  *payloadUpTo(
    kind: StagedPayload['kind'],
    key: JobKey,
    maxBytes: number,
  ): Step<Uint8Array | number | undefined> {
    const payload = (kind === 'input' ? this.#inputs : this.#outputs).get(nameOf(key));
    return payload && payload.length > maxBytes ? payload.length : payload;
  }

  *inputsUpTo(
    endpointId: string,
    ids: readonly string[],
    maxBytes: number,
  ): Step<Map<string, Uint8Array | number>> {
    const inputs = new Map<string, Uint8Array | number>();
    for (const id of ids) {
      const input = yield* this.payloadUpTo('input', { endpointId, id }, maxBytes);
      if (input !== undefined) inputs.set(id, input);
    }
    return inputs;
  }

  *jobPreview(key: JobKey, maxBytes: number): Step<JobPreview | undefined> {
    const job = yield* this.job(key);
    const input = yield* this.payloadUpTo('input', key, maxBytes);
    return job && { error: job.error, notes: job.notes, input: input ?? 0 };
  }

  *payloadPart(
    kind: StagedPayload['kind'],
    key: JobKey,
    index: number,
  ): Step<Uint8Array | undefined> {
    // A copy: the caller may detach its memory.
    const payload = (kind === 'input' ? this.#inputs : this.#outputs).get(nameOf(key));
    const parts = payload && (this.#parts.get(payload) ?? [payload]);
    return parts?.[index]?.slice();
  }

  /** The bytes of a payload that its job gets. */
  #use(payload: Payload): Uint8Array {
    if (payload instanceof Uint8Array) return new Uint8Array(payload);
    const staged = this.#staged.get(nameOfStaged(payload));
    if (!staged) throw new Error(`the ${payload.kind} of job ${payload.id} has been deleted`);
    this.#delete(this.#staged, nameOfStaged(payload));
    const used = Buffer.concat(staged.parts);
    this.#parts.set(used, staged.parts);
    return used;
  }

  *#removePayloads(job: StoredJob): Step<void> {
    const name = nameOf(job);
    this.#drop('input', job, this.#inputs.get(name));
    this.#delete(this.#inputs, name);
    this.#drop('output', job, this.#outputs.get(name));
    this.#delete(this.#outputs, name);
    yield* this.dropChunks(job);
    this.#delete(this.#logs, name);
  }

  #drop(kind: StagedPayload['kind'], { endpointId, id }: JobKey, payload?: Uint8Array): void {
    if (payload) this.#addUnused({ kind, endpointId, id, origin: ALL }, [payload]);
  }

  /** Small payloads need no entry. */
  #addUnused(payload: UnusedPayload, parts: readonly Uint8Array[]): void {
    const bytes = parts.reduce((sum, { length }) => sum + length, 0);
    if (parts.length < SMALL_ROWS && bytes <= this.#smallBytes) return;
    const name = nameOfStaged(payload);
    const known = this.#staged.get(name)?.parts ?? [];
    this.#set(this.#staged, name, { payload, parts: [...known, ...parts] });
  }

  *putOutput(key: JobKey, output: Payload): Step<void> {
    this.#set(this.#outputs, nameOf(key), this.#use(output));
  }

  *addOutput(key: JobKey, output: Payload): Step<void> {
    if (this.#outputs.has(nameOf(key))) throw new Error(`job ${key.id} has an output already`);
    yield* this.putOutput(key, output);
  }

  *dropOutput(key: JobKey): Step<void> {
    this.#delete(this.#outputs, nameOf(key));
  }

  *appendChunks(
    { attempt, ...key }: JobKey & { attempt: number },
    { first, sizes, bytes }: ChunkBatch,
  ): Step<void> {
    const before = this.#chunks.get(nameOf(key)) ?? [];
    if (before.some((batch) => batch.attempt === attempt && batch.first === first)) {
      throw new Error(`chunk ${first} of attempt ${attempt} is there already`);
    }
    const batch = { attempt, first, sizes: [...sizes], bytes: new Uint8Array(bytes) };
    this.#set(this.#chunks, nameOf(key), [...before, batch]);
  }

  *dropChunks(key: JobKey): Step<void> {
    const { endpointId, id } = key;
    const batches = this.#chunks.get(nameOf(key)) ?? [];
    const origin = Math.max(...batches.map(({ attempt }) => attempt));
    const parts = batches.map(({ bytes }) => bytes);
    if (parts.length > 0) this.#addUnused({ kind: 'chunks', endpointId, id, origin }, parts);
    this.#delete(this.#chunks, nameOf(key));
  }

  *appendLog(key: JobKey, at: number, lines: Uint8Array): Step<void> {
    const piece = { at, lines: new Uint8Array(lines) };
    this.#set(this.#logs, nameOf(key), [...(this.#logs.get(nameOf(key)) ?? []), piece]);
  }

  *insertDelivery(delivery: StoredDelivery, record: readonly RecordPiece[]): Step<void> {
    this.#set(this.#deliveries, nameOf(delivery), delivery);
    const parts = record.map((piece) =>
      piece instanceof Uint8Array ? piece : this.#outputs.get(nameOf(piece.outputOf)),
    );
    const copies = parts.filter((part) => part !== undefined).map((part) => new Uint8Array(part));
    this.#set(this.#records, nameOf(delivery), copies);
  }

  *postponeDelivery({ nextAt, attempts, ...key }: StoredDelivery): Step<void> {
    const known = this.#deliveries.get(nameOf(key));
    if (known) this.#set(this.#deliveries, nameOf(key), { ...known, nextAt, attempts });
  }

  *removeDelivery(key: JobKey): Step<void> {
    this.#delete(this.#deliveries, nameOf(key));
    this.#delete(this.#records, nameOf(key));
  }

  *putWorker(worker: StoredWorker): Step<void> {
    this.#set(this.#workers, nameOf(worker), worker);
  }

  *removeWorker(endpointId: string, id: string): Step<void> {
    this.#delete(this.#workers, nameOf({ endpointId, id }));
  }

  *putKey(key: StoredKey): Step<void> {
    this.#set(this.#keys, key.id, key);
  }

  #deliveriesTo({ receiver, userId }: ReceiverKey): StoredDelivery[] {
    const all = [...this.#deliveries.values()].filter(
      (delivery) => delivery.receiver === receiver && delivery.userId === userId,
    );
    return sortBy(all, ({ nextAt }) => nextAt);
  }

  #select(endpointId: string, isWanted: (job: StoredJob) => boolean): StoredJob[] {
    const found: StoredJob[] = [];
    for (const job of this.#jobs.values()) {
      if (job.endpointId === endpointId && isWanted(job)) found.push(job);
    }
    return found;
  }

  #set<T>(table: Map<string, T>, name: string, value: T): void {
    const before = table.get(name);
    const undo = () => (before === undefined ? table.delete(name) : table.set(name, before));
    const redo = () => table.set(name, value);
    this.#changes.push({ undo, redo });
    redo();
  }

  #delete<T>(table: Map<string, T>, name: string): void {
    const before = table.get(name);
    if (before === undefined) return;
    const redo = () => table.delete(name);
    this.#changes.push({ undo: () => table.set(name, before), redo });
    redo();
  }
}

function nameOf({ endpointId, id }: JobKey): string {
  return `${endpointId}/${id}`;
}

function nameOfStaged({ kind, origin, ...key }: UnusedPayload): string {
  return `${kind} ${nameOf(key)} ${origin}`;
}

/** In the order of the SQL tables. */
function nameOfVersion({ endpointId, version }: VersionKey): string {
  return `${endpointId} ${String(version).padStart(9, '0')}`;
}

function nameOfResource({ id, kind }: ResourceKey): string {
  return `${kind}/${id}`;
}

function compareNames(a: StoredJob, b: StoredJob): number {
  const [left, right] = [groupOf(a), groupOf(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** The array itself, in ascending order; equal ones keep theirs. */
function sortBy<T, K extends number | string>(values: T[], keyOf: (value: T) => K): T[] {
  return values.sort((a, b) => {
    const [left, right] = [keyOf(a), keyOf(b)];
    return left < right ? -1 : left > right ? 1 : 0;
  });
}

/** As lists give it. */
function slim(job: StoredJob): StoredJob {
  const format = job.attachment?.format ?? null;
  const attachment = format === null ? null : { format, handlerData: null };
  const slim = { error: null, history: [], notes: [], progress: null, usage: null };
  return { ...job, ...slim, attachment };
}
