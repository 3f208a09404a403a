// Finds leases by job and attempt, for RunPod workers: they name the job and the attempt but cannot keep
// a token. This file only reads; callers decide what a lease allows.
import type { JobKey, StoredJob } from '../../store/store.ts';
import type { LeaseRef } from '../../wire/link/worker-link.ts';
import type { QueueParts } from '../queue-parts.ts';

export interface OpenLease extends LeaseRef {
  workerId: string;
  incarnation: number;
  /** Unix ms. */
  startedAt: number;
  executionTimeoutMs: number;
  /** Sequence number of the last applied report. */
  lastSeq: number;
  chunkCount: number;
  /** A client has received chunks of the attempt, or is receiving them. */
  isShown: boolean;
  /** The platform was unreachable for a time while the attempt ran. */
  isBroken: boolean;
}

type OpenLeasesOptions = Pick<QueueParts, 'absence' | 'store'>;

export class OpenLeases {
  readonly #options: OpenLeasesOptions;

  constructor(options: OpenLeasesOptions) {
    this.#options = options;
  }

  /** All leases of the worker, including those of ended jobs if the worker does not know of the end yet. */
  async ofWorker(endpointId: string, workerId: string): Promise<OpenLease[]> {
    const { absence, store } = this.#options;
    const jobs = await store.read((tx) => tx.jobsOfWorker(endpointId, workerId));
    return jobs.flatMap((job) => describeLease(job, absence) ?? []);
  }

  async ofJob(key: JobKey): Promise<OpenLease | undefined> {
    const { absence, store } = this.#options;
    const job = await store.read((tx) => tx.job(key));
    return job && describeLease(job, absence);
  }
}

function describeLease(
  job: StoredJob,
  absence: OpenLeasesOptions['absence'],
): OpenLease | undefined {
  const { attempt, chunkCount, executionTimeoutMs, id: jobId, lastSeq, lease, startedAt } = job;
  if (!lease || startedAt === null) return undefined;
  const { incarnation, token, workerId } = lease;
  const ref = { jobId, attempt, token };
  const isShown = job.cursorAttempt === attempt;
  const isBroken = absence.isBroken({ startedAt, token });
  const terms = { startedAt, executionTimeoutMs, lastSeq, chunkCount, isShown, isBroken };
  return { ...ref, workerId, incarnation, ...terms };
}
