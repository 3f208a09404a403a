// Finds the JSON Schema of a handler's input: the one that its author wrote, or one that the library of its `input`
// schema derives. It loads no library itself.
import { isPlainObject, stringifyJson } from '../../wire/json.ts';
import { findSchemaFault } from '../../wire/message-bounds.ts';
import type { Schema } from '../define.ts';
import { describeThrown } from '../thrown.ts';

/** JSON text of the schema, or why there is none. */
export type DescribedInput = { readonly text: string } | { readonly missing: string };

interface DescribedHandler {
  readonly input: Schema | undefined;
  readonly inputSchema: object | undefined;
}

const TARGET = 'draft-2020-12';

/** Never throws: a handler without a schema runs like any other. */
export function describeInput({ input, inputSchema }: DescribedHandler): DescribedInput {
  try {
    const schema = inputSchema ?? (input && derive(input));
    if (schema === undefined) return { missing: explainMissing(input) };
    if (!isPlainObject(schema)) return { missing: 'its JSON Schema is not a plain object' };
    const text = stringifyJson(schema, 'inputSchema');
    const fault = findSchemaFault(text);
    return fault === undefined ? { text } : { missing: `its JSON Schema ${fault}` };
  } catch (error) {
    return { missing: describeThrown(error).message };
  }
}

/** The input side: what a caller sends, before defaults and transformations. */
function derive(input: Schema): unknown {
  const { vendor } = input['~standard'];
  const standard = readMember(input['~standard'], 'jsonSchema');
  // zod refuses dates and other values that JSON Schema lacks, unless they may be anything.
  const libraryOptions = vendor === 'zod' ? { unrepresentable: 'any' } : undefined;
  if (standard) return call(standard, 'input', { target: TARGET, libraryOptions });
  if (vendor === 'zod') {
    return call(input, 'toJSONSchema', { target: TARGET, io: 'input', unrepresentable: 'any' });
  }
  return call(input, 'toJsonSchema', undefined);
}

function explainMissing(input: Schema | undefined): string {
  if (!input) return 'the handler has no `input` schema and no `inputSchema`';
  const { vendor } = input['~standard'];
  return `this version of ${vendor} derives no JSON Schema; set \`inputSchema\``;
}

function readMember(value: object, name: string): object | undefined {
  const member: unknown = Reflect.get(value, name);
  const isObject = typeof member === 'object' || typeof member === 'function';
  return isObject && member !== null ? member : undefined;
}

/** Undefined if the object has no such method. */
function call(owner: object, name: string, options: object | undefined): unknown {
  const method: unknown = Reflect.get(owner, name);
  return typeof method === 'function' ? method.call(owner, options) : undefined;
}
