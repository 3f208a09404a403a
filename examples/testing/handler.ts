// Counts the words of a text, line by line. The first attempt of a job marked `busy` is postponed,
// as by a handler whose backend answers "try again later".
import { setTimeout as wait } from 'node:timers/promises';
import { type Context, type Job, RetryAfterError } from 'millrace';

interface Input {
  text: string;
  busy?: boolean;
  /** Between lines, ms. */
  pauseMs?: number;
}

export default async function* countWords(job: Job<Input>, ctx: Context) {
  if (job.input.busy && ctx.attempt === 1) throw new RetryAfterError(30_000, 'the backend is busy');
  let total = 0;
  for (const [index, line] of job.input.text.split('\n').entries()) {
    ctx.signal.throwIfAborted();
    if (index > 0) await wait(job.input.pauseMs ?? 0, undefined, { signal: ctx.signal });
    const words = line.split(/\s+/).filter((word) => word !== '').length;
    total += words;
    yield ctx.chunk({ line: index + 1, words }, { words });
  }
  return { total };
}
