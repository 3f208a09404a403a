// When a schedule has its ticks: pure functions of its fields. All times are Unix ms.
import { CronError, compileCron } from '../../base/cron.ts';
import { ProblemError } from '../../wire/problem.ts';
import { SCHEDULE_LIMITS, type ScheduleTiming } from '../../wire/resources/schedule.ts';

/** Of a cron expression, so many due ticks more than the wanted ones are counted: each takes 0.03 ms. */
const MAX_COUNTED = 1_000;

/** `count`: how many. `last`: the last of them, the oldest first. */
interface DueTimes {
  count: number;
  last: number[];
}

interface Range {
  from: number;
  to: number;
  /** Length of `last`. */
  most: number;
}

interface Ticks {
  /** The first tick after `time`. */
  next(time: number): number | undefined;
  /** The ticks from `from` to `to`. */
  due(range: Range): DueTimes;
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

/** The ticks from `from` to `to`. Not all of a cron expression are counted. */
export function findDueTicks(timing: ScheduleTiming, { from, most, to }: Range): DueTimes {
  const end = Math.min(to, endOf(timing));
  return end < from ? { count: 0, last: [] } : ticksOf(timing).due({ from, to: end, most });
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
    due({ from, most, to }) {
      const first: number[] = [];
      const end = MAX_COUNTED + most;
      let at = times.next(from - 1);
      for (; at !== undefined && at <= to && first.length < end; at = times.next(at))
        first.push(at);
      const isAll = at === undefined || at > to;
      return { count: first.length, last: isAll ? first.slice(-most) : times.last(to + 1, most) };
    },
  };
}

function intervalTicks(every: number, phase: number): Ticks {
  /** Number of the last tick up to `time`. */
  const numberUpTo = (time: number) => Math.floor((time - phase) / every);
  return {
    next: (time) => (numberUpTo(time) + 1) * every + phase,
    due({ from, most, to }) {
      const end = numberUpTo(to);
      const count = end - numberUpTo(from - 1);
      const length = Math.min(count, most);
      const timeOf = (index: number) => (end - length + 1 + index) * every + phase;
      return { count, last: Array.from({ length }, (_, index) => timeOf(index)) };
    },
  };
}

function singleTick(at: number): Ticks {
  return {
    next: (time) => (at > time ? at : undefined),
    due({ from, to }) {
      const last = at >= from && at <= to ? [at] : [];
      return { count: last.length, last };
    },
  };
}
