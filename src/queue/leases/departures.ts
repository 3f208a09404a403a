// Ends the leases of a worker process that is gone.
import type { Step, StoredJob } from '../../store/store.ts';
import type { WorkerBye } from '../../wire/link/worker-link.ts';
import type { StepOn } from '../changes.ts';

export interface Departure {
  reason: WorkerBye['reason'];
  detail: string;
}

/** Ends the leases of a process that is gone. Attempts in its outbox keep their lease for delivery. */
export function* endLeases(
  step: StepOn,
  jobs: StoredJob[],
  delivering: Set<string>,
  incarnation: number,
  { reason, detail }: Departure,
): Step<void> {
  const isDelivering = (job: StoredJob) => job.lease !== null && delivering.has(job.lease.token);
  const ended = jobs.filter((job) => !isDelivering(job));
  // A cancelled attempt that was still stopping may have crashed the process.
  const alone = ended.length === 1;
  for (const job of jobs.filter(isDelivering)) {
    yield* step(job, { type: 'awaiting_delivery', incarnation });
  }
  for (const job of ended) {
    yield* step(
      job,
      reason === 'crashed' ? { type: 'crashed', alone, detail } : { type: 'worker_left' },
    );
  }
}
