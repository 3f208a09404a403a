// The plan of a job: what the simulated handler does, and the output and chunks to expect.
import { type Clock, sleep } from '../../src/base/clock.ts';
import type { Context, Job } from '../../src/handler/define.ts';
import { RetryAfterError } from '../../src/handler/thrown.ts';

export interface JobPlan {
  n: number;
  chunks: number;
  /** Wait before each chunk and before the end, ms. */
  stepMs: number;
  /** Attempts that throw before one succeeds. */
  failures: number;
  /** The first attempt asks for a later one that does not count. */
  isPostponed?: boolean;
  /** `overruns`: runs longer than its timeout. `kills`: kills its process in every attempt. */
  fate: 'ends' | 'overruns' | 'kills';
  /** Ignores the abort signal. */
  isDeaf: boolean;
  /** The first of the world's GPU types that has enough memory for the job. Default: the first one. */
  gpu?: number;
}

/** In the order of the endpoint. */
export const GPU_TYPES = ['small', 'medium', 'large'];

/** Equal to the grace period of the executor. */
const GRACE_MS = 2_000;
export const TIMEOUT_MS = 120_000;
/** Timeout of jobs whose fate is `overruns`. */
export const SHORT_TIMEOUT_MS = 2_000;

export interface PlanChoice {
  n: number;
  /** Share of jobs that kill their process, 0 to 1. */
  killerShare: number;
  /** Some jobs need a later GPU type. Default: false. */
  hasGpus?: boolean;
}

export function choosePlan(
  { hasGpus = false, n, killerShare }: PlanChoice,
  random: () => number,
): JobPlan {
  const below = (limit: number) => Math.floor(random() * limit);
  const dice = random();
  const fate = dice < killerShare ? 'kills' : dice > 0.94 ? 'overruns' : 'ends';
  // Takes no random number. With one more failure, three attempts would not be enough.
  const gpu = hasGpus && n % 2 === 0 && fate === 'ends' ? (n / 2) % GPU_TYPES.length : 0;
  return {
    ...(gpu > 0 && { gpu }),
    ...(n % 5 === 4 && fate === 'ends' && { isPostponed: true }),
    n,
    chunks: 1 + below(4),
    stepMs: fate === 'overruns' ? SHORT_TIMEOUT_MS + below(3_000) : 10 + below(4_000),
    failures: below(5) === 0 && gpu === 0 ? 1 : 0,
    fate,
    isDeaf: below(10) === 0,
  };
}

export interface HandlerWorld {
  clock: Clock;
  /** Kills the process of the handler at once. */
  killProcess: () => void;
  /** Index of the type of its GPU; undefined in a world without GPUs. */
  gpu: number | undefined;
}

/** Creates the handler of one process. */
export function createHandler({ clock, gpu, killProcess }: HandlerWorld) {
  return async function* handle({ input: plan }: Job<JobPlan>, ctx: Context) {
    const { attempt, signal } = ctx;
    // The inline executor cannot kill a thread: after the grace period a job no longer kills its process.
    let threadDiesAt = Number.POSITIVE_INFINITY;
    signal.addEventListener('abort', () => {
      threadDiesAt = clock.now() + GRACE_MS;
    });
    const step = async () => {
      await sleep(clock, plan.stepMs, plan.isDeaf ? undefined : signal);
      if (!plan.isDeaf) signal.throwIfAborted();
    };
    for (let i = 0; i < plan.chunks; i++) {
      await step();
      yield { attempt, i };
    }
    await step();
    if (plan.fate === 'kills') {
      if (clock.now() < threadDiesAt) killProcess();
      await new Promise(() => undefined);
    }
    if (gpu !== undefined && gpu < (plan.gpu ?? 0)) throw new Error('CUDA out of memory');
    if (plan.isPostponed && attempt === 1) throw new RetryAfterError(3_000, { counts: false });
    if (attempt <= plan.failures) throw new Error(`failure ${attempt}`);
    return { n: plan.n, attempt };
  };
}

export function expectChunks({ chunks }: JobPlan, attempt: number): unknown[] {
  return Array.from({ length: chunks }, (_, i) => ({ attempt, i }));
}

export function expectOutput({ n }: JobPlan, attempt: number): unknown {
  return { n, attempt };
}
