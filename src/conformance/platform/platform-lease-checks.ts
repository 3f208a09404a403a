// Checks how a platform handles leases: extended, cancelled, expired, returned. Most wait in real
// time.
import type { JobRecord } from '../../wire/job/job-records.ts';
import type { Lease } from '../../wire/link/worker-link.ts';
import { begin, type ConformanceCheck, demandSame, within } from '../checks.ts';
import {
  chunksOf,
  completed,
  connectWorker,
  demandRefusal,
  type PlatformStage,
  type ScriptedWorker,
  startJob,
  supportedReports,
  untilRecord,
} from './scripted-worker.ts';

const MARGIN_MS = 4_000;

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
      const renew = begin(worker.renew([lease], Math.max(stage.terms.renewEveryMs, 5_000)));
      await stage.time.pass(100);
      await stage.client.cancel(id);
      const { answerMs } = stage.time;
      const { ended } = await within(answerMs, 'the renewal was not answered', renew);
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
      const { leaseMs, renewEveryMs } = stage.terms;
      const { now, pass } = stage.time;
      const until = now() + Math.ceil(leaseMs * 1.3);
      while (now() < until) {
        const { ended } = await worker.renew([lease]);
        demandSame(ended, [], 'the ended leases');
        await pass(Math.min(renewEveryMs, until - now()));
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
      for (const make of supportedReports(stage)) {
        const late = await slow.report(make(old, 1));
        demandSame(late, [{ answer: 'superseded' }], 'the answer to a late report');
      }
      const { progress, status } = await stage.client.status(id);
      demandSame({ progress, status }, { status: 'IN_PROGRESS' }, 'the job after the late reports');
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
      await untilRecord(stage, id, isIn('IN_QUEUE'), stage.terms.leaseMs + MARGIN_MS);
      const end = await worker.finish(lease, completed, '"late"');
      demandSame(end?.answer, 'applied', 'the answer to the outcome');
      const { output, status } = await stage.client.status(id);
      demandSame({ output, status }, { output: 'late', status: 'COMPLETED' }, 'the job');
    },
  },
];

/** Takes the job once its lease has expired. */
async function retake(stage: PlatformStage, worker: ScriptedWorker, id: string): Promise<Lease> {
  const until = stage.time.now() + stage.terms.leaseMs + MARGIN_MS;
  while (stage.time.now() < until) {
    const [lease] = await worker.take();
    if (lease) return lease;
    await worker.renew([]);
    await stage.time.pass(200);
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
