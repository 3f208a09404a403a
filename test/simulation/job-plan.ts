// What the simulated handler does for a job, and what may become of a job with such a plan.
import { type Clock, sleep } from '../../src/base/clock.ts';
import type { Context, Job } from '../../src/handler/define.ts';

export interface JobPlan {
  n: number;
  chunks: number;
  /** Before each chunk and before the end. */
  stepMs: number;
  /** Attempts that throw before one succeeds. */
  failures: number;
  /** `overruns`: takes longer than its timeout. `kills`: takes its process down, every time. */
  fate: 'ends' | 'overruns' | 'kills';
  /** Does not listen to the signal. */
  isDeaf: boolean;
}

/** The executor's own. */
const GRACE_MS = 2_000;
export const TIMEOUT_MS = 120_000;
/** Of the jobs that overrun it. */
export const SHORT_TIMEOUT_MS = 2_000;

export interface PlanChoice {
  n: number;
  /** Of jobs that kill their process. */
  killerShare: number;
}

export function choosePlan({ n, killerShare }: PlanChoice, random: () => number): JobPlan {
  const below = (limit: number) => Math.floor(random() * limit);
  const dice = random();
  const fate = dice < killerShare ? 'kills' : dice > 0.94 ? 'overruns' : 'ends';
  return {
    n,
    chunks: 1 + below(4),
    stepMs: fate === 'overruns' ? SHORT_TIMEOUT_MS + below(3_000) : 10 + below(4_000),
    failures: below(5) === 0 ? 1 : 0,
    fate,
    isDeaf: below(10) === 0,
  };
}

export interface HandlerWorld {
  clock: Clock;
  /** Ends the process that the handler runs in, from one moment to the next. */
  killProcess: () => void;
}

/** The handler, in one process. */
export function createHandler({ clock, killProcess }: HandlerWorld) {
  return async function* handle({ input: plan }: Job<JobPlan>, ctx: Context) {
    const { attempt, signal } = ctx;
    // The executor of the simulation has no thread to kill: what still runs then does no more harm.
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
