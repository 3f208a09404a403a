// The changes of an operation so far. The operation reads single records as it has left them. It must read lists before it
// changes their records.
import type { JobKey, Payload, ResourceKey, Step, StoredJob, StoredResource } from '../store.ts';
import { nameOf } from './live-reader.ts';

export class OperationChanges {
  /** What happens when the operation has returned, in order. */
  readonly steps: (() => Step<void>)[] = [];
  // Made when they are needed: most operations change one job.
  #jobs: Map<string, StoredJob | undefined> | undefined;
  /** New jobs by endpoint and idempotency key. */
  #keys: Map<string, StoredJob> | undefined;
  /** Jobs whose input is new. */
  #inputs: Set<string> | undefined;
  #outputs: Map<string, Payload | undefined> | undefined;
  #resources: Map<string, StoredResource | undefined> | undefined;
  /** Kinds of these, and `endpoint`, `key`, `worker`. */
  #kinds: Set<string> | undefined;

  putJob(key: JobKey, now: StoredJob | undefined): void {
    this.#jobs ??= new Map();
    this.#jobs.set(nameOf(key), now);
  }

  addJob(job: StoredJob): void {
    this.putJob(job, job);
    this.#inputs ??= new Set();
    this.#inputs.add(nameOf(job));
    if (job.idempotencyKey === null) return;
    this.#keys ??= new Map();
    this.#keys.set(nameKey(job.endpointId, job.idempotencyKey), job);
  }

  /** The job as the operation has left it, or else as `read` returns it. */
  job(key: JobKey, read: () => StoredJob | undefined): StoredJob | undefined {
    const name = this.#jobs && nameOf(key);
    return name !== undefined && this.#jobs?.has(name) ? this.#jobs.get(name) : read();
  }

  newJob(endpointId: string, idempotencyKey: string): StoredJob | undefined {
    return this.#keys?.get(nameKey(endpointId, idempotencyKey));
  }

  putOutput(key: JobKey, output: Payload | undefined): void {
    this.#outputs ??= new Map();
    this.#outputs.set(nameOf(key), output);
  }

  /** The output that the operation has put, or its size if that is all it knows; 0 for a dropped one, undefined if it has done neither. */
  output(key: JobKey): Uint8Array | number | undefined {
    const name = this.#outputs && nameOf(key);
    if (name === undefined || !this.#outputs?.has(name)) return undefined;
    const output = this.#outputs.get(name);
    return output instanceof Uint8Array ? output : (output?.bytes ?? 0);
  }

  putResource(key: ResourceKey, now: StoredResource | undefined): void {
    this.#resources ??= new Map();
    this.#resources.set(nameResource(key), now);
    this.note(key.kind);
  }

  resource(key: ResourceKey, read: () => StoredResource | undefined): StoredResource | undefined {
    const name = this.#resources && nameResource(key);
    return name !== undefined && this.#resources?.has(name) ? this.#resources.get(name) : read();
  }

  /** The operation has changed something of this kind. */
  note(kind: string): void {
    this.#kinds ??= new Set();
    this.#kinds.add(kind);
  }

  /** @throws Error if the operation has changed something of this kind */
  refuseLate(kind: string): void {
    if (this.#kinds?.has(kind)) throw readLate(kind);
  }

  /** @throws Error if the operation has changed a job */
  refuseJobs(verb: string): void {
    if (this.#jobs) throw readLate(verb);
  }

  /** @throws Error if the operation has put this payload */
  refusePayload(kind: 'input' | 'output', key: JobKey): void {
    const own = kind === 'input' ? this.#inputs : this.#outputs;
    if (own?.has(nameOf(key))) throw readLate(kind);
  }
}

function nameKey(endpointId: string, idempotencyKey: string): string {
  return `${endpointId}/${idempotencyKey}`;
}

function nameResource({ id, kind }: ResourceKey): string {
  return `${kind}/${id}`;
}

function readLate(what: string): Error {
  return new Error(`an operation reads ${what} after it has changed it; read first`);
}
