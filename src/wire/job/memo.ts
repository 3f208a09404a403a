// What a job remembers of its earlier attempts, and what an attempt waits for: the steps, children and sleeps that its handler
// has named. Both are JSON: a list of entries goes to the worker behind the input of the job, a list of waits comes back
// with the outcome. Workers load this file, so it uses no zod.
import { type ErrorCode, type JobPolicy, LIMITS, type ParentEnd } from './job.ts';

interface ChildHead {
  kind: 'child';
  name: string;
  endpoint: string;
  id: string;
  /** Of what it was started with, as `Wait` has it. */
  digest: string;
}

/** How a child ended that has no output for its parent. */
export interface ChildFailure {
  /** `COMPLETED`: its output is too large. */
  status: Exclude<ParentEnd, 'SKIPPED'>;
  /** Absent: the child has no error, or its record is gone. */
  code?: ErrorCode;
  message: string;
}

export type ChildEntry = ChildHead & ({ value: unknown } | ChildFailure);

export type MemoEntry =
  | { kind: 'step'; name: string; value: unknown }
  | { kind: 'sleep'; name: string }
  | ChildEntry;

/** An entry without its value. */
export type EntryHead =
  | { kind: 'step' | 'sleep'; name: string }
  | ChildHead
  | (ChildHead & ChildFailure);

/** What an attempt waits for. */
export type Wait =
  | { kind: 'sleep'; name: string; forMs: number }
  | { kind: 'sleep'; name: string; until: number }
  | ({ kind: 'child'; name: string; digest: string } & ChildRequest);

/** The child job that `ctx.run` starts. */
export interface ChildRequest {
  /** ID or name of its endpoint. Default: that of the parent. */
  endpoint?: string;
  input: object;
  policy?: JobPolicy;
}

/** When the last sleep is over, Unix ms; undefined without any. `fault`: it takes too long. */
export function findSleepEnd(
  sleeps: readonly Extract<Wait, { kind: 'sleep' }>[],
  now: number,
): { until?: number; fault?: string } {
  if (sleeps.length === 0) return {};
  const ends = sleeps.map((sleep) => ('until' in sleep ? sleep.until : now + sleep.forMs));
  const until = Math.max(now, ...ends);
  if (until - now <= LIMITS.parentWaitMs) return { until };
  const days = LIMITS.parentWaitMs / 86_400_000;
  return { fault: `ctx.sleep: ${new Date(until).toISOString()} is in more than ${days} days` };
}
