// Yields a number of numbered values, or returns a square, with a pause before each.
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context, Job } from 'millrace';

export interface Count {
  n: number;
  /** Before each value, ms. */
  ms: number;
  /** Values to yield; without it one is returned. */
  yields?: number;
}

export default function count(job: Job<Count>, ctx: Context): unknown {
  const { n, ms, yields } = job.input;
  return yields === undefined ? square(n, ms) : countUp({ n, ms, yields }, ctx);
}

async function square(n: number, ms: number): Promise<{ n: number; square: number }> {
  await sleep(ms);
  return { n, square: n * n };
}

/** Each value contains the number of the attempt. */
async function* countUp({ n, ms, yields }: Required<Count>, ctx: Context) {
  for (let index = 0; index < yields; index++) {
    await sleep(ms);
    yield { n, index, attempt: ctx.attempt };
  }
}
