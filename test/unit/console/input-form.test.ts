// The tree of fields that the console makes from an input schema: pure, and bounded whatever the schema is.
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { JsonSchema } from '../../../console/src/pages/playground/form/schema.ts';
import {
  BOUNDS,
  buildForm,
  type Field,
  isUseful,
  listMissing,
} from '../../../console/src/pages/playground/form/tree.ts';
import { createInput, setPart } from '../../../console/src/pages/playground/form/values.ts';

const NONE = new Map<string, number>();

function build(schema: JsonSchema, value: unknown = {}, choices = NONE): Field {
  return buildForm(schema, value, choices);
}

/** The field of the only member. */
function buildMember(member: unknown, value?: unknown): Field | undefined {
  const schema = { type: 'object', properties: { a: member } };
  const form = build(schema, value === undefined ? {} : { a: value });
  return form.kind === 'group' ? form.fields[0] : undefined;
}

function countFields(field: Field): number {
  if (field.kind === 'union') return 1 + (field.field ? countFields(field.field) : 0);
  if (field.kind !== 'group' && field.kind !== 'list') return 1;
  return field.fields.reduce((sum, each) => sum + countFields(each), 1);
}

describe('a field', () => {
  it.each([
    ['text of several lines', { type: 'string' }, { kind: 'text', input: 'area' }],
    ['short text', { type: 'string', maxLength: 40 }, { kind: 'text', input: 'text' }],
    ['date', { type: 'string', format: 'date' }, { kind: 'text', input: 'date' }],
    [
      'file',
      { type: 'string', contentEncoding: 'base64', contentMediaType: 'image/png' },
      { kind: 'file', encoding: 'base64', accept: 'image/png' },
    ],
    ['file by format', { type: 'string', format: 'byte' }, { kind: 'file' }],
    ['whole number', { type: 'integer', minimum: 1 }, { kind: 'number', min: 1, step: 1 }],
    ['number', { type: 'number', multipleOf: 0.5 }, { kind: 'number', step: 0.5 }],
    ['number without a step', { type: 'number', multipleOf: 0 }, { step: undefined }],
    ['switch', { type: 'boolean' }, { kind: 'switch' }],
    ['choice', { enum: ['x', 2, null] }, { kind: 'enum', values: ['x', 2, null] }],
    ['list', { type: 'array', items: { type: 'string' } }, { kind: 'list', canAdd: true }],
    ['tuple', { type: 'array', prefixItems: [{}], items: {} }, { kind: 'json' }],
    ['record', { type: 'object', additionalProperties: {} }, { kind: 'json' }],
    ['unknown', { type: 'colour' }, { kind: 'json' }],
    ['nothing', 7, { kind: 'json' }],
    ['union', { type: ['string', 'null'] }, { kind: 'union', chosen: undefined }],
  ])('of a %s', (_, member, expected) => {
    expect(buildMember(member)).toMatchObject(expected);
  });

  it('is JSON if its value is not what the schema says', () => {
    expect(buildMember({ type: 'string' }, 7)).toMatchObject({ kind: 'json', value: 7 });
    expect(buildMember({ enum: ['x'] }, 'y')).toMatchObject({ kind: 'json', value: 'y' });
    const union = { anyOf: [{ type: 'string' }, { type: 'null' }] };
    expect(buildMember(union, 7)).toMatchObject({ kind: 'json' });
  });

  it('has in a union the option that the value fits, or that a person chose', () => {
    const schema = z.toJSONSchema(
      z.object({
        shape: z.discriminatedUnion('kind', [
          z.object({ kind: z.literal('circle'), radius: z.number() }),
          z.object({ kind: z.literal('square'), side: z.number() }),
        ]),
      }),
      { io: 'input' },
    );
    const form = build(schema, { shape: { kind: 'square' } });
    const union = form.kind === 'group' ? form.fields[0] : undefined;
    expect(union).toMatchObject({
      kind: 'union',
      chosen: 1,
      options: [
        { label: 'kind: circle', initial: { kind: 'circle' } },
        { label: 'kind: square', initial: { kind: 'square' } },
      ],
    });
    expect(listMissing(form)).toEqual(['side']);
    const loose = { anyOf: [{ title: 'a' }, { title: 'b' }] };
    const chosen = build(loose, {}, new Map([['[]', 1]]));
    expect(chosen).toMatchObject({ kind: 'union', chosen: 1 });
  });

  it('is for a reference or merged parts that of what they lead to', () => {
    const schema = {
      allOf: [{ $ref: '#/$defs/base' }, { properties: { b: { type: 'boolean' } } }],
      type: 'object',
      required: ['b'],
      $defs: {
        base: { properties: { 'a/b': { $ref: '#/$defs/text' } } },
        text: { type: 'string' },
      },
    };
    expect(build(schema)).toMatchObject({
      kind: 'group',
      fields: [
        { kind: 'text', path: ['a/b'] },
        { kind: 'switch', path: ['b'], isRequired: true },
      ],
    });
  });
});

