// Rolls minutes up to the steps of a time series. Pure.
import { TIME_BUCKETS_S } from '../time/job-times.ts';
import { addCounts, COUNTED, createMinute, type Minute } from './minute.ts';

/** Quantiles of a histogram, ms. */
export interface Quantiles {
  p50: number;
  p95: number;
}

export interface SeriesPoint extends Omit<Minute, 'wait' | 'execution'> {
  /** Null: no job began. */
  waitMs: Quantiles | null;
  /** Null: no job that ran has ended. */
  executionMs: Quantiles | null;
}

export interface SeriesRange {
  /** Unix ms; the first step begins here. */
  from: number;
  /** Unix ms; the last step ends here or later. */
  to: number;
  stepMs: number;
}

/** One point for each step; a step in which nothing happened has zeros. */
export function rollUp(
  minutes: readonly Minute[],
  { from, stepMs, to }: SeriesRange,
): SeriesPoint[] {
  const steps = Math.max(0, Math.ceil((to - from) / stepMs));
  const byStep = Map.groupBy(minutes, ({ at }) => Math.floor((at - from) / stepMs));
  return Array.from({ length: steps }, (_, step) =>
    toPoint(from + step * stepMs, byStep.get(step) ?? []),
  );
}

/** Counts add up. Of gauges, a step shows the highest: a short peak must not vanish in a long step. */
function toPoint(at: number, minutes: readonly Minute[]): SeriesPoint {
  const { execution, wait, ...point } = minutes.reduce(merge, createMinute(at));
  return { ...point, at, waitMs: findQuantiles(wait), executionMs: findQuantiles(execution) };
}

function merge(sum: Minute, next: Minute): Minute {
  const merged: Minute = {
    ...sum,
    queued: Math.max(sum.queued, next.queued),
    running: Math.max(sum.running, next.running),
    oldestWaitMs: Math.max(sum.oldestWaitMs, next.oldestWaitMs),
    workers: {
      starting: Math.max(sum.workers.starting, next.workers.starting),
      idle: Math.max(sum.workers.idle, next.workers.idle),
      running: Math.max(sum.workers.running, next.workers.running),
      draining: Math.max(sum.workers.draining, next.workers.draining),
    },
    refused: sum.refused + next.refused,
    workerSeconds: sum.workerSeconds + next.workerSeconds,
    cost: sum.cost + next.cost,
    wait: addCounts(sum.wait, next.wait),
    execution: addCounts(sum.execution, next.execution),
  };
  for (const name of COUNTED) merged[name] = sum[name] + next[name];
  return merged;
}

function findQuantiles(counts: readonly number[]): Quantiles | null {
  const total = counts.reduce((sum, each) => sum + each, 0);
  if (total === 0) return null;
  return { p50: findQuantile(counts, total * 0.5), p95: findQuantile(counts, total * 0.95) };
}

/** Within a bucket, times count as spread evenly. Times beyond all buckets count as the last bound. */
function findQuantile(counts: readonly number[], rank: number): number {
  let before = 0;
  for (const [index, each] of counts.entries()) {
    if (before + each >= rank && each > 0) {
      const low = TIME_BUCKETS_S[index - 1] ?? 0;
      const high = TIME_BUCKETS_S[index] ?? low;
      return Math.round((low + ((high - low) * (rank - before)) / each) * 1_000);
    }
    before += each;
  }
  return (TIME_BUCKETS_S.at(-1) ?? 0) * 1_000;
}
