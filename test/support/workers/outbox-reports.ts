// Fills an outbox: names an attempt, adds reports to it, and formats what the outbox sends.
import type { LeaseRef } from '../../../src/wire/link/worker-link.ts';
import type { AttemptReports, SentReport } from '../../../src/worker/reports/attempt-reports.ts';

export const leaseRef = (jobId: string): LeaseRef => ({
  jobId,
  attempt: 1,
  token: `token-${jobId}`,
});

export function complete(attempt: AttemptReports, output = '{}'): void {
  const outcome = { kind: 'completed' as const, executionMs: 7, output: 'value' as const };
  attempt.addOutcome({ outcome, output: Buffer.from(output) });
}

export function addChunk(attempt: AttemptReports, json: string): void {
  const bytes = Buffer.from(json);
  attempt.addChunks({ sizes: [bytes.length], bytes });
}

/** Formats each report as `job#seq kind body`. */
export function nameReports(sentReports: readonly SentReport[]): string[] {
  return sentReports.map(({ report: { jobId, seq, kind, body } }) => {
    return `${jobId}#${seq} ${kind} ${Buffer.from(body).toString()}`;
  });
}
