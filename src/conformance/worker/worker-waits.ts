// Waits for a worker's calls about a job: the take of its lease, its outcome, its output.
import type { Lease, Outcome } from '../../wire/link/worker-link.ts';
import { demandSame } from '../checks.ts';
import type { WorkerStand } from './worker-stand.ts';

/** Limit for things that take a worker an instant; generous for slow machines. */
export const SOON_MS = 10_000;

/** Waits until the worker has the job's lease. */
export function leaseOf({ recorder }: WorkerStand, jobId: string): Promise<Lease> {
  return recorder.until(SOON_MS, 'the job was not taken', () => {
    const given = recorder.calls.take.filter(({ isLost }) => !isLost).map(({ answer }) => answer);
    return given.flatMap((leases) => leases ?? []).findLast((lease) => lease.jobId === jobId);
  });
}

/** Waits for the reported outcome of the attempt. */
export function waitForOutcome(
  { recorder }: WorkerStand,
  lease: Lease,
  ms = SOON_MS,
): Promise<Outcome> {
  return recorder.until(ms, 'no outcome was reported', () => {
    for (const { answer, request } of recorder.calls.report) {
      for (const report of answer === undefined ? [] : request.reports) {
        if (report.kind === 'outcome' && report.token === lease.token) return report.outcome;
      }
    }
    return undefined;
  });
}

export async function demandOutput(stand: WorkerStand, id: string, value: unknown): Promise<void> {
  const record = await stand.ended(id, SOON_MS * 2);
  demandSame(record.status, 'COMPLETED', 'the status');
  demandSame(record.output, value, 'the output');
}

/** Runs one more job to show that the worker has recovered. */
export async function demandWork(stand: WorkerStand, ms: number): Promise<void> {
  const record = await stand.ended(await stand.submit({ do: 'echo', value: 'well' }), ms);
  demandSame(record.output, 'well', 'the output of the next job');
}
