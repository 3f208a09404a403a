// Handler of the tour: a job takes a fifth of a second.
import { setTimeout as delay } from 'node:timers/promises';
import type { Context, Job } from 'millrace';

export default async function (job: Job<{ number: number }>, ctx: Context) {
  await delay(200, undefined, { signal: ctx.signal });
  return { number: job.input.number };
}
