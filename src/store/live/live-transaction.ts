// The verbs that write. An operation collects its changes; when it has returned, jobs change in memory, and their rows
// are written once, with the commit.
import { INLINE_BYTES } from '../sql/payload-parts.ts';
import type {
  ChunkBatch,
  EndpointBase,
  FileKey,
  JobKey,
  Payload,
  RecordPiece,
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
  TakeableJobs,
  TakeableRequest,
  Transaction,
  UnusedPayload,
  UploadedPayload,
  VersionKey,
} from '../store.ts';
import { LiveReader, nameOf, type Result } from './live-reader.ts';
import { OperationChanges } from './operation-changes.ts';
import type { Need } from './ready-groups.ts';
import {
  findOutgrown,
  type LimitedRequest,
  loadOutgrown,
  mergeTakeable,
  readNeeded,
} from './takeable-jobs.ts';

/**
 * Jobs of an endpoint that one commit reads in search of takeable ones: some milliseconds. Hundreds of takes may share
 * a commit, and each would go on where the one before it has stopped.
 */
const MAX_TAKEABLE_ROWS = 1_024;
/** Searches of one operation that has found jobs: after a start, each priority needs two. */
const MAX_SEARCHES = 24;

/** For one operation. The commit ends with `LiveJobs.write`. */
export class LiveTransaction extends LiveReader implements Transaction {
  /** Searches in the database, in all runs of the operation. */
  #searches = 0;
  #changes = new OperationChanges();

  /** The steps of the operation, which has changed nothing until it returns. */
  *commit<T>(operation: (tx: Transaction) => T): Step<Result<T>> {
    const result = yield* this.run(() => {
      this.#changes = new OperationChanges();
      return operation(this);
    });
    if ('value' in result) for (const step of this.#changes.steps) yield* step();
    return result;
  }

  #change(step: () => Step<void>): void {
    this.#changes.steps.push(step);
  }

  protected override writeBack(): Step<void> {
    return this.live.write();
  }

  /** @throws Error if the operation has changed records of the list: the list would not show the changes */
  protected override list<T>(verb: string, args: unknown, read: () => Step<T>): T {
    this.#changes.refuseJobs(verb);
    return super.list(verb, args, read);
  }

  override endpoint(id: string): StoredEndpoint | undefined {
    this.#changes.refuseLate('endpoint');
    return super.endpoint(id);
  }

  override endpoints(): StoredEndpoint[] {
    this.#changes.refuseLate('endpoint');
    return super.endpoints();
  }

  override job(key: JobKey): StoredJob | undefined {
    return this.#changes.job(key, () => super.job(key));
  }

  override jobByIdempotencyKey(endpointId: string, idempotencyKey: string): StoredJob | undefined {
    const found =
      this.#changes.newJob(endpointId, idempotencyKey) ??
      super.jobByIdempotencyKey(endpointId, idempotencyKey);
    return found && this.#changes.job(found, () => found);
  }

  override resource(key: ResourceKey): StoredResource | undefined {
    return this.#changes.resource(key, () => super.resource(key));
  }

  override resources(listing: ResourceListing): StoredResource[] {
    this.#changes.refuseLate(listing.kind);
    return super.resources(listing);
  }

  override keyByHash(hash: string): StoredKey | undefined {
    this.#changes.refuseLate('key');
    return super.keyByHash(hash);
  }

  override keys(): StoredKey[] {
    this.#changes.refuseLate('key');
    return super.keys();
  }

  override keysOfUser(userId: string): StoredKey[] {
    this.#changes.refuseLate('key');
    return super.keysOfUser(userId);
  }

  insertJob(job: StoredJob, input: Payload): void {
    this.#changes.addJob(job);
    this.#change(() => this.#insert(job, input));
  }

