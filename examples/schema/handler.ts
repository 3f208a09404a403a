// Schemas for what goes in and what comes out; the types of both follow from them.
import { defineHandler } from 'millrace';
import { z } from 'zod';

const cents = z.int().min(0);

const invoice = z.strictObject({
  lines: z
    .array(
      z.strictObject({
        item: z.string().min(1),
        cents,
        quantity: z.int().min(1).default(1),
      }),
    )
    .min(1),
  /** Tax on the sum of all lines. */
  taxPercent: z.number().min(0).max(100).default(0),
});

const totals = z.strictObject({ net: cents, tax: cents, gross: cents });

export default defineHandler({
  input: invoice,
  output: totals,
  async run({ input: { lines, taxPercent } }) {
    const net = lines.reduce((sum, line) => sum + line.cents * line.quantity, 0);
    const tax = Math.round((net * taxPercent) / 100);
    return { net, tax, gross: net + tax };
  },
});
