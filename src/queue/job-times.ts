// Counts how long the jobs of each endpoint wait and run, in histograms for metrics. In memory: since the start.
import type { StoredJob } from '../store/store.ts';
import { isTerminal } from '../wire/job/job.ts';
import type { Transition } from './lifecycle/transition.ts';

/** Upper bounds, seconds. Jobs take from milliseconds to hours; each bound is a series of each endpoint. */
export const TIME_BUCKETS_S = [
  0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1_800, 3_600, 21_600,
] as const;

/** One histogram of one endpoint. */
export interface TimeCounts {
  /** Times in each bucket of TIME_BUCKETS_S, not cumulative; the last place has those beyond all bounds. */
  counts: number[];
  sumSeconds: number;
}

export interface EndpointTimes {
  /** From the moment from which a job may start to the lease of its attempt. */
  wait: TimeCounts;
  /** Of the last attempt of each job that ended. */
  execution: TimeCounts;
  /** Jobs that FAILED because the handler's schema refused their input. */
  refused: number;
}

export class JobTimes {
  readonly #times = new Map<string, EndpointTimes>();

  /** By endpoint; without endpoints that had no jobs. */
  get all(): ReadonlyMap<string, Readonly<EndpointTimes>> {
    return this.#times;
  }

  /** Call this after the commit of the change. */
  changed(before: StoredJob, { job, removed }: Transition): void {
    if (removed || before.status === job.status || job.startedAt === null) return;
    if (job.status === 'IN_PROGRESS') {
      const readyAt = Math.max(job.queuedAt, before.availableAt);
      this.#add(job.endpointId, 'wait', job.startedAt - readyAt);
    } else if (before.status === 'IN_PROGRESS' && isTerminal(job.status)) {
      const wholeMs = (job.endedAt ?? job.startedAt) - job.startedAt;
      this.#add(job.endpointId, 'execution', job.executionMs ?? wholeMs);
      const isRefused = job.status === 'FAILED' && job.error?.code === 'input_invalid';
      if (isRefused) this.#of(job.endpointId).refused += 1;
    }
  }

  /** Call this after the endpoint's row was removed. */
  forgetEndpoint(endpointId: string): void {
    this.#times.delete(endpointId);
  }

  #of(endpointId: string): EndpointTimes {
    let times = this.#times.get(endpointId);
    if (!times) {
      times = { wait: createCounts(), execution: createCounts(), refused: 0 };
      this.#times.set(endpointId, times);
    }
    return times;
  }

  #add(endpointId: string, kind: 'wait' | 'execution', ms: number): void {
    // A clock that was set back must not make sums fall.
    const seconds = Math.max(0, ms) / 1_000;
    const at = TIME_BUCKETS_S.findIndex((bound) => seconds <= bound);
    const times = this.#of(endpointId)[kind];
    const { counts } = times;
    const index = at < 0 ? TIME_BUCKETS_S.length : at;
    counts[index] = (counts[index] ?? 0) + 1;
    times.sumSeconds += seconds;
  }
}

function createCounts(): TimeCounts {
  return { counts: Array.from({ length: TIME_BUCKETS_S.length + 1 }, () => 0), sumSeconds: 0 };
}
