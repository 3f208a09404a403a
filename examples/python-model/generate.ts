// Streams from a generator of a model process in Python, model.py.
import { fileURLToPath } from 'node:url';
import { defineHandler } from 'millrace';
import { createModelProcess } from 'millrace/process';
import { z } from 'zod';

export const model = createModelProcess({
  command: 'python3',
  args: [fileURLToPath(new URL('./model.py', import.meta.url))],
});

export default defineHandler({
  input: z.strictObject({
    prompt: z.string().max(1_000),
    letters: z.int().min(1).max(1_000).default(10),
    /** Between two letters. */
    pauseMs: z.number().min(0).max(1_000).default(0),
  }),
  setup: (ctx) => model.start(ctx),
  teardown: () => model.stop(),
  async *run({ input }, ctx) {
    // `ctx` cancels the generator, and receives its log and metrics.
    for await (const letter of model.stream<string>('generate', input, ctx)) yield letter;
  },
});
