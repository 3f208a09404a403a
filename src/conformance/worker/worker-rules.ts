// Rules over all calls that a worker has made, checked on the recorded calls.
import type { LeaseRef, ReportHeader } from '../../wire/link/worker-link.ts';
import type { CallRecorder } from './call-recorder.ts';

interface Repeat {
  first: Pick<ReportHeader, 'seq'> & { body: string };
  second: Repeat['first'];
}

/** Repeated reports of an outcome with this token. */
export function findRepeats({ calls }: CallRecorder, token: string): Repeat[] {
  const said = calls.report
    .flatMap(({ request }) => request.reports)
    .filter((report) => report.kind === 'outcome' && report.token === token)
    .map(({ body, ...header }) => ({ ...header, body: Buffer.from(body).toString() }));
  const [first, ...others] = said;
  return first ? others.map((second) => ({ first, second })) : [];
}

/** Returns the job of a lease that a take did not name, although the worker held it. */
export function findUnheld({ calls }: CallRecorder): string | undefined {
  const endedAt = new Map<string, number>();
  for (const { at, request } of calls.report) {
    for (const { kind, token } of request.reports) {
      if (kind === 'outcome' && !endedAt.has(token)) endedAt.set(token, at);
    }
  }
  const released = new Set(
    calls.renew.flatMap(({ answer }) => answer?.ended ?? []).map(({ token }) => token),
  );
  const given: { lease: LeaseRef; since: number }[] = [];
  for (const { answer, answeredAt, at, isLost, request } of calls.take) {
    const missing = given.find(
      ({ lease, since }) =>
        since < at &&
        at < (endedAt.get(lease.token) ?? Number.POSITIVE_INFINITY) &&
        !released.has(lease.token) &&
        !request.held.includes(lease.token),
    );
    if (missing) return missing.lease.jobId;
    if (!answer || isLost || answeredAt === undefined) continue;
    for (const lease of answer) given.push({ lease, since: answeredAt });
  }
  return undefined;
}

/** Returns the job of an attempt with a report after its answered outcome. */
export function findReportAfterOutcome({ calls }: CallRecorder): string | undefined {
  const answeredAt = new Map<string, number>();
  for (const { answer, at, answeredAt: end, isLost, request } of calls.report) {
    for (const { jobId, kind, token } of request.reports) {
      const before = answeredAt.get(token);
      if (before !== undefined && at > before) return jobId;
      if (kind !== 'outcome' || answer === undefined || isLost || end === undefined) continue;
      answeredAt.set(token, end);
    }
  }
  return undefined;
}
