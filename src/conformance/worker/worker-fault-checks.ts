// What a worker has to do when its network or its platform does not, and what holds for all it has said.
import { LinkError } from '../../wire/link/worker-link.ts';
import { listYields } from '../check-inputs.ts';
import { type Check, demand, demandSame } from '../checks.ts';
import { demandOutput, demandWork, leaseOf, SOON_MS } from './worker-asks.ts';
import { findRepeats, findSilenceBroken, findUnheld } from './worker-rules.ts';
import type { WorkerStand } from './worker-stand.ts';

/** A dead connection tells nobody: until the end of the longest wait, and what comes on top. */
const HALF_OPEN_MS = 60_000;

export const faultChecks: readonly Check<WorkerStand>[] = [
  {
    area: 'report',
    rule: 'repeats an outcome whose answer was lost, unchanged, until it is answered',
    async run(stand) {
      const { witness } = stand;
      const id = await stand.submit({ do: 'echo', value: 'once', ms: 100 });
      witness.loseAnswer('report', ({ reports }) =>
        reports.some(({ jobId, kind }) => jobId === id && kind === 'outcome'),
      );
      const { token } = await leaseOf(stand, id);
      const repeated = await witness.until(SOON_MS * 2, 'the outcome was not repeated', () =>
        findRepeats(witness, token).at(0),
      );
      demandSame(repeated.second, repeated.first, 'the repeated report');
      await demandOutput(stand, id, 'once');
    },
  },
  {
    area: 'report',
    rule: 'loses and doubles no chunk when answers are lost',
    async run(stand) {
      const { witness } = stand;
      const size = { count: 60, bytes: 20_000 };
      const id = await stand.submit({ do: 'stream', ...size });
      for (let lost = 0; lost < 3; lost++) {
        witness.loseAnswer('report', ({ reports }) => reports.some(({ jobId }) => jobId === id));
      }
      await demandOutput(stand, id, listYields(size));
    },
  },
  {
    area: 'take',
    rule: 'asks again by the same takeId when the answer was lost, or names the lease as not held',
    async run(stand) {
      stand.witness.loseAnswer('take', (_, leases) => (leases?.length ?? 0) > 0);
      const id = await stand.submit({ do: 'echo', value: 'found' });
      await demandOutput(stand, id, 'found');
    },
  },
  {
    area: 'hello',
    rule: 'says hello again when the platform does not know it any more',
    async run(stand) {
      const { witness } = stand;
      const before = witness.calls.hello.length;
      witness.answerNext('take', () => {
        throw new LinkError('unknown_worker', 'this worker has not said hello');
      });
      await witness.until(SOON_MS, 'no hello came', () => witness.calls.hello[before]);
      await demandWork(stand, SOON_MS);
    },
  },
  {
    area: 'pace',
    rule: 'waits as long as it is asked to before it repeats a call',
    async run(stand) {
      const { witness } = stand;
      const waitMs = 2_000;
      const { promise: refused, resolve } = Promise.withResolvers<number>();
      witness.answerNext('take', () => {
        resolve(Date.now());
        throw new LinkError('unavailable', 'not now', { retryAfterMs: waitMs });
      });
      const at = await refused;
      const next = await witness.until(SOON_MS, 'the take was not repeated', () =>
        witness.calls.take.find((take) => take.at > at),
      );
      demand(next.at - at >= waitMs - 50, `it came again after ${next.at - at} ms, not ${waitMs}`);
    },
  },
  {
    area: 'network',
    rule: 'goes on after its connections were half-open',
    async run(stand) {
      stand.killConnections();
      await demandWork(stand, HALF_OPEN_MS);
      // Those that the worker has not used since are no matter of the checks to come.
      stand.buryConnections();
    },
  },
];

/** Of all that the worker has said so far. */
export const allAlongChecks: readonly Check<WorkerStand>[] = [
  {
    area: 'identity',
    rule: 'keeps its worker id and incarnation in every call',
    run({ witness }) {
      const names = witness.order.map(
        ({ request }) => `${request.workerId}/${request.incarnation}`,
      );
      demandSame([...new Set(names)].length, 1, 'the identities of one process');
    },
  },
  {
    area: 'held',
    rule: 'names in each take the leases that it holds',
    run({ witness }) {
      const unheld = findUnheld(witness);
      demand(unheld === undefined, `a take did not name the lease of job ${unheld}`);
    },
  },
  {
    area: 'outcome',
    rule: 'is the last word on an attempt, and is said once when it was answered',
    run({ witness }) {
      const broken = findSilenceBroken(witness);
      demand(broken === undefined, `a report came after the answered outcome of job ${broken}`);
    },
  },
];
