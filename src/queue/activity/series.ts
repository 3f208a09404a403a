// Rolls minutes up to the steps of a time series. Pure.
import { TIME_BUCKETS_S } from '../time/job-times.ts';
import { COUNTED, createMinute, type Minute } from './minute.ts';

const GAUGES = ['queued', 'running', 'oldestWaitMs'] as const;
const WORKER_STATES = ['starting', 'idle', 'running', 'draining'] as const;
const SUMS = [...COUNTED, 'refused', 'workerSeconds', 'cost'] as const;

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
  const { execution: _execution, wait: _wait, ...point } = createMinute(at);
  const wait: number[] = [];
  const execution: number[] = [];
  // Changed in place: a step may have 10,000 minutes.
  for (const minute of minutes) {
    for (const name of GAUGES) point[name] = Math.max(point[name], minute[name]);
    for (const name of WORKER_STATES) {
      point.workers[name] = Math.max(point.workers[name], minute.workers[name]);
    }
    for (const name of SUMS) point[name] += minute[name];
    addTo(wait, minute.wait);
    addTo(execution, minute.execution);
  }
  return { ...point, waitMs: findQuantiles(wait), executionMs: findQuantiles(execution) };
}

function addTo(sums: number[], counts: readonly number[]): void {
  for (let index = 0; index < counts.length; index++) {
    sums[index] = (sums[index] ?? 0) + (counts[index] ?? 0);
  }
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
