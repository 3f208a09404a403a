// What is known of leases by what they are for: for carriers whose workers name the job and the attempt,
// but cannot keep a token. It reads; what a lease is worth is decided where it is used.
import type { JobKey, Store, StoredJob } from '../store/store.ts';
import type { LeaseRef } from '../wire/worker-link.ts';

export interface OpenLease extends LeaseRef {
  workerId: string;
  incarnation: number;
  /** Unix ms. */
  startedAt: number;
  executionTimeoutMs: number;
  /** Of the reports applied so far. */
  lastSeq: number;
  chunkCount: number;
}

export class OpenLeases {
  readonly #store: Store;

  constructor({ store }: { store: Store }) {
    this.#store = store;
  }

  /** Every one that the worker has, those of ended jobs that it has not heard of included. */
  async ofWorker(endpointId: string, workerId: string): Promise<OpenLease[]> {
    const jobs = await this.#store.read((tx) => tx.jobsOfWorker(endpointId, workerId));
    return jobs.flatMap((job) => describeLease(job) ?? []);
  }

  async ofJob(key: JobKey): Promise<OpenLease | undefined> {
    const job = await this.#store.read((tx) => tx.job(key));
    return job && describeLease(job);
  }
}

function describeLease(job: StoredJob): OpenLease | undefined {
  const { attempt, chunkCount, executionTimeoutMs, id: jobId, lastSeq, lease, startedAt } = job;
  if (!lease || startedAt === null) return undefined;
  const { incarnation, token, workerId } = lease;
  const ref = { jobId, attempt, token };
  return { ...ref, workerId, incarnation, startedAt, executionTimeoutMs, lastSeq, chunkCount };
}
