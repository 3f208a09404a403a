// The periods of budgets, in UTC.
import type { StoredBudget } from '../../wire/resources/budget.ts';

type Period = StoredBudget['period'];

/** Start of the period that `now` is in, Unix ms. */
export function startPeriod(period: Period, now: number): number {
  return shiftPeriod(period, now, 0);
}

/** Start of the next period, Unix ms. */
export function endPeriod(period: Period, now: number): number {
  return shiftPeriod(period, now, 1);
}

function shiftPeriod(period: Period, now: number, by: number): number {
  const date = new Date(now);
  const [month, day] =
    period === 'day' ? [date.getUTCMonth(), date.getUTCDate() + by] : [date.getUTCMonth() + by, 1];
  return Date.UTC(date.getUTCFullYear(), month, day);
}
