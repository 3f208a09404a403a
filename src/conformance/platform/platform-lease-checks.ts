// Checks how a platform handles leases: extended, cancelled, expired, returned. Most wait in real
// time.
import type { JobRecord } from '../../wire/job/job.ts';
import type { Lease } from '../../wire/link/worker-link.ts';
import { type ConformanceCheck, demandSame, within } from '../checks.ts';
import {
  chunksOf,
  completed,
  connectWorker,
  demandRefusal,
  outcomeOf,
  type PlatformStage,
  type ScriptedWorker,
  sleep,
  startJob,
  untilRecord,
} from './scripted-worker.ts';

/** Limit for an answer that must come at once. */
const AT_ONCE_MS = 2_000;
const MARGIN_MS = 2_000;

function isIn(...statuses: JobRecord['status'][]) {
  return ({ status }: JobRecord) => statuses.includes(status);
}

const keeping: ConformanceCheck<PlatformStage>[] = [
  {
    area: 'cancel',
    rule: 'answers a waiting renewal at once and accepts the outcome without changing the status',
    async run(stage) {
      const { worker, id, lease } = await startJob(stage);
      await worker.renew([lease]);
      const renew = worker.renew([lease], Math.max(stage.terms.renewEveryMs, 5_000));
      await sleep(100);
      await stage.client.cancel(id);
      const { ended } = await within(AT_ONCE_MS, 'the renewal was not answered', renew);
      demandSame(
        ended,
        [{ jobId: id, token: lease.token, verdict: 'cancelled' }],
        'the ended leases',
      );
      const chunk = await worker.report(chunksOf(lease, 1, 0, ['late']));
      demandSame(chunk, [{ answer: 'superseded' }], 'the answer to a chunk after the cancel');
      const end = await worker.finish(lease, {
        kind: 'cancelled',
        executionMs: 5,
        stopped: 'signal',
      });
      demandSame(end?.answer, 'applied', 'the answer to the outcome');
      demandSame((await stage.client.status(id)).status, 'CANCELLED', 'the status');
    },
  },
  {
    area: 'renew',
    rule: 'extends the lease',
    async run(stage) {
      const { worker, id, lease } = await startJob(stage);
      const other = await connectWorker(stage);
      const until = Date.now() + Math.ceil(stage.terms.leaseMs * 1.3);
      while (Date.now() < until) {
        const leftMs = Math.max(0, until - Date.now());
        const { ended } = await worker.renew([lease], Math.min(stage.terms.renewEveryMs, leftMs));
        demandSame(ended, [], 'the ended leases');
      }
      demandSame(await other.take(), [], 'the leases of another worker');
      demandSame((await stage.client.status(id)).attempt, 1, 'the attempt');
    },
  },
  {
    area: 'fencing',
    rule: 'gives a job with an expired lease to another worker and then ignores the old token',
    async run(stage) {
      const { worker: slow, id, lease: old } = await startJob(stage);
      await slow.renew([old]);
      const other = await connectWorker(stage);
      const fresh = await retake(stage, other, id);
      demandSame(fresh.attempt, old.attempt + 1, 'the attempt');
      const late = await slow.report(outcomeOf(old, 1, completed, '"old"'));
      demandSame(late, [{ answer: 'superseded' }], 'the answer to the late outcome');
      const { ended } = await slow.renew([old]);
      demandSame(
        ended.map(({ verdict }) => verdict),
        ['lost'],
        'the verdict on the old lease',
      );
      await other.finish(fresh, completed, '"new"');
      demandSame((await stage.client.status(id)).output, 'new', 'the output');
    },
  },
  {
    area: 'fencing',
    rule: 'accepts the token of an expired lease until another worker gets the job',
    async run(stage) {
      const { worker, id, lease } = await startJob(stage);
      await worker.renew([lease]);
      await untilRecord(stage, id, isIn('IN_QUEUE'), stage.terms.leaseMs + MARGIN_MS * 2);
      const end = await worker.finish(lease, completed, '"late"');
      demandSame(end?.answer, 'applied', 'the answer to the outcome');
      const { output, status } = await stage.client.status(id);
      demandSame({ output, status }, { output: 'late', status: 'COMPLETED' }, 'the job');
    },
  },
];

/** Takes the job once its lease has expired. */
async function retake(stage: PlatformStage, worker: ScriptedWorker, id: string): Promise<Lease> {
  const until = Date.now() + stage.terms.leaseMs + MARGIN_MS * 2;
  while (Date.now() < until) {
    const [lease] = await worker.take({ waitMs: Math.min(1_000, stage.terms.takeWaitMs) });
    if (lease) return lease;
    await worker.renew([]);
  }
  return worker.takeJob(id);
}

const byes: ConformanceCheck<PlatformStage>[] = [
  {
    area: 'bye',
    rule: 'returns the jobs of a drained worker at once and may be repeated',
    async run(stage) {
      const { worker, id } = await startJob(stage);
      await worker.bye('drained');
      await worker.bye('drained');
      await demandRefusal(worker.take(), 'unknown_worker', 'a take after bye');
      const other = await connectWorker(stage);
      demandSame((await other.takeJob(id)).attempt, 2, 'the attempt');
    },
  },
  {
    area: 'bye',
    rule: 'makes the job of a crashed worker run alone next',
    async run(stage) {
      const { worker, id, lease } = await startJob(stage);
      await worker.renew([lease]);
      await worker.bye('crashed');
      const again = await (await connectWorker(stage)).takeJob(id);
      demandSame(
        { solo: again.solo, attempt: again.attempt },
        { solo: true, attempt: 2 },
        'the lease',
      );
    },
  },
];

export const leaseChecks: readonly ConformanceCheck<PlatformStage>[] = [...keeping, ...byes];
