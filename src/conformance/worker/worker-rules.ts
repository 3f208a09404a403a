// Rules that hold over everything a worker has said, looked for in what a witness has noted.
import type { LeaseRef, ReportHeader } from '../../wire/link/worker-link.ts';
import type { Witness } from './call-recorder.ts';

interface Repeat {
  first: Pick<ReportHeader, 'seq'> & { body: string };
  second: Repeat['first'];
}

/** Outcomes under the token that came more than once. */
export function findRepeats({ calls }: Witness, token: string): Repeat[] {
  const said = calls.report
    .flatMap(({ request }) => request.reports)
    .filter((report) => report.kind === 'outcome' && report.token === token)
    .map(({ body, ...header }) => ({ ...header, body: Buffer.from(body).toString() }));
  const [first, ...others] = said;
  return first ? others.map((second) => ({ first, second })) : [];
}

/** The job of a lease that a take did not name although the worker had it and had said no outcome. */
export function findUnheld({ calls }: Witness): string | undefined {
  const endedAt = new Map<string, number>();
  for (const { at, request } of calls.report) {
    for (const { kind, token } of request.reports) {
      if (kind === 'outcome' && !endedAt.has(token)) endedAt.set(token, at);
    }
  }
  const letGo = new Set(
    calls.renew.flatMap(({ answer }) => answer?.ended ?? []).map(({ token }) => token),
  );
  const given: { lease: LeaseRef; since: number }[] = [];
  for (const { answer, answeredAt, at, isLost, request } of calls.take) {
    const missing = given.find(
      ({ lease, since }) =>
        since < at &&
        at < (endedAt.get(lease.token) ?? Number.POSITIVE_INFINITY) &&
        !letGo.has(lease.token) &&
        !request.held.includes(lease.token),
    );
    if (missing) return missing.lease.jobId;
    if (!answer || isLost || answeredAt === undefined) continue;
    for (const lease of answer) given.push({ lease, since: answeredAt });
  }
  return undefined;
}

/** The job of an attempt of which something was reported after its outcome had been answered. */
export function findSilenceBroken({ calls }: Witness): string | undefined {
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
