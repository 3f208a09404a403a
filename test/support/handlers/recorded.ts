// Writes into every chunk and output which run of the handler made it, so that a checker can judge what clients receive.
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Context, type Job, NonRetryableError } from 'millrace';

export interface RecordedInput {
  /** Names the submission: sent again, it has the same tag. */
  tag: string;
  /** Before each chunk and before the end, ms. */
  ms: number;
  /** Number of chunks to yield. Default: the job is not a stream. */
  chunks?: number;
  /** The output has it, too. */
  filler?: string;
  /** Attempts up to this one fail for good. */
  failUntil?: number;
  /** Attempts up to this one do not end on their own. */
  hangUntil?: number;
}

export default function act({ input }: Job<RecordedInput>, ctx: Context): unknown {
  const start = { run: randomUUID(), startedAt: Date.now() };
  const made = { tag: input.tag, attempt: ctx.attempt, ...start };
  return input.chunks === undefined ? end(input, ctx, made) : stream(input, ctx, made);
}

async function* stream(input: RecordedInput, ctx: Context, made: object) {
  const { chunks = 0, ms } = input;
  for (let n = 0; n < chunks; n++) {
    await sleep(ms);
    yield { ...made, n };
  }
  return await end(input, ctx, made);
}

async function end(input: RecordedInput, { attempt, signal }: Context, made: object) {
  const { chunks = 0, failUntil = 0, filler, hangUntil = 0, ms } = input;
  if (attempt <= hangUntil) await once(signal, 'abort');
  await sleep(ms);
  if (attempt <= failUntil) throw new NonRetryableError(`attempt ${attempt} fails`);
  return { ...made, chunks, filler, endedAt: Date.now() };
}
