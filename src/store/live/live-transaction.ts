// The verbs that write: jobs change in memory, and their rows are written once, with the commit.
import { INLINE_BYTES } from '../sql/payload-parts.ts';
import type {
  ChunkBatch,
  Deletion,
  EndpointBase,
  JobKey,
  Payload,
  RecordPiece,
  ResourceKey,
  StagedPayload,
  Step,
  StoredDelivery,
  StoredJob,
  StoredKey,
  StoredResource,
  StoredWorker,
  TakeableJobs,
  TakeableRequest,
  Transaction,
  TurnKey,
  UnusedPayload,
  VersionKey,
} from '../store.ts';
import { LiveReader } from './live-reader.ts';
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

/** For use in an operation. The commit ends with `LiveJobs.write`. */
export class LiveTransaction extends LiveReader implements Transaction {
  protected override writeBack(): Step<void> {
    return this.live.write();
  }

  *insertJob(job: StoredJob, input: Payload): Step<void> {
    const small = input instanceof Uint8Array && input.length <= INLINE_BYTES ? input : undefined;
    if (!this.live.hasTurns(job.endpointId)) yield* this.#loadTurns(job.endpointId);
    if (!small) yield* this.tables.putInput(job, input);
    this.live.change(job.endpointId, { before: undefined, after: job, retried: 0 });
    if (!small) {
      // An ID that the caller has chosen may come again with another input.
      this.live.inputs.take(job);
      return;
    }
    this.live.addPayloads(job, { input: small });
    this.live.inputs.put(job, small);
  }

