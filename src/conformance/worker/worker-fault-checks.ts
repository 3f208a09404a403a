// Checks how a worker handles faults of the network and the platform, and rules over all its calls.
import { LinkError } from '../../wire/link/worker-link.ts';
import { listYields } from '../check-inputs.ts';
import { type ConformanceCheck, demand, demandSame } from '../checks.ts';
import { findRepeats, findReportAfterOutcome, findUnheld } from './worker-rules.ts';
import type { WorkerStand } from './worker-stand.ts';
import { demandOutput, demandWork, leaseOf, SOON_MS } from './worker-waits.ts';

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
