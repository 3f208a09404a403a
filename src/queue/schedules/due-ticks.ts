// Decides which of the due ticks of a schedule make a job: a pure function of its state and the time.
import type { StoredSchedule } from '../../wire/resources/schedule.ts';
import { countTicks, findNextTick, listLastTicks } from './tick-times.ts';

/** A tick is missed when it is later than this, ms: a restart and a takeover take less. */
export const LATE_MS = 60_000;
/** Jobs that one decision makes; the next one goes on. More than the ticks of LATE_MS, so that only missed ticks are deferred. */
export const MAX_DUE_JOBS = 64;

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
  const lateUpTo = Math.max(nextAt, now - LATE_MS) - 1;
  const late = { from: nextAt, to: lateUpTo };
  const caughtUp = listLastTicks(schedule, { ...late, count: countCaughtUp(schedule) });
  const due = [...caughtUp];
  let next = nextAt > lateUpTo ? nextAt : findNextTick(schedule, lateUpTo);
  for (; next !== undefined && next <= now; next = findNextTick(schedule, next)) due.push(next);
  const left = maxJobs === null ? due.length : maxJobs - made;
  const jobs = due.slice(0, Math.min(MAX_DUE_JOBS, left));
  const skippedUpTo = (caughtUp[0] ?? lateUpTo + 1) - 1;
  const count = countTicks(schedule, nextAt, skippedUpTo);
  const [lastAt = nextAt] =
    count === 0 ? [] : listLastTicks(schedule, { from: nextAt, to: skippedUpTo, count: 1 });
  return {
    jobs,
    missed: count === 0 ? undefined : { count, lastAt },
    nextAt: due[jobs.length] ?? next ?? null,
  };
}

function countCaughtUp({ catchUp, catchUpMax }: Scheduled): number {
  if (catchUp === 'all') return catchUpMax;
  return catchUp === 'one' ? 1 : 0;
}
