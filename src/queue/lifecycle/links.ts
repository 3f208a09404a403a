// Part of lifecycle.ts: decides when a job that waits for parents starts, and what becomes of it if one of them fails. Pure.
import {
  isOpen,
  isWaiting,
  type JobChild,
  type JobKey,
  type JobLinks,
  type JobParent,
  type MemoSize,
  type StoredJob,
} from '../../store/store.ts';
import type { AttemptError } from '../../wire/job/attempt.ts';
import { isTerminal, LIMITS, type ParentEnd } from '../../wire/job/job.ts';
import { settle, toReader } from './attempt-end.ts';
import { endWait, nameChild } from './handler-wait.ts';
import { change, type Decision, type Moment, type Transition } from './transition.ts';

export interface EndedParent {
  parent: JobKey;
  status: ParentEnd;
  /** Of the wait that the end is for. Default: 0. */
  round?: number | undefined;
}

export const NO_LINKS: JobLinks = { parents: [], children: [], delayMs: 0 };

/** How the change ends the job for its children; undefined if it does not. */
export function findEnd(before: StoredJob, { job, removed }: Transition): ParentEnd | undefined {
  if (isTerminal(before.status)) return undefined;
  return removed ? 'REMOVED' : describeEnd(job);
}

/** Undefined: it has not ended. */
export function describeEnd({ error, status }: StoredJob): ParentEnd | undefined {
  if (!isTerminal(status)) return undefined;
  return status === 'CANCELLED' && error?.code === 'parent_failed' ? 'SKIPPED' : status;
}

/** The job waits for its parents: none of its times runs but the longest wait. */
export function waitForParents(job: StoredJob, { now }: Pick<Moment, 'now'>): StoredJob {
  const until = now + LIMITS.parentWaitMs;
  return { ...job, delayed: true, availableAt: until, expiresAt: until, dueAt: until };
}

/** Takes in that parents have ended: the job goes on waiting, becomes ready, or ends. */
export function endParents(job: StoredJob, ends: readonly EndedParent[], moment: Moment): Decision {
  const { links } = job;
  if (!links || !isWaiting(job)) return { refused: 'it does not wait for parents' };
  const byParent = new Map(ends.map((end) => [nameEdge(end.parent, end.round), end.status]));
  const parents = links.parents.map((parent) => {
    const ended = isOpen(parent) ? byParent.get(nameEdge(parent, parent.round)) : undefined;
    return ended === undefined ? parent : { ...parent, ended };
  });
  return proceed({ ...job, links: { ...links, parents } }, moment);
}

function nameEdge({ endpointId, id }: JobKey, round = 0): string {
  return `${endpointId}/${id} ${round}`;
}

function proceed(job: StoredJob, moment: Moment): Transition {
  const { links } = job;
  const parents = links?.parents ?? [];
  const obstacle = parents.find(isObstacle);
  if (obstacle) return change(endFor(job, obstacle, moment));
  if (!links || links.held || parents.some(isOpen)) return change(job);
  return change(
    needsFilling(links)
      ? { ...job, links: { ...links, filling: true } }
      : admitToQueue(job, moment),
  );
}

/** All jobs of its flow have been added. */
export function startFlow(job: StoredJob, moment: Moment): Decision {
  if (!job.links?.held || !isWaiting(job)) return { refused: 'it does not wait for its flow' };
  const { held: _, ...links } = job.links;
  return proceed({ ...job, links }, moment);
}

/** Whether outputs of the parents are yet to be put into the input, or the ends of children into the memo. */
export function needsFilling({ filled, parents }: JobLinks): boolean {
  return parents.some(({ as, step }) => step !== undefined || (!filled && as !== undefined));
}

/** The outputs of its parents are in its input, or the ends of its children in its memo: it can start. */
export function endFilling(job: StoredJob, memo: MemoSize | undefined, moment: Moment): Decision {
  if (!isFilling(job)) return { refused: 'it does not wait for its input' };
  const { filling: _, ...rest } = job.links ?? NO_LINKS;
  const links: JobLinks = { ...rest, filled: true, ...(memo && { memo }) };
  const ready = admitToQueue({ ...job, links }, moment);
  return change({ ...ready, links: dropChildren(links) });
}

/** What the children were awaited for is done; a time may still be awaited. */
function dropChildren(links: JobLinks): JobLinks {
  return { ...links, parents: links.parents.filter(({ step }) => step === undefined) };
}

