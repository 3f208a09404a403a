// Checks how a worker handles faults of the network and the platform, and rules over all its calls.
import { type LeaseRef, LinkError, type ReportHeader } from '../../wire/link/worker-link.ts';
import { type ConformanceCheck, demand, demandSame, listYields } from '../checks.ts';
import {
  type CallRecorder,
  demandOutput,
  demandWork,
  leaseOf,
  SOON_MS,
  type WorkerStand,
} from './worker-stand.ts';

/** A half-open connection fails only after the longest wait plus the worker's margin. */
const HALF_OPEN_MS = 60_000;

export const faultChecks: readonly ConformanceCheck<WorkerStand>[] = [
  {
    area: 'report',
    rule: 'repeats an outcome unchanged until it is answered',
    async run(stand) {
      const { recorder } = stand;
      const id = await stand.submit({ do: 'echo', value: 'once', ms: 100 });
      recorder.loseAnswer('report', ({ reports }) =>
        reports.some(({ jobId, kind }) => jobId === id && kind === 'outcome'),
      );
      const { token } = await leaseOf(stand, id);
      const repeated = await recorder.until(SOON_MS * 2, 'the outcome was not repeated', () =>
        findRepeats(recorder, token).at(0),
      );
      demandSame(repeated.second, repeated.first, 'the repeated report');
      await demandOutput(stand, id, 'once');
    },
  },
  {
    area: 'report',
    rule: 'neither loses nor repeats chunks if answers are lost',
    async run(stand) {
      const { recorder } = stand;
      const size = { count: 60, bytes: 20_000 };
      const id = await stand.submit({ do: 'stream', ...size });
      for (let lost = 0; lost < 3; lost++) {
        recorder.loseAnswer('report', ({ reports }) => reports.some(({ jobId }) => jobId === id));
      }
      await demandOutput(stand, id, listYields(size));
    },
  },
  {
    area: 'take',
    rule: 'repeats a take whose answer was lost, or does not name its leases as held',
    async run(stand) {
      stand.recorder.loseAnswer('take', (_, leases) => (leases?.length ?? 0) > 0);
      const id = await stand.submit({ do: 'echo', value: 'found' });
      await demandOutput(stand, id, 'found');
    },
  },
  {
    area: 'hello',
    rule: 'says hello again if the platform no longer knows the worker',
    async run(stand) {
      const { recorder } = stand;
      const before = recorder.calls.hello.length;
      recorder.answerNext('take', () => {
        throw new LinkError('unknown_worker', 'this worker has not said hello');
      });
      await recorder.until(SOON_MS, 'the worker sent no hello', () => recorder.calls.hello[before]);
      await demandWork(stand, SOON_MS);
    },
  },
  {
    area: 'pace',
    rule: 'waits the requested time before it repeats a call',
    async run(stand) {
      const { recorder } = stand;
      const waitMs = 2_000;
      const { promise: refused, resolve } = Promise.withResolvers<number>();
      recorder.answerNext('take', () => {
        resolve(Date.now());
        throw new LinkError('unavailable', 'try again later', { retryAfterMs: waitMs });
      });
      const at = await refused;
      const next = await recorder.until(SOON_MS, 'the take was not repeated', () =>
        recorder.calls.take.find((take) => take.at > at),
      );
      demand(
        next.at - at >= waitMs - 50,
        `the take was repeated after ${next.at - at} ms instead of ${waitMs} ms`,
      );
    },
  },
  {
    area: 'network',
    rule: 'recovers from half-open connections',
    async run(stand) {
      stand.killConnections();
      await demandWork(stand, HALF_OPEN_MS);
      // Half-open connections that the worker has not used since must not disturb later checks.
      stand.resetDeadConnections();
    },
  },
];

/** Rules over all calls so far. */
export const allAlongChecks: readonly ConformanceCheck<WorkerStand>[] = [
  {
    area: 'identity',
    rule: 'sends the same worker ID and incarnation in every call',
    run({ recorder }) {
      const names = recorder.order.map(
        ({ request }) => `${request.workerId}/${request.incarnation}`,
      );
      demandSame([...new Set(names)].length, 1, 'the number of identities');
    },
  },
  {
    area: 'held',
    rule: 'names all held leases in each take',
    run({ recorder }) {
      const unheld = findUnheld(recorder);
      demand(unheld === undefined, `a take did not name the lease of job ${unheld}`);
    },
  },
  {
    area: 'outcome',
    rule: 'is the last report of an attempt once it is answered',
    run({ recorder }) {
      const broken = findReportAfterOutcome(recorder);
      demand(
        broken === undefined,
        `the worker sent a report after the answered outcome of job ${broken}`,
      );
    },
  },
];

interface Repeat {
  first: Pick<ReportHeader, 'seq'> & { body: string };
  second: Repeat['first'];
}

/** Repeated reports of an outcome with this token. */
function findRepeats({ calls }: CallRecorder, token: string): Repeat[] {
  const said = calls.report
    .flatMap(({ request }) => request.reports)
    .filter((report) => report.kind === 'outcome' && report.token === token)
    .map(({ body, ...header }) => ({ ...header, body: Buffer.from(body).toString() }));
  const [first, ...others] = said;
  return first ? others.map((second) => ({ first, second })) : [];
}

/** Returns the job of a lease that a take did not name, although the worker held it. */
function findUnheld({ calls }: CallRecorder): string | undefined {
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
function findReportAfterOutcome({ calls }: CallRecorder): string | undefined {
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
