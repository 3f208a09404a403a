// What a platform has to do with leases: kept, cancelled, run out, given back. Most wait in real time.
import type { JobRecord } from '../../wire/job.ts';
import type { Lease } from '../../wire/link/worker-link.ts';
import { type Check, demandSame, within } from '../checks.ts';
import { chunksOf, completed, outcomeOf } from '../words.ts';
import {
  demandRefusal,
  enter,
  meet,
  type PlatformStage,
  sleep,
  untilRecord,
  type Visitor,
} from './scripted-worker.ts';

/** An answer that is to come at once may take so long. */
const AT_ONCE_MS = 2_000;
const MARGIN_MS = 2_000;

function isIn(...statuses: JobRecord['status'][]) {
  return ({ status }: JobRecord) => statuses.includes(status);
}

const keeping: Check<PlatformStage>[] = [
  {
    area: 'cancel',
    rule: 'answers a renewal that waits at once, and takes the outcome without changing the status',
    async run(stage) {
      const { hand, id, lease } = await meet(stage);
      await hand.renew([lease]);
      const renew = hand.renew([lease], Math.max(stage.terms.renewEveryMs, 5_000));
      await sleep(100);
      await stage.client.cancel(id);
      const { ended } = await within(AT_ONCE_MS, 'the renewal was not answered', renew);
      demandSame(ended, [{ jobId: id, token: lease.token, verdict: 'cancelled' }], 'the answer');
      const chunk = await hand.report(chunksOf(lease, 1, 0, ['late']));
      demandSame(chunk, [{ answer: 'superseded' }], 'the answer to a chunk after that');
      const end = await hand.finish(lease, {
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
    rule: 'keeps a lease beyond its time',
    async run(stage) {
      const { hand, id, lease } = await meet(stage);
      const other = await enter(stage);
      const until = Date.now() + Math.ceil(stage.terms.leaseMs * 1.3);
      while (Date.now() < until) {
        const leftMs = Math.max(0, until - Date.now());
        const { ended } = await hand.renew([lease], Math.min(stage.terms.renewEveryMs, leftMs));
        demandSame(ended, [], 'the leases that ended');
      }
      demandSame(await other.take(), [], 'what another worker is given');
      demandSame((await stage.client.status(id)).attempt, 1, 'the attempt');
    },
  },
  {
    area: 'fencing',
    rule: 'gives a job whose lease ran out to another worker, and nothing of the old token counts then',
    async run(stage) {
      const { hand: slow, id, lease: old } = await meet(stage);
      await slow.renew([old]);
      const other = await enter(stage);
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
    rule: 'goes on taking the old token while nobody else has the job',
    async run(stage) {
      const { hand, id, lease } = await meet(stage);
      await hand.renew([lease]);
      await untilRecord(stage, id, isIn('IN_QUEUE'), stage.terms.leaseMs + MARGIN_MS * 2);
      const end = await hand.finish(lease, completed, '"late"');
      demandSame(end?.answer, 'applied', 'the answer to the outcome');
      const { output, status } = await stage.client.status(id);
      demandSame({ output, status }, { output: 'late', status: 'COMPLETED' }, 'the job');
    },
  },
];

/** The job, once its lease has run out. */
async function retake(stage: PlatformStage, hand: Visitor, id: string): Promise<Lease> {
  const until = Date.now() + stage.terms.leaseMs + MARGIN_MS * 2;
  while (Date.now() < until) {
    const [lease] = await hand.take({ waitMs: Math.min(1_000, stage.terms.takeWaitMs) });
    if (lease) return lease;
    await hand.renew([]);
  }
  return hand.takeJob(id);
}

const byes: Check<PlatformStage>[] = [
  {
    area: 'bye',
    rule: 'of a drained worker gives its jobs back at once, and may be said again',
    async run(stage) {
      const { hand, id } = await meet(stage);
      await hand.bye('drained');
      await hand.bye('drained');
      await demandRefusal(hand.take(), 'unknown_worker', 'a take after bye');
      const other = await enter(stage);
      demandSame((await other.takeJob(id)).attempt, 2, 'the attempt');
    },
  },
  {
    area: 'bye',
    rule: 'of a crashed one has its job run alone next',
    async run(stage) {
      const { hand, id, lease } = await meet(stage);
      await hand.renew([lease]);
      await hand.bye('crashed');
      const again = await (await enter(stage)).takeJob(id);
      demandSame(
        { solo: again.solo, attempt: again.attempt },
        { solo: true, attempt: 2 },
        'the lease',
      );
    },
  },
];

export const leaseChecks: readonly Check<PlatformStage>[] = [...keeping, ...byes];
