// The JSON Schema of a handler's input, from libraries as they are installed and from definitions.
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { Schema } from '../../../../src/handler/define.ts';
import {
  describeInput,
  HandlerLoadError,
  readHandler,
} from '../../../../src/handler/loading/load.ts';

const run = () => null;

function describeHandler(exported: unknown): unknown {
  const described = describeInput(readHandler(exported, 'handler.ts'));
  return described.kind === 'schema' ? JSON.parse(described.text) : described.reason;
}

/** A schema of a library that is not installed. */
function schemaOf(more: object, onStandard: object = {}): Schema {
  const validate = (value: unknown) => ({ value });
  return { ...more, '~standard': { version: 1, vendor: 'lib', validate, ...onStandard } };
}

describe('the input schema of a handler', () => {
  it('is derived from a schema of zod, as callers send the input', () => {
    const input = z.object({
      prompt: z.string().min(1).describe('What to draw'),
      size: z.enum(['small', 'large']).default('small'),
      at: z.date().optional(),
      steps: z
        .string()
        .transform((text) => text.length)
        .optional(),
    });
    expect(describeHandler({ default: { run, input } })).toMatchObject({
      type: 'object',
      properties: {
        prompt: { type: 'string', minLength: 1, description: 'What to draw' },
        size: { type: 'string', enum: ['small', 'large'], default: 'small' },
        at: {},
        steps: { type: 'string' },
      },
      required: ['prompt'],
    });
  });

  it('is finite for a recursive schema', () => {
    const node: z.ZodType = z.lazy(() => z.object({ children: z.array(node) }));
    const text = JSON.stringify(describeHandler({ default: { run, input: node } }));
    expect(text).toContain('$ref');
  });

  it('is that of any library with Standard JSON Schema', () => {
    const jsonSchema = { input: ({ target }: { target: string }) => ({ title: target }) };
    const input = schemaOf({}, { jsonSchema });
    expect(describeHandler({ default: { run, input } })).toEqual({ title: 'draft-2020-12' });
  });

  it('is that of the library’s own method', () => {
    const input = schemaOf({ toJsonSchema: () => ({ title: 'own' }) });
    expect(describeHandler({ default: { run, input } })).toEqual({ title: 'own' });
  });

  it('is the one that the author wrote, if there is one, in a definition and in a module', () => {
    const inputSchema = { type: 'object', title: 'written' };
    const input = z.object({ a: z.string() });
    expect(describeHandler({ default: { run, input, inputSchema } })).toEqual(inputSchema);
    expect(describeHandler({ default: run, inputSchema })).toEqual(inputSchema);
  });

  it('is missing, with the reason, if none can be had', () => {
    const missing = (definition: object) => describeHandler({ default: { run, ...definition } });
    expect(missing({})).toMatch(/no `input` schema/);
    expect(missing({ input: schemaOf({}) })).toMatch(/lib derives no JSON Schema; set/);
    const failing = () => {
      throw new Error('not representable');
    };
    expect(missing({ input: schemaOf({ toJsonSchema: failing }) })).toBe('not representable');
    expect(missing({ input: schemaOf({ toJsonSchema: () => 'text' }) })).toMatch(/not a plain/);
    const long = { title: 'é'.repeat(32_768) };
    expect(missing({ inputSchema: long })).toMatch(/has 65548 bytes; at most 65536/);
    const deep = JSON.parse(`${'{"a":'.repeat(64)}{}${'}'.repeat(64)}`);
    expect(missing({ inputSchema: deep })).toMatch(/deeper than 64 levels/);
    expect(missing({ inputSchema: { a: () => 1 } })).toMatch(/inputSchema\.a is not JSON/);
    const cycle: Record<string, unknown> = {};
    cycle['self'] = cycle;
    expect(missing({ inputSchema: cycle })).toMatch(/a cycle/);
  });

  it('must be a plain object in a definition; an export of that name may be anything', () => {
    const read = (inputSchema: unknown) => () =>
      readHandler({ default: { run, inputSchema } }, 'h.ts');
    for (const wrong of [z.object({}), 'text', [], null]) {
      expect(read(wrong)).toThrow(HandlerLoadError);
      expect(describeHandler({ default: run, inputSchema: wrong })).toMatch(/no `input` schema/);
    }
    expect(read(z.object({}))).toThrow(/h\.ts: 'inputSchema' must be a JSON Schema/);
  });
});
