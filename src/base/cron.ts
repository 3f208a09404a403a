// Times of a cron expression in an IANA time zone. croner reads the expression and knows the clock changes.
import { Cron } from 'croner';

/** Why an expression or a time zone cannot be used. */
export class CronError extends Error {
  override readonly name = 'CronError';
  readonly part: 'cron' | 'timeZone';

  constructor(part: CronError['part'], message: string) {
    super(message);
    this.part = part;
  }
}

/** All times are Unix ms. Pure: the same times, whenever they are asked for. */
export interface CronTimes {
  /** The first time after `time`; undefined if there is none. */
  next(time: number): number | undefined;
  /** The last `count` times before `time`, the oldest first. */
  last(time: number, count: number): number[];
}

/** Compiled expressions that are kept: most schedules share a few. */
const MAX_KEPT = 1_000;
const kept = new Map<string, CronTimes>();

/**
 * Five parts, or six with the seconds first. A time that a clock change leaves out comes at the end of the gap, and one that
 * comes twice counts once; but an expression with a wildcard or a step in seconds, minutes or hours follows the clock: it
 * leaves the gap out and counts both. @throws CronError
 */
export function compileCron(expression: string, timeZone: string): CronTimes {
  const key = `${timeZone} ${expression}`;
  const known = kept.get(key);
  if (known) return known;
  const times = compile(expression, timeZone);
  const [oldest] = kept.size >= MAX_KEPT ? kept.keys() : [];
  if (oldest !== undefined) kept.delete(oldest);
  kept.set(key, times);
  return times;
}

function compile(expression: string, timeZone: string): CronTimes {
  if (!isTimeZone(timeZone)) {
    throw new CronError('timeZone', 'must be an IANA time zone, such as Europe/Berlin or UTC');
  }
  const cron = parse(expression, timeZone);
  return {
    next: (time) => cron.nextRun(new Date(time))?.getTime(),
    // croner rounds the time of the search to whole seconds.
    last: (time, count) =>
      cron
        .previousRuns(count, new Date(Math.ceil(time / 1_000) * 1_000))
        .map((date) => date.getTime())
        .reverse(),
  };
}

function isTimeZone(timeZone: string): boolean {
  try {
    new Intl.DateTimeFormat('en', { timeZone });
    return true;
  } catch {
    return false;
  }
}

function parse(expression: string, timeZone: string): Cron {
  const parts = expression.trim().split(/\s+/);
  // croner would also read a date.
  if (![5, 6].includes(parts.length) && !/^@[a-z]+$/.test(expression)) {
    throw new CronError(
      'cron',
      'must have the five parts minute, hour, day, month and weekday, or six with the second first',
    );
  }
  try {
    const fixedTimeRule = 'no-wildcard';
    return new Cron(expression, { paused: true, timezone: timeZone, fixedTimeRule });
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    throw new CronError('cron', error.message.replace(/^CronPattern: /, ''));
  }
}
