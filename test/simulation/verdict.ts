// Checks how every job ended after a seed has been played.

import { isTerminal, type ParentReference } from '../../src/wire/job/job.ts';
import type { JobRecord } from '../../src/wire/job/job-records.ts';
import { expectChunks, expectOutput, type JobPlan } from './job-plan.ts';
import type { Ledger } from './ledger.ts';

const LOSSES: ReadonlySet<string> = new Set([
  'lease_expired',
  'worker_crashed',
  'released_too_often',
]);

/** A job as its clients know it. */
export interface PlayedJob {
  id: string;
  plan: JobPlan;
  /** Default: none. */
  parents?: readonly ParentReference[];
  /** Undefined if the job is no longer stored. */
  record: JobRecord | undefined;
  /** The platform accepted a cancel. */
  isCancelled: boolean;
  /** A client did not learn what became of its cancel. Default: false. */
  mayBeCancelled?: boolean;
  /** A client set a short TTL, or deleted the job. */
  isDoomed: boolean;
  /** A client deleted a parent, perhaps with an output that the job needs. Default: false. */
  isOrphan?: boolean;
  /** The chunks that a client read; undefined if no client read the stream. */
  streamed: readonly unknown[] | undefined;
}

export interface JudgedWorld {
  /** Only jobs cause faults. */
  readonly isSheltered: boolean;
  readonly ledger: Ledger;
  /** The outputs of the chunks of the job's last attempt. */
  readChunks(id: string): Promise<unknown[] | undefined>;
}

/** Returns the faults of a job. */
export async function judgeJob(world: JudgedWorld, job: PlayedJob): Promise<string[]> {
  const { record, isDoomed } = job;
  if (!record) return isDoomed ? [] : [`job ${job.id}: is no longer stored`];
  const flaws = [...judgeEnd(world, job, record), ...judgeReports(world, job, record)];
  if (record.status === 'COMPLETED') flaws.push(...(await judgeOutput(world, job, record)));
  return flaws.map((flaw) => `job ${job.id}: ${flaw}: ${JSON.stringify(record)}`);
}

function* judgeEnd(
  world: JudgedWorld,
  { id, parents = [], plan, isCancelled, isOrphan = false, mayBeCancelled = false }: PlayedJob,
  record: JobRecord,
): Generator<string> {
  const { status } = record;
  if (!isTerminal(status)) return yield 'has not ended';
  if (record.error?.code === 'parent_failed') {
    if (parents.length === 0) yield 'failed because of a parent that it does not have';
    const runsOn = !isOrphan && parents.every(({ onFailure }) => onFailure === 'run');
    if (status === 'FAILED' && runsOn)
      yield 'failed because of a parent, though it runs nevertheless';
    return;
  }
  const wasCancelled = status === 'CANCELLED';
  const isExpected = isCancelled === wasCancelled || (mayBeCancelled && wasCancelled);
  if (!isExpected) yield 'has a status that contradicts its cancel';
  if (wasCancelled) return;
  if (status === 'TIMED_OUT' && plan.fate !== 'overruns') {
    yield 'timed out, though it is quick';
  }
  if (status === 'COMPLETED' && plan.fate !== 'ends') yield 'completed, though it cannot';
  if (status === 'FAILED' && !mayFail(plan, record)) yield 'failed without a reason';
  if (!world.isSheltered) return;
  // In a sheltered world only jobs cause faults, and no job may fail because of another.
  const losses = world.ledger.job(id)?.history.filter(({ code }) => LOSSES.has(code)) ?? [];
  const suffers = status !== 'COMPLETED' || losses.length > 0;
  if (plan.fate === 'ends' && suffers)
    yield `suffers for what others did, ${JSON.stringify(losses)}`;
  if (plan.fate === 'kills' && status !== 'FAILED') yield 'kills its process and is not FAILED';
  const survived = world.ledger.survived.get(id) ?? record.attempt;
  if (survived !== record.attempt) yield `ran again after attempt ${survived}, which survived`;
  if (plan.fate === 'overruns' && status !== 'TIMED_OUT') yield 'overran and is not TIMED_OUT';
}

/** A job may fail after three attempts, each lost with its process or failed as planned. */
function mayFail({ failures, gpu = 0 }: JobPlan, { error }: JobRecord): boolean {
  const codes = error?.attempts.map(({ code }) => code) ?? [];
  const handlerErrors = codes.filter((code) => code === 'handler_error').length;
  const losses = codes.filter((code) => LOSSES.has(code)).length;
  // At most once on each type that is too small.
  const gpus = codes.filter((code) => code === 'gpu_out_of_memory').length;
  const isPlanned = handlerErrors <= failures && gpus <= gpu;
  return isPlanned && handlerErrors + losses + gpus === codes.length && codes.length === 3;
}

/** The job reflects every acknowledged outcome, unless a client cancelled or retried it. */
function* judgeReports(
  world: JudgedWorld,
  { id, isCancelled }: PlayedJob,
  record: JobRecord,
): Generator<string> {
  const { ledger } = world;
  if (isCancelled || record.status === 'CANCELLED') return;
  for (const [attempt, kind] of ledger.acknowledged.get(id) ?? []) {
    const isKept = record.status === 'COMPLETED' && record.attempt === attempt;
    if (kind === 'completed' && !isKept) yield `the completion of attempt ${attempt} is lost`;
    if (kind !== 'failed' || ledger.retried.has(id)) continue;
    const { history = [], notes = [] } = ledger.job(id) ?? {};
    const isCounted = history.some((failure) => failure.attempt === attempt);
    const isPostponed = notes.some(
      (note) => note.event === 'postponed' && note.attempt === attempt,
    );
    if (!isCounted && !isPostponed) yield `the failure of attempt ${attempt} is lost`;
  }
}

async function judgeOutput(
  world: JudgedWorld,
  { id, isDoomed, plan, streamed }: PlayedJob,
  { attempt, output }: JobRecord,
): Promise<string[]> {
  const flaws: string[] = [];
  const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);
  if (!same(output, expectOutput(plan, attempt))) flaws.push('wrong output');
  const expected = expectChunks(plan, attempt);
  const chunks = await world.readChunks(id);
  // Its time to live may have ended after its record was read.
  const isRemoved = isDoomed && chunks === undefined;
  if (!isRemoved && !same(chunks, expected)) {
    flaws.push(`has the chunks ${JSON.stringify(chunks)}`);
  }
  if (streamed && !same(streamed, expected)) {
    flaws.push(`a client has read ${JSON.stringify(streamed)}`);
  }
  return flaws;
}
