// What happened at an endpoint in one minute: counts that add up, histograms of times, and the state at its end.
import { z } from 'zod';

export const MINUTE_MS = 60_000;

const count = z.number().min(0);

/** Zero members are left out of stored minutes. */
const storedMinute = z.object({
  /** Unix ms of its start. */
  at: z.number(),
  submitted: count.default(0),
  completed: count.default(0),
  failed: count.default(0),
  timedOut: count.default(0),
  cancelled: count.default(0),
  retried: count.default(0),
  /** Failed jobs whose input the handler's schema refused. */
  refused: count.default(0),
  /** Jobs at the end of the minute. */
  queued: count.default(0),
  running: count.default(0),
  oldestWaitMs: count.default(0),
  /** Workers at the end of the minute, by state. */
  workers: z
    .object({
      starting: count.default(0),
      idle: count.default(0),
      running: count.default(0),
      draining: count.default(0),
      parked: count.default(0),
    })
    .prefault({}),
  workerSeconds: count.default(0),
  /** USD. */
  cost: count.default(0),
  /** Jobs in each bucket of TIME_BUCKETS_S, without the zeros at the end. */
  wait: z.array(count).default([]),
  execution: z.array(count).default([]),
});

/** What is counted: sums over time. */
export const COUNTED = [
  'submitted',
  'completed',
  'failed',
  'timedOut',
  'cancelled',
  'retried',
] as const;

export type Minute = z.infer<typeof storedMinute>;
export type Counted = Record<(typeof COUNTED)[number], number>;

/** The minutes of an hour in which something happened, and the counters of the endpoint behind the last one. */
export const storedHour = z.object({
  minutes: z.array(storedMinute),
  totals: z.record(z.string(), z.number()),
});

export function createMinute(at: number): Minute {
  return storedMinute.parse({ at });
}

/** Without its zeros. */
export function shrinkMinute(minute: Minute): object {
  const isZero = (value: unknown) => value === 0 || (Array.isArray(value) && value.length === 0);
  const shrink = (value: object) =>
    Object.fromEntries(Object.entries(value).filter(([, member]) => !isZero(member)));
  const { execution, wait, workers, ...rest } = minute;
  const times = { wait: cutZeros(wait), execution: cutZeros(execution) };
  return { ...shrink({ ...rest, ...times }), workers: shrink(workers) };
}

function cutZeros(counts: readonly number[]): number[] {
  return counts.slice(0, counts.findLastIndex((each) => each > 0) + 1);
}

/** Whether nothing happened in it, and nothing is there. */
export function isQuiet({ at: _at, execution, wait, workers, ...numbers }: Minute): boolean {
  const all = [...Object.values(numbers), ...Object.values(workers), ...wait, ...execution];
  return all.every((each) => each === 0);
}

/** Jobs only waited in this minute. */
export function isSteady(minute: Minute): boolean {
  return isQuiet({ ...minute, queued: 0, oldestWaitMs: 0 });
}

export function addCounts(a: readonly number[], b: readonly number[]): number[] {
  const length = Math.max(a.length, b.length);
  return Array.from({ length }, (_, index) => (a[index] ?? 0) + (b[index] ?? 0));
}
