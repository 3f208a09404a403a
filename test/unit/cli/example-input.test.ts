// The input in printed commands: from the handler's comment, else one that its schema accepts.
import { expect, it } from 'vitest';
import { z } from 'zod';
import { chooseExample, composeExample, readExampleInput } from '../../../src/cli/example-input.ts';

it('reads the first line of the opening comment that is a JSON object', () => {
  const source = '// Says hello.\n//\n//   { "name": "you" }\n//   { "name": "me" }\ncode();\n';
  expect(readExampleInput(source)).toEqual({ name: 'you' });
});

it('reads a block comment, without the text after an arrow', () => {
  const source = '/**\n * Says hello.\n *   { "a": 1 } → { "b": 2 }\n */\n';
  expect(readExampleInput(source)).toEqual({ a: 1 });
});

it('finds no example in other comments and in an empty file', () => {
  expect(readExampleInput('// { not JSON }\n// [1]\n')).toBeUndefined();
  expect(readExampleInput('code();\n// { "a": 1 }\n')).toBeUndefined();
  expect(readExampleInput('')).toBeUndefined();
});

it('is an empty object without a file, a comment and a schema', () => {
  expect(chooseExample('/nowhere/handler.ts', null)).toEqual({});
});

const ACCEPTED: [string, z.ZodObject][] = [
  ['texts', z.object({ a: z.string().min(10), b: z.string().max(2), c: z.email(), d: z.url() })],
  ['formats', z.object({ a: z.uuid(), b: z.iso.date(), c: z.iso.datetime(), d: z.ipv4() })],
  ['numbers', z.object({ a: z.int().min(7), b: z.number().gt(3).lt(4), c: z.number().negative() })],
  ['multiples', z.object({ a: z.number().multipleOf(32).min(100).max(1024) })],
  ['choices', z.object({ a: z.enum(['x', 'y']), b: z.literal('only'), c: z.boolean() })],
  ['lists', z.object({ a: z.array(z.int()).min(2), b: z.tuple([z.string(), z.boolean()]) })],
  ['unions', z.object({ a: z.union([z.object({ b: z.int() }), z.string()]), c: z.null() })],
  ['optional members', z.object({ a: z.string().optional(), b: z.int().default(3) })],
  ['nested objects', z.object({ a: z.object({ b: z.object({ c: z.string().min(1) }) }) })],
  [
    'an intersection',
    z.object({ a: z.intersection(z.object({ b: z.int() }), z.object({ c: z.int() })) }),
  ],
  ['references', z.object({ a: z.array(z.object({ b: z.string() }).meta({ id: 'Part' })).min(1) })],
  [
    'an example',
    z.object({
      a: z
        .string()
        .regex(/^k_\d+$/)
        .meta({ examples: ['k_1'] }),
    }),
  ],
];

it.each(ACCEPTED)('makes an input that a schema of %s accepts', (_name, schema) => {
  const made = composeExample(z.toJSONSchema(schema, { io: 'input' }));
  expect(schema.safeParse(made).error).toBeUndefined();
});

it('bounds what a hostile schema asks for', () => {
  const own = {
    $ref: '#',
    allOf: [{ $ref: '#' }],
    type: 'array',
    items: { $ref: '#' },
    minItems: 1e9,
  };
  const endless = { type: 'object', required: ['a'], properties: { a: own } };
  expect(JSON.stringify(composeExample(endless)).length).toBeLessThan(100_000);
  const many = Array.from({ length: 100_000 }, (_, at) => `m${at}`);
  const wide = { type: 'object', required: many, properties: {} };
  expect(Object.keys(composeExample(wide)).length).toBeLessThan(300);
});
