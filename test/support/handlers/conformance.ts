// The handler that `millrace conformance` requires of a worker under test.
import type { Context, Job } from 'millrace';

type Input =
  | { do: 'echo'; value: unknown; ms?: number }
  | { do: 'stream'; count: number; bytes: number }
  | { do: 'fail'; message: string }
  | { do: 'hang' };

export const config = { concurrency: 2 };

export default function act({ input }: Job<Input>, ctx: Context): unknown {
  switch (input.do) {
    case 'echo':
      return new Promise((resolve) => setTimeout(() => resolve(input.value), input.ms ?? 0));
    case 'stream':
      return listTexts(input.count, 'x'.repeat(input.bytes));
    case 'fail':
      throw new Error(input.message);
    case 'hang':
      return new Promise((_, reject) => {
        ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason));
      });
  }
}

async function* listTexts(count: number, text: string): AsyncGenerator<unknown> {
  for (let index = 0; index < count; index += 1) yield { index, text };
}
