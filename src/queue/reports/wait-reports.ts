// Handles the report of an attempt that ends as waiting: reads what it waits for, and starts that in the operation that ends the
// attempt. If that cannot be started, the attempt fails.
import type { JobKey, StoredJob, Transaction } from '../../store/store.ts';
import { isTerminal, LIMITS } from '../../wire/job/job.ts';
import { waitList } from '../../wire/job/job-schemas.ts';
import type { Outcome, Report, ReportReply } from '../../wire/link/worker-link.ts';
import { formatPath } from '../../wire/problem.ts';
import type { StepOn } from '../changes.ts';
import type { Peers } from '../handover/peers.ts';
import { boundOutcome, boundSpan, boundUsage } from '../lifecycle/attempt-end.ts';
import { judgeReport } from '../lifecycle/lifecycle.ts';
import {
  type AskedWait,
  keyOfChild,
  type StartedWait,
  startWait,
  WaitRefusal,
} from '../steps/children.ts';

const APPLIED: ReportReply = { answer: 'applied' };

export type WaitReport = Extract<Report, { kind: 'outcome' }>;

/** What the attempt waits for, or why it cannot. */
export function readWait(
  { body }: WaitReport,
  job: Pick<StoredJob, 'endpointId' | 'id' | 'submittedAt'>,
  { nextPosition, peers }: { nextPosition: () => number; peers: Pick<Peers, 'shard' | 'shardOf'> },
): AskedWait | WaitRefusal {
  if (body.length > LIMITS.waitBytes) {
    return new WaitRefusal(
      `the children have ${body.length} bytes of JSON; the limit is ${LIMITS.waitBytes}`,
    );
  }
  const read = waitList.safeParse(JSON.parse(Buffer.from(body).toString() || 'null'));
  if (!read.success) {
    const { message, path } = read.error.issues[0] ?? { path: [], message: 'is invalid' };
    return new WaitRefusal(`${formatPath(path, 'waits')}: ${message}`);
  }
  return {
    sleeps: read.data.filter((wait) => wait.kind === 'sleep'),
    children: read.data
      .filter((wait) => wait.kind === 'child')
      .map((child) => {
        const key = keyOfChild(job, child);
        // That of an unknown endpoint does not matter.
        const shard = peers.shardOf(key.endpointId) ?? peers.shard;
        return {
          ...child,
          ...key,
          input: Buffer.from(JSON.stringify(child.input)),
          position: nextPosition(),
          ...(shard !== peers.shard && { shard }),
        };
      }),
  };
}

interface WaitHandling {
  key: JobKey;
  report: WaitReport;
  asked: AskedWait | WaitRefusal;
  now: number;
}

export function handleWait(
  tx: Transaction,
  step: StepOn,
  { asked, key, now, report }: WaitHandling,
): { reply: ReportReply; inserted: StoredJob[] } {
  const job = tx.job(key);
  const verdict = judgeReport(job, report);
  if (verdict !== 'apply' || !job) {
    return { reply: verdict === 'apply' ? APPLIED : verdict, inserted: [] };
  }
  const about = {
    seq: report.seq,
    usage: boundUsage(report.usage),
    waitedMs: boundSpan(report.waitedMs ?? 0),
  };
  const started = isTerminal(job.status) ? undefined : tryWait(tx, step, { asked, job, now });
  if (started instanceof WaitRefusal) {
    const { isTemporary, message } = started;
    const executionMs = 'executionMs' in report.outcome ? report.outcome.executionMs : 0;
    const outcome: Outcome = {
      ...{ kind: 'failed', executionMs, error: { code: 'wait_failed', message } },
      retry: isTemporary ? 'default' : 'never',
    };
    step(job, { type: 'outcome', outcome: boundOutcome(outcome, NO_OUTPUT), ...about });
    return { reply: APPLIED, inserted: [] };
  }
  const outcome = boundOutcome(report.outcome, NO_OUTPUT);
  const decision = step(job, { type: 'outcome', outcome, wait: started?.wait, ...about });
  if (started && started.ends.length > 0 && !('refused' in decision)) {
    step(decision.job, { type: 'parents_ended', ends: started.ends });
  }
  return { reply: APPLIED, inserted: started?.inserted ?? [] };
}

const NO_OUTPUT = { bytes: 0, maxBytes: 0 };

function tryWait(
  tx: Transaction,
  step: StepOn,
  { asked, job, now }: { job: StoredJob; asked: AskedWait | WaitRefusal; now: number },
): StartedWait | WaitRefusal {
  if (asked instanceof WaitRefusal) return asked;
  try {
    return startWait(tx, step, { job, asked, now });
  } catch (error) {
    if (error instanceof WaitRefusal) return error;
    throw error;
  }
}
