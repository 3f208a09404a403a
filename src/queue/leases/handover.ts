// Leases jobs to a worker, repeats leases whose answer was lost, and ends those of a worker process that is gone.
import { randomUUID } from 'node:crypto';
import {
  type JobKey,
  type MemoSize,
  PayloadFileError,
  type Store,
  type StoredJob,
  type Transaction,
} from '../../store/store.ts';
import type { RetryPolicy } from '../../wire/job/retry-policy.ts';
import type { Lease, WorkerBye } from '../../wire/link/worker-link.ts';
import type { StepOn } from '../changes.ts';
import type { JobTracing } from '../job-tracing.ts';
import { holdsLiveLease } from '../lifecycle/transition.ts';
import type { LargePayloads } from '../payloads/large-payloads.ts';
import { describeTick } from '../records.ts';
import { readMemo } from '../steps/memo.ts';
import { findArrival, type HeldLease, type PresentWorker } from './presence.ts';

interface Choice {
  job: StoredJob;
  worker: PresentWorker;
  takeId: string;
  /** Its size if it is large. */
  input: Uint8Array | number | undefined;
  /** Of the endpoint and the worker's handler. */
  retry: RetryPolicy | undefined;
  tracing: JobTracing | undefined;
}

/** A lease before its large input is read: it has the input's size. */
export interface GivenLease extends Omit<Lease, 'input'> {
  input: Uint8Array | number;
  /** What the job remembers; it is read later too. */
  memo?: MemoSize;
}

export function leaseJob(
  step: StepOn,
  { input, job, retry, takeId, tracing, worker }: Choice,
): GivenLease {
  const lease = {
    token: randomUUID(),
    workerId: worker.id,
    incarnation: worker.incarnation,
    takeId,
    ...(worker.gpuCount > 1 && { gpus: worker.gpuCount }),
  };
  const arrival = findArrival(worker, job);
  const decision = step(job, { type: 'lease', lease, retry, ...(arrival && { arrival }) });
  if ('refused' in decision) throw new Error(`job ${job.id} is not ready: ${decision.refused}`);
  return toLease(decision.job, input, tracing);
}

export function repeatLeases(
  tx: Transaction,
  held: HeldLease[],
  { payloads, tracing }: { payloads: LargePayloads; tracing: JobTracing | undefined },
): GivenLease[] {
  const leases = tx.each(held, ({ token, ...key }) => {
    const job = tx.job(key);
    if (job?.lease?.token !== token || !holdsLiveLease(job)) return [];
    return [toLease(job, tx.payloadUpTo('input', job, payloads.partBytes), tracing)];
  });
  return leases.flat();
}

/**
 * Reads large inputs, after the commit. A job that was removed meanwhile is left out, and so is one whose input is lost:
 * it counts as released, and fails when that has happened too often. @throws PayloadFileError
 */
export async function completeLeases(
  endpointId: string,
  given: readonly GivenLease[],
  { payloads, store }: { payloads: LargePayloads; store: Store },
): Promise<Lease[]> {
  const leases: Lease[] = [];
  for (const { input: known, memo, ...lease } of given) {
    const key = { endpointId, id: lease.jobId };
    const input = typeof known === 'number' ? await readInput(payloads, key, known) : known;
    if (!input) continue;
    if (!memo) {
      leases.push({ ...lease, input });
      continue;
    }
    const entries = await store.read((tx) => readMemo(tx, key, memo));
    const memoBytes = entries.length;
    leases.push({ ...lease, memoBytes, input: Buffer.concat([input, entries]) });
  }
  return leases;
}

async function readInput(
  payloads: LargePayloads,
  key: JobKey,
  bytes: number,
): Promise<Uint8Array | undefined> {
  try {
    return await payloads.read('input', key, bytes);
  } catch (error) {
    if (error instanceof PayloadFileError && error.isLost) return undefined;
    throw error;
  }
}

function toLease(
  job: StoredJob,
  input: Uint8Array | number | undefined,
  tracing: JobTracing | undefined,
): GivenLease {
  if (input === undefined || !job.lease) throw new Error(`job ${job.id} has no input or no lease`);
  const { id: jobId, attempt, executionTimeoutMs, solo, submittedAt } = job;
  const { token } = job.lease;
  const lease: GivenLease = { jobId, attempt, token, executionTimeoutMs, solo, submittedAt, input };
  // The worker's spans are children of the lease's, or else of the client's.
  const traceparent = tracing?.ofLease(job)?.traceparent ?? job.traceparent;
  if (traceparent !== null) lease.traceparent = traceparent;
  if (job.tracestate !== null) lease.tracestate = job.tracestate;
  const handlerData = job.attachment?.handlerData ?? null;
  if (handlerData !== null) lease.s3Config = handlerData;
  if (job.tick) lease.schedule = describeTick(job.tick);
  if (job.links?.memo) lease.memo = job.links.memo;
  return lease;
}

interface Departure {
  reason: WorkerBye['reason'];
  detail: string;
}

/** Ends the leases of a process that is gone. Attempts in its outbox keep their lease for delivery. */
export function endLeases(
  step: StepOn,
  jobs: StoredJob[],
  delivering: Set<string>,
  incarnation: number,
  { reason, detail }: Departure,
): void {
  const isDelivering = (job: StoredJob) => job.lease !== null && delivering.has(job.lease.token);
  const ended = jobs.filter((job) => !isDelivering(job));
  // A cancelled attempt that was still stopping may have crashed the process.
  const alone = ended.length === 1;
  for (const job of jobs.filter(isDelivering)) {
    step(job, { type: 'awaiting_delivery', incarnation });
  }
  for (const job of ended) {
    step(job, reason === 'crashed' ? { type: 'crashed', alone, detail } : { type: 'worker_left' });
  }
}
