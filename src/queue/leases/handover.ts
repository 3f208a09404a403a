// Leases jobs to a worker and repeats leases whose answer was lost.
import { randomUUID } from 'node:crypto';
import type { Step, StoredJob, Transaction } from '../../store/store.ts';
import type { Lease } from '../../wire/link/worker-link.ts';
import type { StepOn } from '../changes.ts';
import { holdsLiveLease } from '../transition.ts';
import type { HeldLease, PresentWorker } from './presence.ts';

export interface Choice {
  job: StoredJob;
  worker: PresentWorker;
  takeId: string;
  /** Undefined: must be read from the store. */
  input: Uint8Array | undefined;
}

export function* leaseJob(
  tx: Transaction,
  step: StepOn,
  { input, job, takeId, worker }: Choice,
): Step<Lease> {
  const lease = {
    token: randomUUID(),
    workerId: worker.id,
    incarnation: worker.incarnation,
    takeId,
  };
  const decision = yield* step(job, { type: 'lease', lease });
  if ('refused' in decision) throw new Error(`job ${job.id} is not ready: ${decision.refused}`);
  return toLease(decision.job, input ?? (yield* tx.input(decision.job)));
}

export function* repeatLeases(tx: Transaction, held: HeldLease[]): Step<Lease[]> {
  const leases: Lease[] = [];
  for (const { token, ...key } of held) {
    const job = yield* tx.job(key);
    if (job?.lease?.token !== token || !holdsLiveLease(job)) continue;
    leases.push(toLease(job, yield* tx.input(job)));
  }
  return leases;
}

function toLease(job: StoredJob, input: Uint8Array | undefined): Lease {
  if (!input || !job.lease) throw new Error(`job ${job.id} has no input or no lease`);
  const { id: jobId, attempt, executionTimeoutMs, solo, submittedAt } = job;
  const { token } = job.lease;
  const lease: Lease = { jobId, attempt, token, executionTimeoutMs, solo, submittedAt, input };
  if (job.traceparent !== null) lease.traceparent = job.traceparent;
  if (job.tracestate !== null) lease.tracestate = job.tracestate;
  const handlerData = job.attachment?.handlerData ?? null;
  if (handlerData !== null) lease.s3Config = handlerData;
  return lease;
}
