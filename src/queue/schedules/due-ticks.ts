// Decides which of the due ticks of a schedule make a job: a pure function of its state and the time.
import type { StoredSchedule } from '../../wire/resources/schedule.ts';
import { countTicks, findNextTick, listLastTicks } from './tick-times.ts';

/** A tick is missed when it is later than this, ms: a restart and a takeover take less. */
export const LATE_MS = 60_000;
/** Jobs that one decision makes; the next one goes on. More than the ticks of LATE_MS, so that only missed ticks are deferred. */
const MAX_JOBS = 64;

export interface DueTicks {
  /** Times of the ticks that make a job, the oldest first. */
  jobs: number[];
  /** Those that make none, because the platform was away; undefined without any. */
  missed: { count: number; lastAt: number } | undefined;
  /** Time of the tick after these; null: none comes. */
  nextAt: number | null;
}

type Scheduled = Omit<StoredSchedule, 'nextAt'> & { nextAt: number };

export function decideDueTicks(schedule: Scheduled, now: number): DueTicks {
  const { jobs: made, maxJobs, nextAt } = schedule;
  if (nextAt > now) return { jobs: [], missed: undefined, nextAt };
  const lateUpTo = Math.max(nextAt, now - LATE_MS) - 1;
  const caughtUp = listLastTicks(schedule, {
    from: nextAt,
    to: lateUpTo,
    count: countCaughtUp(schedule),
  });
  const punctual = listLastTicks(schedule, { from: lateUpTo + 1, to: now, count: MAX_JOBS });
  const due = [...caughtUp, ...punctual];
  const left = maxJobs === null ? due.length : maxJobs - made;
  const jobs = due.slice(0, Math.min(MAX_JOBS, left));
  const skippedUpTo = (caughtUp[0] ?? lateUpTo + 1) - 1;
  const count = countTicks(schedule, nextAt, skippedUpTo);
  const [lastAt = nextAt] = listLastTicks(schedule, { from: nextAt, to: skippedUpTo, count: 1 });
  return {
    jobs,
    missed: count === 0 ? undefined : { count, lastAt },
    nextAt: due[jobs.length] ?? findNextTick(schedule, now) ?? null,
  };
}

function countCaughtUp({ catchUp, catchUpMax }: Scheduled): number {
  if (catchUp === 'all') return catchUpMax;
  return catchUp === 'one' ? 1 : 0;
}
