// Has schemas for input and output, and returns what the input says.
import { defineHandler } from 'millrace';
import { z } from 'zod';

export default defineHandler({
  input: z.strictObject({
    lines: z.array(z.strictObject({ item: z.string().min(1), quantity: z.int().default(1) })),
    note: z.string().exactOptional(),
    wrong: z.enum(['shape', 'not JSON']).exactOptional(),
  }),
  output: z.looseObject({ total: z.int() }),
  async run({ input }) {
    // Hidden from the compiler, which would reject it.
    if (input.wrong === 'shape') return JSON.parse('{"total":"many"}');
    const total = input.lines.reduce((sum, { quantity }) => sum + quantity, 0);
    return input.wrong === 'not JSON' ? { total, lines: [{ price: 10n }] } : { total };
  },
});
