// Counts the words of a text in Python, line by line: see model.py. An input to try it with:
//   { "text": "one two\nthree" }
import { fileURLToPath } from 'node:url';
import { defineHandler } from 'millrace';
import { createModelProcess } from 'millrace/process';
import { z } from 'zod';

const model = createModelProcess({
  command: 'python3',
  args: [fileURLToPath(new URL('./model.py', import.meta.url))],
});

export default defineHandler({
  // The console makes a form of it.
  input: z.object({ text: z.string().describe('Words to count, in lines') }),
  setup: (ctx) => model.start(ctx),
  teardown: () => model.stop(),
  // `ctx` cancels the call with the job, and receives its log and metrics.
  async *run(job, ctx) {
    yield* model.stream('count_words', job.input, ctx);
  },
});
