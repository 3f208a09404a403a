// Counts the words of a text, line by line. An input to try it with:
//   { "text": "one two\nthree" }
import { type Context, defineHandler, type Job } from 'millrace';
import { z } from 'zod';

const input = z.object({ text: z.string() });

export default defineHandler({
  input,
  // Each `yield` reaches the client at once, as a chunk.
  async *run({ input: { text } }: Job<z.infer<typeof input>>, ctx: Context) {
    for (const [index, line] of text.split('\n').entries()) {
      ctx.signal.throwIfAborted();
      const words = line.split(/\s+/).filter((word) => word !== '').length;
      ctx.log.debug({ line: index + 1, words }, 'counted');
      yield ctx.chunk({ line: index + 1, words }, { words });
    }
  },
});
