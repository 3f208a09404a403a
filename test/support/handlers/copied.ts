// Ends in any way that the input names, with texts that databases treat with care.
import { setTimeout as sleep } from 'node:timers/promises';
import { type Context, type Job, NonRetryableError } from 'millrace';

export interface CopiedInput {
  do: 'answer' | 'stream' | 'fail' | 'hang';
  text: string;
  /** Length of the output. */
  size?: number;
}

export const config = { concurrency: 32 };

export default function act({ input }: Job<CopiedInput>, ctx: Context): unknown {
  ctx.log.info(`works on ${input.text}`);
  switch (input.do) {
    case 'answer':
      return { text: input.text, filler: 'x'.repeat(input.size ?? 0) };
    case 'stream':
      return stream(input.text);
    case 'fail':
      throw new NonRetryableError(`cannot work on ${input.text}`);
    case 'hang':
      return sleep(600_000, undefined, { signal: ctx.signal });
  }
}

async function* stream(text: string) {
  for (let index = 0; index < 5; index++) yield { index, text };
  return text;
}