export function failFilling(job: StoredJob, message: string, moment: Moment): Decision {
  if (!isFilling(job)) return { refused: 'it does not wait for its input' };
  return change(settle(job, 'FAILED', moment, { code: 'parent_failed', message }));
}

/** Whether the parents have ended, and their outputs are yet to be put into the input. */
export function isFilling(job: StoredJob): boolean {
  return job.links?.filling === true && isWaiting(job);
}

/** The last parent has ended: the job's times begin, or go on after the wait of its handler. */
function admitToQueue(job: StoredJob, moment: Moment): StoredJob {
  if (job.links?.wait) return endWait(job, moment);
  const { now } = moment;
  const delayMs = job.links?.delayMs ?? 0;
  const availableAt = now + delayMs;
  return {
    ...job,
    queuedAt: now,
    availableAt,
    delayed: delayMs > 0,
    expiresAt: availableAt + job.ttlMs,
  };
}

/** Whether the parent has ended so that the job cannot run. */
export function isObstacle({ ended, onFailure }: JobParent): boolean {
  return ended !== undefined && ended !== 'COMPLETED' && onFailure !== 'run';
}

function endFor(job: StoredJob, parent: JobParent, moment: Moment): StoredJob {
  // What a skipped parent would have made is not missed: its children are skipped too.
  const isSkipped = parent.onFailure === 'skip' || parent.ended === 'SKIPPED';
  const message = `parent ${nameParent(job, parent)} ${END_TEXTS[parent.ended ?? 'REMOVED']}`;
  const error: AttemptError = {
    code: 'parent_failed',
    message: `${isSkipped ? 'skipped: ' : ''}${message}`,
  };
  return settle(job, isSkipped ? 'CANCELLED' : 'FAILED', moment, error);
}

export const END_TEXTS: Record<ParentEnd, string> = {
  COMPLETED: 'is COMPLETED',
  FAILED: 'is FAILED',
  TIMED_OUT: 'is TIMED_OUT',
  CANCELLED: 'is CANCELLED',
  SKIPPED: 'was skipped',
  REMOVED: 'was removed before it ended',
};

/** The job has waited as long as a job may. */
export function giveUpWaiting(job: StoredJob, moment: Moment): Transition {
  const open = job.links?.parents.find(isOpen);
  const what = open?.step ? `child ${nameChild(open)}` : open && `parent ${nameParent(job, open)}`;
  const subject = what === undefined ? 'its flow did not start' : `${what} did not end`;
  const message = `${subject} within ${LIMITS.parentWaitMs / 86_400_000} days`;
  const kept = { ...job, expiresAt: moment.now + job.ttlMs };
  const code = open?.step ? 'wait_failed' : 'parent_failed';
  return change(settle(kept, 'FAILED', moment, { code, message }));
}

/** With its endpoint if that is another one. */
export function nameParent({ endpointId }: StoredJob, parent: JobKey): string {
  return parent.endpointId === endpointId ? parent.id : `${parent.endpointId}/${parent.id}`;
}

export interface AddedChild {
  child: JobChild;
  /** Whatever their number. */
  isAccepted?: boolean;
  /** The job has ended, and runs again soon. */
  isAhead?: boolean;
}

/** Another job waits for this one, or for its output. A second call replaces the first. */
export function addChild(
  job: StoredJob,
  { child, isAccepted = false, isAhead = false }: AddedChild,
): Decision {
  const links = job.links ?? NO_LINKS;
  if (isTerminal(job.status) && !isAhead) {
    const { reads } = child;
    if (!reads || job.status !== 'COMPLETED') return { refused: `its status is ${job.status}` };
    const readers = [...without(links.readers, child), toReader(child)];
    return change({ ...job, linked: true, links: { ...links, readers } });
  }
  const others = without(links.children, child);
  if (!isAccepted && others.length >= LIMITS.childrenOfJob) {
    return { refused: `${LIMITS.childrenOfJob} jobs wait for it already, the most that may` };
  }
  return change({ ...job, linked: true, links: { ...links, children: [...others, child] } });
}

/** The reader has its input, or does not need it any more. */
export function removeReader(job: StoredJob, reader: JobKey): Decision {
  if (!job.links?.readers) return { refused: 'no job reads its output' };
  return change({
    ...job,
    links: { ...job.links, readers: without(job.links.readers, reader) },
  });
}

function without<Key extends JobKey>(keys: readonly Key[] = [], { endpointId, id }: JobKey): Key[] {
  return keys.filter((key) => key.id !== id || key.endpointId !== endpointId);
}
