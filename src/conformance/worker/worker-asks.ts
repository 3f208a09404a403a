// What checks of workers ask a stand: for the lease of a job, its outcome, its output.
import type { Lease, Outcome } from '../../wire/link/worker-link.ts';
import { demandSame } from '../checks.ts';
import type { WorkerStand } from './worker-stand.ts';

/** What takes a worker a moment may take a slow machine so long. */
export const SOON_MS = 10_000;

/** The lease of the job, once it was given to the worker. */
export function leaseOf({ witness }: WorkerStand, jobId: string): Promise<Lease> {
  return witness.until(SOON_MS, 'the job was not taken', () => {
    const given = witness.calls.take.filter(({ isLost }) => !isLost).map(({ answer }) => answer);
    return given.flatMap((leases) => leases ?? []).findLast((lease) => lease.jobId === jobId);
  });
}

/** How the worker said that the attempt ended. */
export function outcomeOf({ witness }: WorkerStand, lease: Lease, ms = SOON_MS): Promise<Outcome> {
  return witness.until(ms, 'no outcome was reported', () => {
    for (const { answer, request } of witness.calls.report) {
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

/** The worker is well again: a job goes through. */
export async function demandWork(stand: WorkerStand, ms: number): Promise<void> {
  const record = await stand.ended(await stand.submit({ do: 'echo', value: 'well' }), ms);
  demandSame(record.output, 'well', 'the output of the next job');
}
