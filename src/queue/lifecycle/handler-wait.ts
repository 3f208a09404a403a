// Part of lifecycle.ts: decides when a job whose handler waits, for children or for a time, runs again. Pure.
import {
  isOpen,
  type JobLinks,
  type JobParent,
  type MemoSize,
  type StoredJob,
} from '../../store/store.ts';
import { LIMITS } from '../../wire/job/job.ts';
import { addNote, nameAttempt, noteReturn } from '../timeline.ts';
import { requeue } from './attempt-end.ts';
import type { Moment, Transition } from './transition.ts';

/** What an attempt that ends as waiting waits for. */
export interface BegunWait {
  /** Each has a `step`. */
  children: readonly JobParent[];
  /** Unix ms. */
  until?: number | undefined;
  /** The memo with the sleeps of the wait. */
  memo: MemoSize;
}

/** The attempt has ended without a failure. The job runs again when the children have ended, and not before the time. */
export function beginWait(
  job: StoredJob,
  { children, memo, until }: BegunWait,
  moment: Moment,
): StoredJob {
  const { now } = moment;
  const { children: told = [], delayMs = 0, parents = [], ...links } = job.links ?? {};
  const leftMs = Math.max(0, job.expiresAt - now);
  const wait = { since: now, leftMs, ...(until !== undefined && { until }) };
  const queued: StoredJob = {
    ...requeue(job, 0, moment),
    notes: noteWait(job, { children, until }, now),
    linked: true,
    links: { ...links, delayMs, children: told, parents: [...parents, ...children], memo, wait },
  };
  if (children.length === 0) return endWait(queued, moment);
  const longest = now + LIMITS.parentWaitMs;
  return { ...queued, delayed: true, availableAt: longest, expiresAt: longest, dueAt: longest };
}

function noteWait(job: StoredJob, wait: Omit<BegunWait, 'memo'>, now: number) {
  const notes = noteReturn(job, 'waiting', now).slice(0, -1);
  const message = describeWait(wait);
  return addNote(notes, { at: now, event: 'waiting', ...nameAttempt(job), message });
}

/** `waits for 2 children and sleeps until 2026-01-01T00:00:00.000Z`. */
export function describeWait({ children, until }: Omit<BegunWait, 'memo'>): string {
  const count = children.length;
  const who = count === 1 ? `child ${nameChild(children[0])}` : `${count} children`;
  const texts = [
    ...(count > 0 ? [`waits for ${who}`] : []),
    ...(until === undefined ? [] : [`sleeps until ${new Date(until).toISOString()}`]),
  ];
  return texts.join(' and ');
}

export function nameChild(child: JobParent | undefined): string {
  return `"${child?.step?.name}"`;
}

/** The children have ended, or there are none: the times of the job go on, after the time for which it sleeps. */
export function endWait(job: StoredJob, { now }: Pick<Moment, 'now'>): StoredJob {
  const { links, retry } = job;
  const { leftMs, since, until = now } = links?.wait ?? { leftMs: job.ttlMs, since: now };
  const availableAt = Math.max(now, until);
  const firstStartedAt = retry?.firstStartedAt;
  return {
    ...job,
    queuedAt: now,
    availableAt,
    delayed: availableAt > now,
    expiresAt: availableAt + leftMs,
    // The retry policy limits the time of attempts and backoffs.
    ...(firstStartedAt !== undefined && {
      retry: { ...retry, firstStartedAt: firstStartedAt + availableAt - since },
    }),
  };
}

/** A child that nobody awaits any more. */
export type AbandonedChild = Pick<JobParent, 'endpointId' | 'id' | 'shard'>;

/** The children that the job awaits and that have not ended, if the change ends the job. */
export function findAbandoned(before: StoredJob, { job, removed }: Transition): AbandonedChild[] {
  if (!before.links?.wait || before.status !== 'IN_QUEUE') return [];
  if (job.status === 'IN_QUEUE' && !removed) return [];
  return before.links.parents
    .filter((parent) => parent.step && isOpen(parent))
    .map(({ endpointId, id, shard }) => ({
      endpointId,
      id,
      ...(shard !== undefined && { shard }),
    }));
}

/** A retry by a client forgets the children that have failed: the handler asks for them again. */
export function forgetFailures(links: JobLinks | null): JobLinks | null {
  if (!links?.memo?.failed) return links;
  const { failed: _, ...memo } = links.memo;
  return { ...links, memo };
}
