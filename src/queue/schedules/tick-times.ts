// When a schedule has its ticks: pure functions of its fields. All times are Unix ms.
import { CronError, compileCron } from '../../base/cron.ts';
import { ProblemError } from '../../wire/problem.ts';
import { SCHEDULE_LIMITS, type ScheduleTiming } from '../../wire/resources/schedule.ts';

/** Missed ticks of a cron expression are counted up to here: each takes 0.1 ms. */
const MAX_COUNTED = 1_000;

interface Ticks {
  /** The first tick after `time`. */
  next(time: number): number | undefined;
  /** The last `count` ticks from `from` to `to`, the oldest first. */
  last(from: number, to: number, count: number): number[];
  /** Number of ticks from `from` to `to`. */
  count(from: number, to: number): number;
}

/** The next tick after `time`; undefined if none comes. */
export function findNextTick(timing: ScheduleTiming, time: number): number | undefined {
  const next = ticksOf(timing).next(time);
  return next === undefined || next > endOf(timing) ? undefined : next;
}

export function listNextTicks(timing: ScheduleTiming, time: number): number[] {
  const listed: number[] = [];
  while (listed.length < SCHEDULE_LIMITS.nextTicks) {
    const next = findNextTick(timing, listed.at(-1) ?? time);
    if (next === undefined) break;
    listed.push(next);
  }
  return listed;
}

/** The last `count` ticks from `from` to `to`, the oldest first. */
export function listLastTicks(
  timing: ScheduleTiming,
  { count, from, to }: { from: number; to: number; count: number },
): number[] {
  const end = Math.min(to, endOf(timing));
  return count === 0 || end < from ? [] : ticksOf(timing).last(from, end, count);
}

/** Number of ticks from `from` to `to`; of a cron expression at most 1,000. */
export function countTicks(timing: ScheduleTiming, from: number, to: number): number {
  const end = Math.min(to, endOf(timing));
  return end < from ? 0 : ticksOf(timing).count(from, end);
}

/** @throws ProblemError `invalid` unless the timing is complete and has a tick after `now` */
export function checkTiming(timing: ScheduleTiming, now: number): void {
  const { at, cron, every, phase } = timing;
  const given = [cron, every, at].filter((each) => each !== null).length;
  if (given !== 1) refuse('cron', 'exactly one of cron, every and at must be set');
  if (every !== null && phase >= every) refuse('phase', `must be less than every, ${every}`);
  try {
    if (findNextTick(timing, now) !== undefined) return;
  } catch (error) {
    if (!(error instanceof CronError)) throw error;
    refuse(error.part, error.message);
  }
  const [name] = at === null ? [cron === null ? 'until' : 'cron'] : ['at'];
  refuse(
    name,
    at === null ? 'no tick comes from now on' : 'must be in the future, and not after until',
  );
}

function refuse(name: string, fault: string): never {
  const text = `${name}: ${fault}`;
  throw new ProblemError('invalid', `The schedule is invalid: ${text}`, { errors: [text] });
}

function endOf({ until }: ScheduleTiming): number {
  return until === null ? Number.POSITIVE_INFINITY : Date.parse(until);
}

/** @throws CronError */
function ticksOf({ at, cron, every, phase, timeZone }: ScheduleTiming): Ticks {
  if (cron !== null) return cronTicks(cron, timeZone);
  if (every !== null) return intervalTicks(every, phase);
  return singleTick(at === null ? Number.NaN : Date.parse(at));
}

function cronTicks(cron: string, timeZone: string): Ticks {
  const times = compileCron(cron, timeZone);
  return {
    next: (time) => times.next(time),
    last: (from, to, count) => times.last(to + 1, count).filter((at) => at >= from),
    count(from, to) {
      let found = 0;
      let at = times.next(from - 1);
      for (; at !== undefined && at <= to && found < MAX_COUNTED; at = times.next(at)) found += 1;
      return found;
    },
  };
}

function intervalTicks(every: number, phase: number): Ticks {
  /** Number of the last tick up to `time`. */
  const numberUpTo = (time: number) => Math.floor((time - phase) / every);
  return {
    next: (time) => (numberUpTo(time) + 1) * every + phase,
    last(from, to, count) {
      const last = numberUpTo(to);
      const length = Math.min(count, last - numberUpTo(from - 1));
      return Array.from({ length }, (_, index) => (last - length + 1 + index) * every + phase);
    },
    count: (from, to) => numberUpTo(to) - numberUpTo(from - 1),
  };
}

function singleTick(at: number): Ticks {
  const isIn = (from: number, to: number) => at >= from && at <= to;
  return {
    next: (time) => (at > time ? at : undefined),
    last: (from, to) => (isIn(from, to) ? [at] : []),
    count: (from, to) => (isIn(from, to) ? 1 : 0),
  };
}
