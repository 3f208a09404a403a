// The verbs that write. An operation collects its changes; when it has returned, jobs change in memory, and their rows
// are written once, with the commit.
import { INLINE_BYTES } from '../sql/payload-parts.ts';
import {
  type ChunkBatch,
  type EndpointBase,
  type JobKey,
  NEXT_TURN,
  type Payload,
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
  type TakeableJobs,
  type TakeableRequest,
  type Transaction,
  type TurnKey,
  type UnusedPayload,
  type UploadedPayload,
  type VersionKey,
} from '../store.ts';
import { LiveReader, nameOf, type Result } from './live-reader.ts';
import {
  findOutgrown,
  type LimitedRequest,
  loadOutgrown,
  mergeTakeable,
  type Need,
} from './takeable-jobs.ts';

/**
 * Jobs of an endpoint that one commit reads in search of takeable ones: some milliseconds. Hundreds of takes may share
 * a commit, and each would go on where the one before it has stopped.
 */
const MAX_TAKEABLE_ROWS = 1_024;

/** For one operation. The commit ends with `LiveJobs.write`. */
export class LiveTransaction extends LiveReader implements Transaction {
  #changes: (() => Step<void>)[] = [];
  /** In all runs of the operation. */
  #searchedRows = 0;
  /** What the operation has changed so far, where it may look: jobs by endpoint and ID. */
  #jobs: Map<string, StoredJob | undefined> | undefined;
  /** New jobs by endpoint and idempotency key. */
  #keys: Map<string, StoredJob> | undefined;
  /** Jobs whose input is new. */
  #inputs: Set<string> | undefined;
  #outputs: Map<string, Payload | undefined> | undefined;
  #resources: Map<string, StoredResource | undefined> | undefined;
  /** Kinds of these, and `endpoint`, `key`, `worker`. */
  #kinds: Set<string> | undefined;

  /** The steps of the operation, which has changed nothing until it returns. */
  *commit<T>(operation: (tx: Transaction) => T): Step<Result<T>> {
    const result = yield* this.run(() => {
      this.#begin();
      return operation(this);
    });
    if ('value' in result) for (const change of this.#changes) yield* change();
    return result;
  }

  #change(change: () => Step<void>): void {
    this.#changes.push(change);
  }

