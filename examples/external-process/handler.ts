// Puts a queue in front of a command-line program, here gzip, which every Linux image has.
import { defineHandler } from 'millrace';
import { z } from 'zod';
import { runProgram } from './run-program.ts';

const MAX_TEXT_BYTES = 10_000_000;

export default defineHandler({
  input: z.strictObject({
    /** A gzip file, base64. */
    gzip: z.base64(),
  }),
  output: z.strictObject({ text: z.string(), bytes: z.int() }),
  async run({ input }, ctx) {
    const unpacked = await runProgram('gzip', ['--decompress', '--stdout'], {
      input: Buffer.from(input.gzip, 'base64'),
      maxOutputBytes: MAX_TEXT_BYTES,
      ctx,
    });
    return { text: unpacked.toString(), bytes: unpacked.length };
  },
  config: { timeoutMs: 60_000, concurrency: 4 },
});