  /** Before the first change of a job, which changes the turns. */
  *#loadTurns(endpointId: string): Step<void> {
    this.live.loadTurns(endpointId, yield* this.tables.turns(endpointId));
  }

  *nextTurn(key: TurnKey): Step<number> {
    const { endpointId } = key;
    if (!this.live.hasTurns(endpointId)) yield* this.#loadTurns(endpointId);
    const known = this.live.nextTurn(key);
    if (known !== undefined) return known;
    yield* this.writeBack();
    this.live.learnTurn(key, yield* this.tables.lastTurn(key));
    const turn = this.live.nextTurn(key);
    if (turn === undefined) throw new Error(`the turn of group ${key.group} is still unknown`);
    return turn;
  }

  *takeableJobs(request: TakeableRequest): Step<TakeableJobs> {
    const { acceptsOutgrown, endpointId, groupLimit, limit } = request;
    if (groupLimit !== undefined) yield* this.loadLeased();
    const ready: TakeableJobs =
      groupLimit === undefined
        ? { jobs: yield* this.readyJobs(endpointId, limit), isBlocked: false, hasMore: false }
        : yield* this.#findReady({ endpointId, groupLimit, limit });
    if (!acceptsOutgrown) return ready;
    const live = this.live.search(endpointId);
    if (!live.outgrown) {
      yield* this.writeBack();
      yield* loadOutgrown(this.tables, live);
    }
    const gpuTypes = [...(live.outgrown ?? [])].filter(acceptsOutgrown);
    if (gpuTypes.length === 0) return ready;
    const capacity = (group: string) => (groupLimit === undefined ? limit : live.capacity(group));
    yield* this.writeBack();
    const search = { gpuTypes, limit, capacity, maxRows: MAX_TAKEABLE_ROWS };
    const outgrown = yield* findOutgrown(this.tables, live, search);
    return mergeTakeable(ready, outgrown, { limit, capacity });
  }

  *#findReady(request: LimitedRequest): Step<TakeableJobs> {
    const { endpointId } = request;
    for (let rows = 0; ; ) {
      const { isBlocked, jobs, need } = this.live.takeableJobs(request);
      if (!need) return { jobs, isBlocked, hasMore: false };
      const isSpent = this.live.searchedRows(endpointId) >= MAX_TAKEABLE_ROWS;
      const isOver = isSpent || (rows > 0 && jobs.length > 0);
      if (isOver) return { jobs, isBlocked, hasMore: true };
      yield* this.writeBack();
      this.live.loadNeeded(endpointId, need, yield* this.#readNeeded(endpointId, need));
      rows += need.limit;
    }
  }

  #readNeeded(endpointId: string, { from, limit, ofGroup }: Need): Step<StoredJob[]> {
    if (ofGroup !== undefined) return this.tables.readyJobsOfGroup(endpointId, ofGroup, limit);
    if (from) return this.tables.readyJobsFrom(endpointId, from, limit);
    return this.tables.readyJobs(endpointId, limit);
  }

  override *input(key: JobKey): Step<Uint8Array | undefined> {
    return (
      this.live.inputs.take(key) ?? this.live.payloads(key).input ?? (yield* this.tables.input(key))
    );
  }

  override *payloadUpTo(
    kind: StagedPayload['kind'],
    key: JobKey,
    maxBytes: number,
  ): Step<Uint8Array | number | undefined> {
    const recent = kind === 'input' ? this.live.inputs.take(key) : undefined;
    const known = recent ?? this.live.payloads(key)[kind];
    return known ?? (yield* this.tables.payloadUpTo(kind, key, maxBytes));
  }

  override *output(key: JobKey): Step<Uint8Array | undefined> {
    return this.live.payloads(key).output ?? (yield* this.tables.output(key));
  }

  override *outputBytes(key: JobKey): Step<number> {
    return this.live.payloads(key).output?.length ?? (yield* this.tables.outputBytes(key));
  }

  *saveJob(before: StoredJob, after: StoredJob, retried: number): Step<void> {
    if (!this.live.hasTurns(after.endpointId)) yield* this.#loadTurns(after.endpointId);
    this.live.change(after.endpointId, { before, after, retried });
  }

  *removeJob(job: StoredJob): Step<void> {
    if (!this.live.hasTurns(job.endpointId)) yield* this.#loadTurns(job.endpointId);
    // Its payloads are removed with its row.
    if (this.live.isNew(job)) yield* this.writeBack();
    const known = this.live.job(job);
    const before = typeof known === 'string' ? job : known;
    this.live.change(job.endpointId, { before, after: undefined, retried: 0 });
    if (this.live.unwritten.hasManyRemoved) yield* this.writeBack();
  }

  *putEndpoint(endpoint: EndpointBase): Step<void> {
    yield* this.tables.putEndpoint(endpoint);
    this.live.forgetEndpoint(endpoint.id);
  }

  *removeEndpoint(id: string): Step<void> {
    yield* this.writeBack();
    yield* this.tables.removeEndpoint(id);
    this.live.remove(id);
  }

  /** Whether the output that the record refers to is still needed depends on the row of its job. */
  *removeDelivery(key: JobKey): Step<void> {
    yield* this.writeBack();
    yield* this.tables.removeDelivery(key);
  }

  *putOutput(key: JobKey, output: Payload): Step<void> {
    const isSmall = output instanceof Uint8Array && output.length <= INLINE_BYTES;
    if (isSmall && this.live.addPayloads(key, { output })) return;
    const hasNone = this.live.noteOutput(key);
    this.live.addPayloads(key, { output: undefined });
    if (hasNone) yield* this.tables.addOutput(key, output);
    else yield* this.tables.putOutput(key, output);
  }

  *dropOutput(key: JobKey): Step<void> {
    this.live.addPayloads(key, { output: undefined });
    yield* this.tables.dropOutput(key);
  }

  appendChunks(key: JobKey & { attempt: number }, batch: ChunkBatch): Step<void> {
    return this.tables.appendChunks(key, batch);
  }

  beginPayload(kind: StagedPayload['kind'], key: JobKey, part: Uint8Array): Step<StagedPayload> {
    return this.tables.beginPayload(kind, key, part);
  }

  addPart(payload: StagedPayload, at: number, part: Uint8Array): Step<void> {
    return this.tables.addPart(payload, at, part);
  }

  beginFile(kind: StagedPayload['kind'], key: JobKey, bytes: number): Step<StagedPayload> {
    return this.tables.beginFile(kind, key, bytes);
  }

  deleteUnused(payload: UnusedPayload, maxBytes: number): Step<Deletion> {
    return this.tables.deleteUnused(payload, maxBytes);
  }

  dropChunks(key: JobKey): Step<void> {
    return this.tables.dropChunks(key);
  }

  appendLog(key: JobKey, at: number, lines: Uint8Array): Step<void> {
    return this.tables.appendLog(key, at, lines);
  }

  /** A small output that this commit writes becomes a part of the record. */
  insertDelivery(delivery: StoredDelivery, record: readonly RecordPiece[]): Step<void> {
    const pieces = record.map((piece) =>
      piece instanceof Uint8Array ? piece : (this.live.payloads(piece.outputOf).output ?? piece),
    );
    return this.tables.insertDelivery(delivery, pieces);
  }

  postponeDelivery(delivery: StoredDelivery): Step<void> {
    return this.tables.postponeDelivery(delivery);
  }

  putWorker(worker: StoredWorker): Step<void> {
    return this.tables.putWorker(worker);
  }

  removeWorker(endpointId: string, id: string): Step<void> {
    return this.tables.removeWorker(endpointId, id);
  }

  putResource(resource: StoredResource): Step<void> {
    return this.tables.putResource(resource);
  }

  removeResource(key: ResourceKey): Step<void> {
    return this.tables.removeResource(key);
  }

  putVersionPart(key: VersionKey, index: number, part: Uint8Array): Step<void> {
    return this.tables.putVersionPart(key, index, part);
  }

  removeVersionParts(key: VersionKey, limit: number): Step<boolean> {
    return this.tables.removeVersionParts(key, limit);
  }

  putKey(key: StoredKey): Step<void> {
    return this.tables.putKey(key);
  }

  removeKey(id: string): Step<void> {
    return this.tables.removeKey(id);
  }
}