  #begin(): void {
    this.#changes = [];
    this.#jobs = undefined;
    this.#keys = undefined;
    this.#inputs = undefined;
    this.#outputs = undefined;
    this.#resources = undefined;
    this.#kinds = undefined;
  }

  #noteJob(key: JobKey, now: StoredJob | undefined): void {
    this.#jobs ??= new Map();
    this.#jobs.set(nameOf(key), now);
  }

  #noteOutput(key: JobKey, output: Payload | undefined): void {
    this.#outputs ??= new Map();
    this.#outputs.set(nameOf(key), output);
  }

  #noteKind(kind: string): void {
    this.#kinds ??= new Set();
    this.#kinds.add(kind);
  }

  protected override writeBack(): Step<void> {
    return this.live.write();
  }

  /** @throws Error if the operation has changed what it wants listed: the list would not show it */
  protected override list<T>(verb: string, args: unknown, read: () => Step<T>): T {
    this.#refuseJobs(verb);
    return super.list(verb, args, read);
  }

  #refuseJobs(verb: string): void {
    if (this.#jobs) throw readLate(verb);
  }

  override endpoint(id: string): StoredEndpoint | undefined {
    this.#refuseLate('endpoint');
    return super.endpoint(id);
  }

  override endpoints(): StoredEndpoint[] {
    this.#refuseLate('endpoint');
    return super.endpoints();
  }

  override job(key: JobKey): StoredJob | undefined {
    const name = this.#jobs && nameOf(key);
    return name !== undefined && this.#jobs?.has(name) ? this.#jobs.get(name) : super.job(key);
  }

  override jobByIdempotencyKey(endpointId: string, idempotencyKey: string): StoredJob | undefined {
    const own = this.#keys?.get(`${endpointId}/${idempotencyKey}`);
    const found = own ?? super.jobByIdempotencyKey(endpointId, idempotencyKey);
    const name = found && this.#jobs && nameOf(found);
    return name !== undefined && this.#jobs?.has(name) ? this.#jobs.get(name) : found;
  }

  override resource(key: ResourceKey): StoredResource | undefined {
    const name = this.#resources && nameResource(key);
    return name !== undefined && this.#resources?.has(name)
      ? this.#resources.get(name)
      : super.resource(key);
  }

  override resources(listing: ResourceListing): StoredResource[] {
    this.#refuseLate(listing.kind);
    return super.resources(listing);
  }

  override keyByHash(hash: string): StoredKey | undefined {
    this.#refuseLate('key');
    return super.keyByHash(hash);
  }

  override keys(): StoredKey[] {
    this.#refuseLate('key');
    return super.keys();
  }

  override keysOfUser(userId: string): StoredKey[] {
    this.#refuseLate('key');
    return super.keysOfUser(userId);
  }

  #refuseLate(kind: string): void {
    if (this.#kinds?.has(kind)) throw readLate(kind);
  }

  insertJob(job: StoredJob, input: Payload): void {
    this.#noteJob(job, job);
    this.#inputs ??= new Set();
    this.#inputs.add(nameOf(job));
    if (job.idempotencyKey !== null) {
      this.#keys ??= new Map();
      this.#keys.set(`${job.endpointId}/${job.idempotencyKey}`, job);
    }
    this.#change(() => this.#insert(job, input));
  }

  *#insert(job: StoredJob, input: Payload): Step<void> {
    const small = input instanceof Uint8Array && input.length <= INLINE_BYTES ? input : undefined;
    yield* this.#giveTurn(job);
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

  /** The object is the operation's own: nobody else has it before the operation returns. */
  *#giveTurn(job: StoredJob): Step<void> {
    yield* this.#loadTurns(job);
    if (job.turn === NEXT_TURN) job.turn = yield* this.#nextTurn(job);
  }

  /** Before the first change of a job, which changes the turns. */
  *#loadTurns({ endpointId }: Pick<JobKey, 'endpointId'>): Step<void> {
    if (this.live.hasTurns(endpointId)) return;
    this.live.loadTurns(endpointId, yield* this.tables.turns(endpointId));
  }

  *#nextTurn(key: TurnKey): Step<number> {
    const known = this.live.nextTurn(key);
    if (known !== undefined) return known;
    yield* this.writeBack();
    this.live.learnTurn(key, yield* this.tables.lastTurn(key));
    const turn = this.live.nextTurn(key);
    if (turn === undefined) throw new Error(`the turn of group ${key.group} is still unknown`);
    return turn;
  }

  override readyJobs(endpointId: string, limit: number): StoredJob[] {
    this.#refuseJobs('readyJobs');
    return super.readyJobs(endpointId, limit);
  }

  protected override loadLeased(): void {
    this.#refuseJobs('leased jobs');
    super.loadLeased();
  }

  takeableJobs(request: TakeableRequest): TakeableJobs {
    this.#refuseJobs('takeableJobs');
    const { acceptsOutgrown, endpointId, groupLimit, limit } = request;
    if (groupLimit !== undefined) this.loadLeased();
    const ready: TakeableJobs =
      groupLimit === undefined
        ? { jobs: this.readyJobs(endpointId, limit), isBlocked: false, hasMore: false }
        : this.#findReady({ endpointId, groupLimit, limit });
    if (!acceptsOutgrown) return ready;
    const live = this.live.search(endpointId);
    live.outgrown ??= this.list('outgrownTypes', endpointId, () =>
      loadOutgrown(this.tables, endpointId),
    );
    const gpuTypes = [...live.outgrown].filter(acceptsOutgrown);
    if (gpuTypes.length === 0) return ready;
    const capacity = (group: string) => (groupLimit === undefined ? limit : live.capacity(group));
    const search = { gpuTypes, limit, capacity, maxRows: MAX_TAKEABLE_ROWS };
    const outgrown = this.list('outgrownJobs', [endpointId, gpuTypes, limit], () =>
      findOutgrown(this.tables, live, search),
    );
    return mergeTakeable(ready, outgrown, { limit, capacity });
  }

  #findReady(request: LimitedRequest): TakeableJobs {
    const { endpointId } = request;
    for (;;) {
      const { isBlocked, jobs, need } = this.live.takeableJobs(request);
      if (!need) return { jobs, isBlocked, hasMore: false };
      const isSpent = this.live.searchedRows(endpointId) >= MAX_TAKEABLE_ROWS;
      const isOver = isSpent || (this.#searchedRows > 0 && jobs.length > 0);
      if (isOver) return { jobs, isBlocked, hasMore: true };
      const found = this.list('neededJobs', [endpointId, need], () =>
        this.#readNeeded(endpointId, need),
      );
      this.live.loadNeeded(endpointId, need, found);
      this.#searchedRows += need.limit;
    }
  }

  #readNeeded(endpointId: string, { from, limit, ofGroup }: Need): Step<StoredJob[]> {
    if (ofGroup !== undefined) return this.tables.readyJobsOfGroup(endpointId, ofGroup, limit);
    if (from) return this.tables.readyJobsFrom(endpointId, from, limit);
    return this.tables.readyJobs(endpointId, limit);
  }

  override input(key: JobKey): Uint8Array | undefined {
    if (this.#inputs?.has(nameOf(key))) throw readLate('input');
    return this.live.inputs.find(key) ?? this.live.payloads(key).input ?? super.input(key);
  }

  override payloadUpTo(
    kind: StagedPayload['kind'],
    key: JobKey,
    maxBytes: number,
  ): Uint8Array | number | undefined {
    const own = kind === 'input' ? this.#inputs : this.#outputs;
    if (own?.has(nameOf(key))) throw readLate(kind);
    const recent = kind === 'input' ? this.live.inputs.find(key) : undefined;
    const known = recent ?? this.live.payloads(key)[kind];
    return known ?? super.payloadUpTo(kind, key, maxBytes);
  }

  override output(key: JobKey): Uint8Array | undefined {
    if (this.#outputs?.has(nameOf(key))) throw readLate('output');
    return this.live.payloads(key).output ?? super.output(key);
  }

  override outputBytes(key: JobKey): number {
    const name = this.#outputs && nameOf(key);
    if (name !== undefined && this.#outputs?.has(name)) return sizeOf(this.#outputs.get(name));
    return this.live.payloads(key).output?.length ?? super.outputBytes(key);
  }

  saveJob(before: StoredJob, after: StoredJob, retried: number): void {
    this.#noteJob(after, after);
    this.#change(() => this.#save(before, after, retried));
  }

  *#save(before: StoredJob, after: StoredJob, retried: number): Step<void> {
    yield* this.#giveTurn(after);
    this.live.change(after.endpointId, { before, after, retried });
    // After its lease a job seldom needs its input again.
    if (after.lease && !before.lease) this.live.inputs.delete(after);
  }

  removeJob(job: StoredJob): void {
    this.#noteJob(job, undefined);
    this.#change(() => this.#remove(job));
  }

  *#remove(job: StoredJob): Step<void> {
    yield* this.#loadTurns(job);
    // Its payloads are removed with its row.
    if (this.live.isNew(job)) yield* this.writeBack();
    const known = this.live.job(job);
    const before = typeof known === 'string' ? job : known;
    this.live.change(job.endpointId, { before, after: undefined, retried: 0 });
    if (this.live.unwritten.hasManyRemoved) yield* this.writeBack();
  }

  putEndpoint(endpoint: EndpointBase): void {
    this.#noteKind('endpoint');
    this.#change(() => this.#putEndpoint(endpoint));
  }

  *#putEndpoint(endpoint: EndpointBase): Step<void> {
    yield* this.tables.putEndpoint(endpoint);
    this.live.forgetEndpoint(endpoint.id);
  }

  removeEndpoint(id: string): void {
    this.#noteKind('endpoint');
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
    this.#noteOutput(key, output);
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

  dropOutput(key: JobKey): void {
    this.#noteOutput(key, undefined);
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
    this.#refuseLate('worker');
    return super.worker(endpointId, id);
  }

  override workers(): StoredWorker[] {
    this.#refuseLate('worker');
    return super.workers();
  }

  putWorker(worker: StoredWorker): void {
    this.#noteKind('worker');
    this.#change(() => this.tables.putWorker(worker));
  }

  removeWorker(endpointId: string, id: string): void {
    this.#noteKind('worker');
    this.#change(() => this.tables.removeWorker(endpointId, id));
  }

  putResource(resource: StoredResource): void {
    this.#noteResource(resource, resource);
    this.#change(() => this.tables.putResource(resource));
  }

  removeResource(key: ResourceKey): void {
    this.#noteResource(key, undefined);
    this.#change(() => this.tables.removeResource(key));
  }

  #noteResource(key: ResourceKey, now: StoredResource | undefined): void {
    this.#resources ??= new Map();
    this.#resources.set(nameResource(key), now);
    this.#noteKind(key.kind);
  }

  putVersionPart(key: VersionKey, index: number, part: Uint8Array): void {
    this.#change(() => this.tables.putVersionPart(key, index, part));
  }

  removeVersionParts(key: VersionKey, limit: number): void {
    this.#change(() => this.tables.removeVersionParts(key, limit));
  }

  putKey(key: StoredKey): void {
    this.#noteKind('key');
    this.#change(() => this.tables.putKey(key));
  }

  removeKey(id: string): void {
    this.#noteKind('key');
    this.#change(() => this.tables.removeKey(id));
  }
}

function nameResource({ id, kind }: ResourceKey): string {
  return `${kind}/${id}`;
}

function sizeOf(payload: Payload | undefined): number {
  if (payload === undefined) return 0;
  return payload instanceof Uint8Array ? payload.length : payload.bytes;
}

function readLate(what: string): Error {
  return new Error(`an operation reads ${what} after it has changed it; read first`);
}
