// A handler whose input has many kinds of parts, for the tests of the console's form. It returns its input.
import { defineHandler } from 'millrace';
import { z } from 'zod';

export default defineHandler({
  input: z.strictObject({
    prompt: z
      .string()
      .min(1)
      .describe('What to draw')
      .meta({ examples: ['A lighthouse at dusk'] }),
    style: z.enum(['photo', 'drawing']),
    steps: z.int().min(1).max(50).default(20),
    tiled: z.boolean().optional(),
    size: z.strictObject({ width: z.int(), height: z.int() }).optional(),
    layers: z.array(z.strictObject({ name: z.string(), weight: z.number().default(1) })),
    seed: z.int().nullable(),
    picture: z.base64().optional(),
    more: z.record(z.string(), z.unknown()).optional(),
  }),
  run: ({ input }) => input,
});
