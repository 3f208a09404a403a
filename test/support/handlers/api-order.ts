// Has schemas for what goes in and out, and gives out what the input says.
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
    // The compiler would refuse this, were it not hidden from it.
    if (input.wrong === 'shape') return JSON.parse('{"total":"many"}');
    const total = input.lines.reduce((sum, { quantity }) => sum + quantity, 0);
    return input.wrong === 'not JSON' ? { total, lines: [{ price: 10n }] } : { total };
  },
});
