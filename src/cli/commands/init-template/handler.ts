// Counts the words of a text, line by line. An input to try it with:
//   { "text": "one two\nthree" }
import { defineHandler } from 'millrace';
import { z } from 'zod';

export default defineHandler({
  // The console makes a form of it.
  input: z.object({ text: z.string().describe('Words to count, in lines') }),
  // Each `yield` reaches the client at once, as a chunk.
  async *run({ input: { text } }, ctx) {
    for (const [index, line] of text.split('\n').entries()) {
      ctx.signal.throwIfAborted();
      const words = line.split(/\s+/).filter((word) => word !== '').length;
      ctx.log.debug({ line: index + 1, words }, 'counted');
      yield ctx.chunk({ line: index + 1, words }, { words });
    }
  },
});
