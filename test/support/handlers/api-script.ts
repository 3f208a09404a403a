// Runs the steps in the job's input. It can wait for a file that the test creates, so that tests
// need no timing.
import { appendFileSync, existsSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { type Context, type Job, NonRetryableError, RetryAfterError } from 'millrace';

export type Step = (
  | { do: 'yield'; value: unknown; metrics?: Record<string, number> }
  /** File that is written on a stop. Default: none. */
  | { do: 'wait'; file: string; stopFile?: string }
  | { do: 'note'; file: string; text: string }
  | { do: 'progress'; value: unknown }
  | { do: 'throw'; message: string; as?: 'plain' | 'non-retryable' | 'retry at once' }
) & { onlyInAttempt?: number };

export interface Script {
  steps: Step[];
  /** Returned at the end. */
  answer?: unknown;
}

const POLL_MS = 5;

export const config = { concurrency: 16 };

export default function follow({ input }: Job<Script>, ctx: Context): unknown {
  const steps = input.steps.filter(
    ({ onlyInAttempt = ctx.attempt }) => onlyInAttempt === ctx.attempt,
  );
  return input.steps.some((step) => step.do === 'yield')
    ? stream(steps, input.answer, ctx)
    : answer(steps, input.answer, ctx);
}

async function* stream(steps: Step[], value: unknown, ctx: Context) {
  for (const step of steps) {
    if (step.do === 'yield') yield ctx.chunk(step.value, step.metrics ?? {});
    else await take(step, ctx);
  }
  return value;
}

async function answer(steps: Step[], value: unknown, ctx: Context): Promise<unknown> {
  for (const step of steps) await take(step, ctx);
  return value;
}

async function take(step: Step, ctx: Context): Promise<void> {
  switch (step.do) {
    case 'wait':
      return waitFor(step, ctx);
    case 'note':
      return appendFileSync(step.file, `${step.text}\n`);
    case 'progress':
      return ctx.progress(step.value);
    case 'throw':
      if (step.as === 'non-retryable') throw new NonRetryableError(step.message);
      if (step.as === 'retry at once') throw new RetryAfterError(1, step.message);
      throw new TypeError(step.message);
    case 'yield':
      throw new Error('a step that is for generators');
  }
}

async function waitFor({ file, stopFile }: Extract<Step, { do: 'wait' }>, { signal }: Context) {
  while (!existsSync(file)) {
    await delay(POLL_MS);
    if (!signal.aborted) continue;
    if (stopFile !== undefined) appendFileSync(stopFile, `${signal.reason.reason}\n`);
    throw signal.reason;
  }
}
