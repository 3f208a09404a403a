// Decides which of the due ticks of a schedule make a job: a pure function of its state and the time.
import type { StoredSchedule } from '../../wire/resources/schedule.ts';
import { findDueTicks, findNextTick } from './tick-times.ts';

/** With `catchUp: skip`, a tick that is later than this makes no job, ms: a restart and a takeover take less. */
export const LATE_MS = 60_000;
/** Jobs that one decision makes; the next one goes on. */
export const MAX_DUE_JOBS = 64;

export interface DueTicks {
  /** Times of the ticks that make a job, the oldest first. */
  jobs: number[];
  /** Those that make none, because they were due together with later ones, or too late; undefined without any. */
  missed: { count: number; lastAt: number } | undefined;
  /** Time of the tick after these; null: none comes. */
  nextAt: number | null;
}

type Scheduled = Omit<StoredSchedule, 'nextAt'> & { nextAt: number };

export function decideDueTicks(schedule: Scheduled, now: number): DueTicks {
  const { catchUp, catchUpMax, jobs: made, maxJobs, nextAt } = schedule;
  if (nextAt > now) return { jobs: [], missed: undefined, nextAt };
  const most = catchUp === 'all' ? catchUpMax : 1;
  const { count, last } = findDueTicks(schedule, { from: nextAt, to: now, most: most + 1 });
  const isLate = (at: number) => at < now - LATE_MS;
  const due = last.slice(-most).filter((at) => catchUp !== 'skip' || !isLate(at));
  const left = maxJobs === null ? due.length : maxJobs - made;
  const jobs = due.slice(0, Math.min(MAX_DUE_JOBS, left));
  const lastAt = last.at(-due.length - 1);
  return {
    jobs,
    missed: lastAt === undefined ? undefined : { count: count - due.length, lastAt },
    nextAt: due[jobs.length] ?? findNextTick(schedule, now) ?? null,
  };
}
