// Binds jobs to the jobs that must end before they start: new ones, and those that a client retries.
import type {
  JobChild,
  JobKey,
  JobParent,
  Payload,
  Reader,
  StoredJob,
  Transaction,
} from '../store/store.ts';
import { LIMITS, type ParentEnd, type ParentReference } from '../wire/job/job.ts';
import { ProblemError } from '../wire/problem.ts';
import type { Submission } from './admission.ts';
import type { StepOn } from './changes.ts';
import { describeEnd, NO_LINKS, nameParent, waitForParents } from './lifecycle/links.ts';
import type { Decision } from './lifecycle/transition.ts';

interface NewChild {
  job: StoredJob;
  input: Payload;
  submission: Submission;
}

/**
 * Inserts a job that waits. If its parents have ended already, that has its effect in the same commit. @returns the
 * job as it is then. @throws ProblemError `invalid`; then nothing has changed
 */
export function insertChild(
  tx: Transaction,
  step: StepOn,
  { input, job, submission: { after = [], policy } }: NewChild,
): StoredJob {
  const found = readParents(tx, job, after);
  const parents = found.map((parent, index): JobParent => {
    const { as, onFailure = 'fail' } = after[index] ?? {};
    const { endpointId, id } = parent;
    return { endpointId, id, onFailure, ...(as !== undefined && { as }) };
  });
  // Refused for a parent that has ended, and whose output is not read.
  for (const [index, parent] of found.entries()) {
    step(parent, { type: 'child_added', child: toChild(job, parents[index]?.as) });
  }
  const links = { ...NO_LINKS, parents, delayMs: policy.delay ?? 0 };
  const waiting = waitForParents({ ...job, linked: true, links }, { now: job.submittedAt });
  tx.insertJob(waiting, input);
  const ends = found.flatMap((parent) => {
    const status = describeEnd(parent);
    return status === undefined ? [] : [{ parent, status }];
  });
  if (ends.length === 0) return waiting;
  const decision = step(waiting, { type: 'parents_ended', ends });
  return 'refused' in decision ? waiting : decision.job;
}

/** The child as its parent knows it. `as`: of the edge. */
export function toChild({ endpointId, id }: JobKey, as: string | undefined): JobChild {
  return { endpointId, id, ...(as !== undefined && { reads: true }) };
}

/** @throws ProblemError `invalid` that names each parent that is none */
function readParents(tx: Reader, child: JobKey, after: readonly ParentReference[]): StoredJob[] {
  const keys = after.map(({ endpoint, id }) => ({ endpointId: endpoint ?? child.endpointId, id }));
  const owner = tx.endpoint(child.endpointId)?.userId;
  const found = tx.each(keys, (key) => {
    const endpoint = tx.endpoint(key.endpointId);
    const isOwn = endpoint?.userId === owner && endpoint?.deleted === false;
    return isOwn ? tx.job(key) : undefined;
  });
  const seen = new Set<string>();
  const errors = findRepeated(after.map(({ as }) => as)).map(
    (index) => `after[${index}].as: "${after[index]?.as}" is the member of another parent`,
  );
  for (const [index, key] of keys.entries()) {
    const name = `${key.endpointId}/${key.id}`;
    const reason = seen.has(name) ? `job ${key.id} is named twice` : judgeParent(key, found[index]);
    if (reason !== undefined) errors.push(`after[${index}]: ${reason}`);
    seen.add(name);
  }
  if (errors.length === 0) return found.filter((job) => job !== undefined);
  const detail = `The job cannot wait for its parents: ${errors[0]}`;
  throw new ProblemError('invalid', detail, { errors });
}

/** Indexes of the names that are there before. */
export function findRepeated(names: readonly (string | undefined)[]): number[] {
  const seen = new Set<string | undefined>();
  return names.flatMap((name, index) => {
    if (name !== undefined && seen.has(name)) return [index];
    seen.add(name);
    return [];
  });
}

function judgeParent(
  { endpointId, id }: JobKey,
  parent: StoredJob | undefined,
): string | undefined {
  if (!parent) return `job ${id} of endpoint ${endpointId} not found or expired`;
  const { children = [], readers = [] } = parent.links ?? {};
  if (children.length + readers.length < LIMITS.childrenOfJob) return undefined;
  return `${LIMITS.childrenOfJob} jobs wait for job ${id} already, the most that may`;
}

/** Ends after which a job can be retried. */
export const RETRIABLE: ReadonlySet<ParentEnd | undefined> = new Set([
  'FAILED',
  'TIMED_OUT',
  'SKIPPED',
]);

/** Queues the job again: it waits for those of its parents that run again. */
export function retryJob(tx: Transaction, step: StepOn, job: StoredJob): Decision {
  // A job that is not retried must not become a child of its parents again.
  const parents = RETRIABLE.has(describeEnd(job)) ? renewParents(tx, step, job) : undefined;
  return parents && 'refused' in parents ? parents : step(job, { type: 'retry', parents });
}

/** The parents as they are now. Undefined for a job without parents. */
function renewParents(
  tx: Transaction,
  step: StepOn,
  job: StoredJob,
): JobParent[] | { refused: string } | undefined {
  if (!job.links || job.links.parents.length === 0) return undefined;
  const { endpointId, id } = job;
  const failed = job.links.parents.filter(({ ended }) => ended !== 'COMPLETED');
  const found = new Map(
    tx.each(failed, (parent) => [parent, tx.job(parent)] as const).filter(([, now]) => now),
  );
  const renewed: JobParent[] = [];
  for (const parent of job.links.parents) {
    const now = found.get(parent);
    if (!now) {
      renewed.push(parent);
      continue;
    }
    const { ended: _, ...open } = parent;
    const ended = describeEnd(now);
    const { children = [], readers = [] } = now.links ?? {};
    const isKnown = [...children, ...readers].some(
      (child) => child.id === id && child.endpointId === endpointId,
    );
    if (!isKnown) {
      const decision = step(now, { type: 'child_added', child: toChild(job, parent.as) });
      // A parent that does not know the child would never tell it.
      if (ended === undefined && 'refused' in decision) {
        return { refused: `of its parent ${nameParent(job, parent)}: ${decision.refused}` };
      }
    }
    renewed.push(ended === undefined ? open : { ...open, ended });
  }
  return renewed;
}
