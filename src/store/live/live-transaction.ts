// The verbs that write: jobs change in memory, and their rows are written once, with the commit.
import type {
  ChunkBatch,
  EndpointBase,
  JobKey,
  RecordPiece,
  ResourceKey,
  Step,
  StoredDelivery,
  StoredJob,
  StoredKey,
  StoredResource,
  StoredWorker,
  Transaction,
} from '../store.ts';
import { LiveReader } from './live-reader.ts';

/** For use in an operation. The commit ends with `LiveJobs.write`. */
export class LiveTransaction extends LiveReader implements Transaction {
  protected override writeBack(): Step<void> {
    return this.live.write();
  }

  *insertJob(job: StoredJob, input: Uint8Array): Step<void> {
    yield* this.tables.putInput(job, input);
    this.live.change(job.endpointId, { before: undefined, after: job, retried: 0 });
  }

  // biome-ignore lint/correctness/useYield: the row is written with the commit
  *saveJob(before: StoredJob, after: StoredJob, retried: number): Step<void> {
    this.live.change(after.endpointId, { before, after, retried });
  }

  *removeJob(job: StoredJob): Step<void> {
    yield* this.tables.removePayloads(job);
    this.live.change(job.endpointId, { before: job, after: undefined, retried: 0 });
  }

  *putEndpoint(endpoint: EndpointBase): Step<void> {
    yield* this.tables.putEndpoint(endpoint);
    this.live.forget(endpoint.id);
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

  putOutput(key: JobKey, output: Uint8Array): Step<void> {
    return this.tables.putOutput(key, output);
  }

  dropOutput(key: JobKey): Step<void> {
    return this.tables.dropOutput(key);
  }

  appendChunks(key: JobKey & { attempt: number }, batch: ChunkBatch): Step<void> {
    return this.tables.appendChunks(key, batch);
  }

  dropChunks(key: JobKey): Step<void> {
    return this.tables.dropChunks(key);
  }

  appendLog(key: JobKey, at: number, lines: Uint8Array): Step<void> {
    return this.tables.appendLog(key, at, lines);
  }

  insertDelivery(delivery: StoredDelivery, record: readonly RecordPiece[]): Step<void> {
    return this.tables.insertDelivery(delivery, record);
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

  putKey(key: StoredKey): Step<void> {
    return this.tables.putKey(key);
  }

  removeKey(id: string): Step<void> {
    return this.tables.removeKey(id);
  }
}
