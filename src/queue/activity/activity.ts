// The activity of an endpoint: now, and minute by minute.
import type { EndpointActivity } from '../../wire/resources/activity.ts';
import type { KnownScaling } from '../../wire/resources/scaling.ts';
import { readEndpoint } from '../endpoint-removal.ts';
import { TIME_BUCKETS_S } from '../job-times.ts';
import { readWait } from '../jobs.ts';
import type { QueueParts } from '../queue-parts.ts';
import type { Queues } from '../queues.ts';
import { countWorkers } from '../waits.ts';
import { COUNTED, createMinute, type Minute } from './minute.ts';
import { ActivityRecorder, type RecorderOptions } from './recorder.ts';

/** By endpoint, without those that no node serves now. Never rejects. */
export type ReadActivity = (
  endpointIds: readonly string[],
) => Promise<Readonly<Record<string, EndpointActivity>>>;

/** Of the endpoints that the queue serves. Never rejects. */
export async function readActivity(
  queue: Pick<Queues, 'activity'>,
  endpointIds: readonly string[],
): Promise<Record<string, EndpointActivity>> {
  const found: Record<string, EndpointActivity> = {};
  await Promise.all(
    endpointIds.map(async (id) => {
      try {
        found[id] = await queue.activity.now(id);
      } catch {
        // The endpoint was deleted, another node has taken it over, or the store fails: its state is not known.
      }
    }),
  );
  return found;
}

type ActivityOptions = Omit<RecorderOptions, 'countWorkers' | 'oldestQueuedAt'> &
  Pick<QueueParts, 'pauses' | 'presence' | 'settings' | 'waits' | 'workerLoads'>;

export class QueueActivity {
  readonly #options: ActivityOptions;
  readonly #recorder: ActivityRecorder;

  constructor(options: ActivityOptions) {
    this.#options = options;
    const { workerLoads } = options;
    this.#recorder = new ActivityRecorder({
      ...options,
      countWorkers: (id, scaling) => this.#countWorkers(id, scaling),
      oldestQueuedAt: (id) => workerLoads.oldestQueuedAt(id),
    });
  }

  /** Records until the queue closes; never rejects. */
  record(): Promise<void> {
    return this.#recorder.run();
  }

  /** @throws ProblemError `not_found` */
  async now(endpointId: string): Promise<EndpointActivity> {
    const { clock, findScaling, pauses, store, waits, workerLoads } = this.#options;
    const { endpoint, facts, next } = await store.read((tx) => {
      const [job] = tx.readyJobs(endpointId, 1);
      const facts = job && readWait(tx, job);
      return { endpoint: readEndpoint(tx, endpointId), next: job, facts };
    });
    const oldest = endpoint.inQueue > 0 ? await workerLoads.oldestQueuedAt(endpointId) : null;
    const now = clock.now();
    return {
      waiting: endpoint.inQueue,
      running: endpoint.inProgress,
      oldestWaitMs: oldest === null ? null : Math.max(0, now - oldest),
      waitReason: next ? await waits.describe(next, facts) : null,
      ...(pauses.find({ endpointId, group: null }) && { paused: true as const }),
      jobsPerSecond: this.#recorder.jobsPerSecond(endpointId),
      ...this.#recorder.countFailures(endpointId),
      workers: this.#countWorkers(endpointId, await findScaling(endpointId)),
    };
  }

  /** @throws ProblemError `not_found` */
  async series(endpointId: string, range: SeriesRange): Promise<SeriesPoint[]> {
    await this.#options.store.read((tx) => readEndpoint(tx, endpointId));
    return rollUp(await this.#recorder.minutes(endpointId, range.from), range);
  }

  #countWorkers(endpointId: string, scaling: KnownScaling): EndpointActivity['workers'] {
    const { clock, presence, settings } = this.#options;
    const all = presence.ofEndpoint(endpointId);
    const { alive, draining, empty, parked } = countWorkers(all, clock.now() - settings.leaseMs);
    const managed = typeof scaling === 'object' ? scaling.workers : 0;
    const starting = Math.max(0, managed - alive - draining);
    return { starting, idle: empty, running: alive - empty, draining, parked };
  }
}

const GAUGES = ['queued', 'running', 'oldestWaitMs'] as const;
const WORKER_STATES = ['starting', 'idle', 'running', 'draining', 'parked'] as const;
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