describe('a form', () => {
  it('has no use if the schema says nothing of the members', () => {
    expect(isUseful(build({}))).toBe(false);
    expect(isUseful(build({ type: 'object' }))).toBe(false);
    expect(isUseful(build({ type: 'object', properties: { a: {} } }))).toBe(true);
  });

  it.each<[string, JsonSchema]>([
    ['refers to itself', { $ref: '#' }],
    ['refers in a circle', { $ref: '#/a', a: { $ref: '#/b' }, b: { $ref: '#/a' } }],
    ['refers to another document', { $ref: 'https://example.com/' }],
    ['merges itself', { allOf: [{ $ref: '#' }, { $ref: '#' }] }],
    ['is a union of itself', { anyOf: [{ $ref: '#' }, { $ref: '#' }] }],
  ])('ends for a schema that %s', (_, schema) => {
    expect(countFields(build(schema))).toBeLessThan(BOUNDS.fields);
    expect(createInput(schema)).toEqual({});
  });

  it('has a bounded number of fields, and its first value a bounded number of parts', () => {
    const names = Array.from({ length: 30 }, (_, n) => `p${n}`);
    const properties = Object.fromEntries(names.map((name) => [name, { $ref: '#' }]));
    const schema = { type: 'object', properties, required: names };
    const input = createInput(schema);
    expect(JSON.stringify(input).match(/"p\d/g)?.length).toBeLessThanOrEqual(200);
    const most = BOUNDS.fields + BOUNDS.depth * BOUNDS.members;
    expect(countFields(build(schema, input))).toBeLessThan(most);
    const many = Object.fromEntries(Array.from({ length: 5_000 }, (_, n) => [n, {}]));
    expect(build({ type: 'object', properties: many })).toMatchObject({ kind: 'json' });
    expect(buildMember({ type: 'array', items: {} }, Array(5_000).fill(1))?.kind).toBe('json');
    expect(buildMember({ enum: Array(5_000).fill(1) })?.kind).toBe('json');
  });

  it('gives up parts that double at each step', () => {
    const steps = Array.from({ length: 40 }, (_, n) => {
      const next = { $ref: `#/$defs/${n + 1}` };
      return [n, { allOf: [next, next] }];
    });
    const $defs = { ...Object.fromEntries(steps), 40: { type: 'string' } };
    expect(build({ $ref: '#/$defs/0', $defs })).toMatchObject({ kind: 'json' });
  });

  it('names the required parts that are missing', () => {
    const schema = z.toJSONSchema(
      z.object({
        prompt: z.string().meta({ title: 'Prompt' }),
        size: z.object({ width: z.int() }),
        layers: z.array(z.object({ name: z.string() })),
        seed: z.int().optional(),
      }),
    );
    expect(listMissing(build(schema))).toEqual(['Prompt', 'size', 'layers']);
    const value = { prompt: '', size: {}, layers: [{}] };
    expect(listMissing(build(schema, value))).toEqual(['width', 'name']);
  });
});

describe('the value of a form', () => {
  it('starts with the example, or with constants, defaults and empty parts', () => {
    const schema = z.toJSONSchema(
      z.object({
        version: z.literal(2),
        steps: z.int().default(20),
        isTiled: z.boolean(),
        prompt: z.string(),
        size: z.object({ width: z.int().default(64) }),
        layers: z.array(z.string()),
        extra: z.object({ a: z.int().default(1) }).optional(),
      }),
      { io: 'input' },
    );
    const first = { version: 2, steps: 20, isTiled: false, size: { width: 64 }, layers: [] };
    expect(createInput(schema)).toEqual(first);
    expect(createInput({ ...schema, examples: ['x', { a: 1 }] })).toEqual({ a: 1 });
  });

  it('changes in one part; the others stay', () => {
    const value = { a: { b: [1, 2] }, own: true };
    expect(setPart(value, ['a', 'b', 1], 3)).toEqual({ a: { b: [1, 3] }, own: true });
    expect(setPart(value, ['a'], undefined)).toEqual({ own: true });
    expect(setPart({}, ['x', 0, 'y'], 1)).toEqual({ x: [{ y: 1 }] });
    const odd = setPart({}, ['__proto__'], 'text');
    expect(JSON.stringify(odd)).toBe('{"__proto__":"text"}');
    expect(value).toEqual({ a: { b: [1, 2] }, own: true });
  });
});

it('is made with bounded work from a small schema that refers to the same parts very often', () => {
  const links = Array.from({ length: 55 }, (_, index) => [
    `c${index}`,
    { $ref: `#/$defs/c${index + 1}` },
  ]);
  const members = Array.from({ length: 60 }, (_, index) => `p${index}`);
  const schema = {
    $defs: {
      ...Object.fromEntries(links),
      c55: { type: 'string', default: 'x' },
      object: {
        ...{ type: 'object', required: members },
        properties: Object.fromEntries(members.map((name) => [name, { $ref: '#/$defs/c0' }])),
      },
      union: { anyOf: Array.from({ length: 200 }, () => ({ $ref: '#/$defs/object' })) },
    },
    type: 'object',
    properties: Object.fromEntries(
      Array.from({ length: 149 }, (_, index) => [`m${index}`, { $ref: '#/$defs/union' }]),
    ),
  };
  // Every look at an object of the schema asks for one of its members: count those.
  let looks = 0;
  const counted = <T extends object>(value: T): T =>
    new Proxy(value, {
      get(target, name, receiver) {
        looks += 1;
        const found: unknown = Reflect.get(target, name, receiver);
        return typeof found === 'object' && found !== null ? counted(found) : found;
      },
    });
  const form = build(counted(schema));
  expect(countFields(form)).toBeLessThanOrEqual(BOUNDS.fields);
  expect(looks).toBeLessThan(5_000_000);
});