  *#insert(job: StoredJob, input: Payload): Step<void> {
    const small = input instanceof Uint8Array && input.length <= INLINE_BYTES ? input : undefined;
    if (!small) yield* this.tables.putInput(job, input);
    this.live.change(job.endpointId, { before: undefined, after: job, retried: 0 });
    if (!small) {
      // An ID that the caller has chosen may come again with another input.
      this.live.inputs.delete(job);
      return;
    }
    this.live.addPayloads(job, { input: small });
    this.live.inputs.put(job, small);
  }

  override readyJobs(endpointId: string, limit: number): StoredJob[] {
    this.#changes.refuseJobs('readyJobs');
    return super.readyJobs(endpointId, limit);
  }

  protected override loadLeased(): void {
    this.#changes.refuseJobs('leased jobs');
    super.loadLeased();
  }

  takeableJobs(request: TakeableRequest): TakeableJobs {
    this.#changes.refuseJobs('takeableJobs');
    const { acceptsOutgrown, endpointId, gate, limit, now } = request;
    const { groupLimit = Number.POSITIVE_INFINITY } = request;
    const live = this.live.search(endpointId);
    if (request.groupLimit !== undefined) this.loadLeased();
    const ready = this.#findReady({ endpointId, groupLimit, gate, limit, now });
    if (!acceptsOutgrown) return ready;
    live.outgrown ??= this.list('outgrownTypes', endpointId, () =>
      loadOutgrown(this.tables, endpointId),
    );
    const gpuTypes = [...live.outgrown].filter(acceptsOutgrown);
    if (gpuTypes.length === 0) return ready;
    const capacity = (group: string) => live.capacity(group);
    const search = { gpuTypes, limit, capacity, maxRows: MAX_TAKEABLE_ROWS };
    const outgrown = this.list('outgrownJobs', [endpointId, gpuTypes, limit], () =>
      findOutgrown(this.tables, live, search),
    );
    return mergeTakeable(ready, outgrown, { limit, capacity });
  }

  #findReady(request: LimitedRequest): TakeableJobs {
    const { endpointId } = request;
    const { ready } = this.live.search(endpointId);
    if (ready.lacksRuns) {
      this.loadLeased();
      ready.addRuns(this.live.leased.ofEndpoint(endpointId));
    }
    const { isBlocked, jobs, need } = this.live.takeableJobs(request);
    const isSpent = this.live.searchedRows(endpointId) >= MAX_TAKEABLE_ROWS;
    if (need && !isSpent && (this.#searches < MAX_SEARCHES || jobs.length === 0)) {
      this.list('neededJobs', [endpointId, need], () => this.#loadNeeded(endpointId, need));
    }
    return { jobs, isBlocked, hasMore: need !== undefined };
  }

  /** Into the memory at once: the next run may need other groups, because groups that have used as much have no fixed order. */
  *#loadNeeded(endpointId: string, need: Need): Step<void> {
    this.live.loadNeeded(endpointId, need, yield* readNeeded(this.tables, endpointId, need));
    this.#searches += 1;
  }

  override input(key: JobKey): Uint8Array | undefined {
    this.#changes.refusePayload('input', key);
    return this.live.inputs.find(key) ?? this.live.payloads(key).input ?? super.input(key);
  }

  override payloadUpTo(
    kind: StagedPayload['kind'],
    key: JobKey,
    maxBytes: number,
  ): Uint8Array | number | undefined {
    if (kind === 'input') this.#changes.refusePayload(kind, key);
    const recent = kind === 'input' ? this.live.inputs.find(key) : this.#changes.output(key);
    const known = recent ?? this.live.payloads(key)[kind];
    return known ?? super.payloadUpTo(kind, key, maxBytes);
  }

  override inputsUpTo(
    endpointId: string,
    ids: readonly string[],
    maxBytes: number,
  ): Map<string, Uint8Array | number> {
    const inputs = new Map<string, Uint8Array>();
    for (const id of ids) {
      const key = { endpointId, id };
      this.#changes.refusePayload('input', key);
      const known = this.live.inputs.find(key) ?? this.live.payloads(key).input;
      if (known) inputs.set(id, known);
    }
    const others = ids.filter((id) => !inputs.has(id));
    if (others.length === 0) return inputs;
    return new Map([...inputs, ...super.inputsUpTo(endpointId, others, maxBytes)]);
  }

  override output(key: JobKey): Uint8Array | undefined {
    this.#changes.refusePayload('output', key);
    return this.live.payloads(key).output ?? super.output(key);
  }

  override outputBytes(key: JobKey): number {
    const own = this.#changes.output(key);
    if (own !== undefined) return typeof own === 'number' ? own : own.length;
    return this.live.payloads(key).output?.length ?? super.outputBytes(key);
  }

  saveJob(before: StoredJob, after: StoredJob, retried: number): void {
    this.#changes.putJob(after, after);
    this.#change(() => this.#save(before, after, retried));
  }

  // biome-ignore lint/correctness/useYield: the row is written with the commit
  *#save(before: StoredJob, after: StoredJob, retried: number): Step<void> {
    this.live.change(after.endpointId, { before, after, retried });
    // After its lease a job seldom needs its input again.
    if (after.lease && !before.lease) this.live.inputs.delete(after);
  }

  removeJob(job: StoredJob): void {
    this.#changes.putJob(job, undefined);
    this.#change(() => this.#remove(job));
  }

  *#remove(job: StoredJob): Step<void> {
    // Its payloads are removed with its row.
    if (this.live.isNew(job)) yield* this.writeBack();
    const known = this.live.job(job);
    const before = typeof known === 'string' ? job : known;
    this.live.change(job.endpointId, { before, after: undefined, retried: 0 });
    if (this.live.unwritten.hasManyRemoved) yield* this.writeBack();
  }

  putEndpoint(endpoint: EndpointBase): void {
    this.#changes.note('endpoint');
    this.#change(() => this.#putEndpoint(endpoint));
  }

  *#putEndpoint(endpoint: EndpointBase): Step<void> {
    yield* this.tables.putEndpoint(endpoint);
    this.live.forgetEndpoint(endpoint.id);
  }

  removeEndpoint(id: string): void {
    this.#changes.note('endpoint');
    this.#change(() => this.#removeEndpoint(id));
  }

  *#removeEndpoint(id: string): Step<void> {
    yield* this.writeBack();
    yield* this.tables.removeEndpoint(id);
    this.live.remove(id);
  }

  removeDelivery(key: JobKey): void {
    this.#change(() => this.#removeDelivery(key));
  }

  /** Whether the output that the record refers to is still needed depends on the row of its job. */
  *#removeDelivery(key: JobKey): Step<void> {
    yield* this.writeBack();
    yield* this.tables.removeDelivery(key);
  }

  putOutput(key: JobKey, output: Payload): void {
    this.#changes.putOutput(key, output);
    this.#change(() => this.#putOutput(key, output));
  }

  *#putOutput(key: JobKey, output: Payload): Step<void> {
    const isSmall = output instanceof Uint8Array && output.length <= INLINE_BYTES;
    if (isSmall && this.live.addPayloads(key, { output })) return;
    const hasNone = this.live.noteOutput(key);
    this.live.addPayloads(key, { output: undefined });
    if (hasNone) yield* this.tables.addOutput(key, output);
    else yield* this.tables.putOutput(key, output);
  }

  replaceInput(key: JobKey, input: Payload): void {
    this.#change(() => this.#replaceInput(key, input));
  }

  *#replaceInput(key: JobKey, input: Payload): Step<void> {
    yield* this.writeBack();
    this.live.inputs.delete(key);
    yield* this.tables.replaceInput(key, input);
  }

  dropOutput(key: JobKey): void {
    this.#changes.putOutput(key, undefined);
    this.#change(() => this.#dropOutput(key));
  }

  *#dropOutput(key: JobKey): Step<void> {
    this.live.addPayloads(key, { output: undefined });
    yield* this.tables.dropOutput(key);
  }

  appendChunks(key: JobKey & { attempt: number }, batch: ChunkBatch): void {
    this.#change(() => this.tables.appendChunks(key, batch));
  }

  beginPayload(kind: StagedPayload['kind'], key: JobKey, part: Uint8Array): UploadedPayload {
    const name = [kind, nameOf(key)];
    const origin = this.load('nextOrigin', name, () => this.tables.nextOrigin(kind, key));
    const payload = { kind, endpointId: key.endpointId, id: key.id, origin };
    this.#change(() => this.tables.beginPayload(payload, part));
    return { ...payload, bytes: part.length };
  }

  addPart(payload: StagedPayload, at: number, part: Uint8Array): void {
    this.#change(() => this.tables.addPart(payload, at, part));
  }

  beginFile(kind: StagedPayload['kind'], key: JobKey, bytes: number): UploadedPayload {
    const name = [kind, nameOf(key)];
    const origin = this.load('fileOrigin', name, () => this.tables.fileOrigin(kind, key));
    const payload = { kind, endpointId: key.endpointId, id: key.id, origin };
    this.#change(() => this.tables.beginFile(payload, bytes));
    return { ...payload, bytes };
  }

  deleteUnused(payloads: readonly UnusedPayload[], maxBytes: number): void {
    this.#change(() => this.tables.deleteUnused(payloads, maxBytes));
  }

  dropChunks(key: JobKey): void {
    this.#change(() => this.tables.dropChunks(key));
  }

  appendLog(key: JobKey, at: number, lines: Uint8Array): void {
    this.#change(() => this.tables.appendLog(key, at, lines));
  }

  insertDelivery(delivery: StoredDelivery, record: readonly RecordPiece[]): void {
    this.#change(() => this.#insertDelivery(delivery, record));
  }

  /** A small output that this commit writes becomes a part of the record. */
  #insertDelivery(delivery: StoredDelivery, record: readonly RecordPiece[]): Step<void> {
    const pieces = record.map((piece) =>
      piece instanceof Uint8Array ? piece : (this.live.payloads(piece.outputOf).output ?? piece),
    );
    return this.tables.insertDelivery(delivery, pieces);
  }

  postponeDelivery(delivery: StoredDelivery): void {
    this.#change(() => this.tables.postponeDelivery(delivery));
  }

  override worker(endpointId: string, id: string): StoredWorker | undefined {
    this.#changes.refuseLate('worker');
    return super.worker(endpointId, id);
  }

  override workers(): StoredWorker[] {
    this.#changes.refuseLate('worker');
    return super.workers();
  }

  putWorker(worker: StoredWorker): void {
    this.#changes.note('worker');
    this.#change(() => this.tables.putWorker(worker));
  }

  removeWorker(endpointId: string, id: string): void {
    this.#changes.note('worker');
    this.#change(() => this.tables.removeWorker(endpointId, id));
  }

  putResource(resource: StoredResource): void {
    this.#changes.putResource(resource, resource);
    this.#change(() => this.tables.putResource(resource));
  }

  removeResource(key: ResourceKey): void {
    this.#changes.putResource(key, undefined);
    this.#change(() => this.tables.removeResource(key));
  }

  putVersionPart(key: VersionKey, index: number, part: Uint8Array): void {
    this.#change(() => this.tables.putVersionPart(key, index, part));
  }

  removeVersionParts(key: VersionKey, limit: number): void {
    this.#change(() => this.tables.removeVersionParts(key, limit));
  }

  putFilePart(key: FileKey, index: number, part: Uint8Array): void {
    this.#change(() => this.tables.putFilePart(key, index, part));
  }

  removeFileParts(key: FileKey, limit: number): void {
    this.#change(() => this.tables.removeFileParts(key, limit));
  }

  putKey(key: StoredKey): void {
    this.#changes.note('key');
    this.#change(() => this.tables.putKey(key));
  }

  removeKey(id: string): void {
    this.#changes.note('key');
    this.#change(() => this.tables.removeKey(id));
  }
}
