// Binds jobs to the jobs that must end before they start: new ones, and those that a client retries.
import type {
  JobChild,
  JobKey,
  JobParent,
  Payload,
  Reader,
  StoredJob,
  Transaction,
} from '../../store/store.ts';
import { LIMITS, type ParentEnd, type ParentReference } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { Submission } from '../admission.ts';
import type { StepOn } from '../changes.ts';
import { cut } from '../handover/messages.ts';
import { type FoundParents, nameParentKey, type RemoteParent } from '../handover/remote-jobs.ts';
import {
  describeEnd,
  isObstacle,
  NO_LINKS,
  nameParent,
  waitForParents,
} from '../lifecycle/links.ts';
import type { Decision } from '../lifecycle/transition.ts';

interface NewChild {
  job: StoredJob;
  input: Payload;
  submission: Submission;
  /** Of other shards. */
  remote: FoundParents;
}

/** A parent of a new job. */
interface FoundParent extends JobKey {
  status: ParentEnd | undefined;
  /** Undefined: it is in another shard. */
  job: StoredJob | undefined;
  shard: number | undefined;
  isFull: boolean;
}

/**
 * Inserts a job that waits. If its parents have ended already, that has its effect in the same commit. @returns the
 * job as it is then. @throws ProblemError `invalid`; then nothing has changed
 */
export function insertChild(
  tx: Transaction,
  step: StepOn,
  { input, job, remote, submission: { after = [], policy } }: NewChild,
): StoredJob {
  const found = readParents(tx, job, { after, remote });
  const parents = found.map(({ endpointId, id, shard }, index): JobParent => {
    const { as, onFailure = 'fail' } = after[index] ?? {};
    return {
      ...{ endpointId, id, onFailure },
      ...(as !== undefined && { as }),
      ...(shard !== undefined && { shard }),
    };
  });
  for (const [index, { endpointId, id, job: parent, shard, status }] of found.entries()) {
    const child = toChild(job, parents[index]?.as);
    // Refused for a parent that has ended, and whose output is not read.
    if (parent) step(parent, { type: 'child_added', child });
    else if (shard !== undefined && (status === undefined || child.reads)) {
      step.send(shard, { type: 'child', parent: { endpointId, id }, child });
    }
  }
  const links = { ...NO_LINKS, parents, delayMs: policy.delay ?? 0 };
  const waiting = waitForParents({ ...job, linked: true, links }, { now: job.submittedAt });
  tx.insertJob(waiting, input);
  const ends = found.flatMap(({ status, ...parent }) =>
    status === undefined ? [] : [{ parent, status }],
  );
  if (ends.length === 0) return waiting;
  const decision = step(waiting, { type: 'parents_ended', ends });
  return 'refused' in decision ? waiting : decision.job;
}

/** The child as its parent knows it. `as`: of the edge. */
export function toChild({ endpointId, id }: JobKey, as: string | undefined): JobChild {
  return { endpointId, id, ...(as !== undefined && { reads: true }) };
}

/** @throws ProblemError `invalid` that names each parent that is none */
function readParents(
  tx: Reader,
  child: JobKey,
  { after, remote }: { after: readonly ParentReference[]; remote: FoundParents },
): FoundParent[] {
  const keys = after.map(({ endpoint, id }) => ({ endpointId: endpoint ?? child.endpointId, id }));
  const owner = tx.endpoint(child.endpointId)?.userId;
  const found = tx.each(keys, (key): FoundParent | undefined => {
    const other = remote.get(nameParentKey(key));
    if (other) {
      const { shard, state } = other;
      if (!state) return undefined;
      return { ...key, isFull: state.isFull, status: state.status, shard, job: undefined };
    }
    const endpoint = tx.endpoint(key.endpointId);
    const isOwn = endpoint?.userId === owner && endpoint?.deleted === false;
    const job = isOwn ? tx.job(key) : undefined;
    const status = job && describeEnd(job);
    return job && { ...key, job, status, shard: undefined, isFull: isFull(job) };
  });
  const seen = new Set<string>();
  const errors = findRepeated(after.map(({ as }) => as)).map(
    (index) => `after[${index}].as: "${after[index]?.as}" is the member of another parent`,
  );
  for (const [index, key] of keys.entries()) {
    const name = nameParentKey(key);
    const reason = seen.has(name) ? `job ${key.id} is named twice` : judgeParent(key, found[index]);
    if (reason !== undefined) errors.push(`after[${index}]: ${reason}`);
    seen.add(name);
  }
  if (errors.length === 0) return found.filter((parent) => parent !== undefined);
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
  parent: Pick<FoundParent, 'isFull'> | undefined,
): string | undefined {
  if (!parent) return `job ${id} of endpoint ${endpointId} not found or expired`;
  if (!parent.isFull) return undefined;
  return `${LIMITS.childrenOfJob} jobs wait for job ${id} already, the most that may`;
}

/** As many jobs wait for it, or for its output, as may. */
export function isFull({ links }: StoredJob): boolean {
  const { children = [], readers = [] } = links ?? {};
  return children.length + readers.length >= LIMITS.childrenOfJob;
}

/** Ends after which a job can be retried. */
export const RETRIABLE: ReadonlySet<ParentEnd | undefined> = new Set([
  'FAILED',
  'TIMED_OUT',
  'SKIPPED',
]);

interface RetriedJob {
  job: StoredJob;
  /** Its parents of other shards. */
  remote: FoundParents;
  /** Number of the retry of its flow. */
  run?: number | undefined;
}

/** Retries the job with others of its flow. If it cannot be retried, its children that are retried are told. @returns whether it is retried */
export function retryFlowJob(
  tx: Transaction,
  step: StepOn,
  retried: RetriedJob & { run: number },
): boolean {
  const { job, run } = retried;
  if (!('refused' in retryJob(tx, step, retried))) return true;
  const { endpointId, id, links } = job;
  const status = describeEnd(job);
  const ofShards = Map.groupBy(links?.children ?? [], (child) => child.shard);
  for (const [shard, children] of ofShards) {
    if (status === undefined) break;
    for (const told of cut(children)) {
      step.send(shard, { type: 'ended', parent: { endpointId, id }, status, children: told });
    }
  }
  step(job, { type: 'flow_retry_missed', run });
  return false;
}

/** Queues the job again: it waits for those of its parents that run again. */
export function retryJob(
  tx: Transaction,
  step: StepOn,
  { job, remote, run }: RetriedJob,
): Decision {
  // A job that is not retried must not become a child of its parents again.
  const isRetriable = RETRIABLE.has(describeEnd(job)) && job.links !== null;
  const parents = isRetriable ? renewParents(tx, step, { job, remote }) : undefined;
  return parents && 'refused' in parents ? parents : step(job, { type: 'retry', parents, run });
}

/** The parents as they are now. Undefined for a job without parents. */
function renewParents(
  tx: Transaction,
  step: StepOn,
  { job, remote }: { job: StoredJob; remote: FoundParents },
): JobParent[] | { refused: string } | undefined {
  if (!job.links || job.links.parents.length === 0) return undefined;
  const failed = job.links.parents.filter(({ ended }) => ended !== 'COMPLETED');
  const here = failed.filter(({ shard }) => shard === undefined);
  const found = new Map(
    tx.each(here, (parent) => [parent, tx.job(parent)] as const).filter(([, now]) => now),
  );
  const messages: (() => void)[] = [];
  const renewed: JobParent[] = [];
  for (const parent of job.links.parents) {
    const now = found.get(parent);
    const other = failed.includes(parent) ? remote.get(nameParentKey(parent)) : undefined;
    if (other) renewed.push(renewRemote(step, { job, parent, found: other, messages }));
    else if (!now) renewed.push(failed.includes(parent) ? noteGone(parent) : parent);
    else {
      const bound = bindAgain(step, { job, parent, now });
      if ('refused' in bound) return bound;
      renewed.push(bound);
    }
  }
  // Now the job is retried, unless a parent is an obstacle.
  if (!renewed.some(isObstacle)) for (const send of messages) send();
  return renewed;
}

/** Its end remains what it was. */
function noteGone(parent: JobParent): JobParent {
  return { ...parent, ended: parent.ended ?? 'REMOVED' };
}

interface RenewedEdge {
  job: StoredJob;
  parent: JobParent;
}

function bindAgain(
  step: StepOn,
  { job, now, parent }: RenewedEdge & { now: StoredJob },
): JobParent | { refused: string } {
  const { endpointId, id } = job;
  const { ended: _, ...open } = parent;
  const ended = describeEnd(now);
  const { children = [], readers = [] } = now.links ?? {};
  const isKnown = [...children, ...readers].some(
    (child) => child.id === id && child.endpointId === endpointId,
  );
  if (isKnown) return ended === undefined ? open : { ...open, ended };
  // A message about an end before may be under way.
  const edge = { ...open, round: (parent.round ?? 0) + 1 };
  const child = { ...toChild(job, parent.as), round: edge.round };
  const decision = step(now, { type: 'child_added', child });
  // A parent that does not know the child would never tell it.
  if (ended === undefined && 'refused' in decision) {
    return { refused: `of its parent ${nameParent(job, parent)}: ${decision.refused}` };
  }
  return ended === undefined ? edge : { ...edge, ended };
}

function renewRemote(
  step: StepOn,
  { found, job, messages, parent }: RenewedEdge & { found: RemoteParent; messages: (() => void)[] },
): JobParent {
  const { run, shard, state } = found;
  if (!state) return noteGone(parent);
  const { ended: _, ...open } = parent;
  const round = (parent.round ?? 0) + 1;
  const { endpointId, id } = parent;
  const child = { ...toChild(job, parent.as), round };
  if (state.status === undefined || child.reads) {
    const edge = { parent: { endpointId, id }, child, ...(run !== undefined && { run }) };
    messages.push(() => step.send(shard, { type: 'child', ...edge }));
  }
  return { ...open, round, ...(state.status !== undefined && { ended: state.status }) };
}
