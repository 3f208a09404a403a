// Chooses the input of the commands that are printed for an endpoint: the example in the handler's opening comment,
// else one made from the JSON Schema of its inputs.
import { readFileSync } from 'node:fs';

export type JsonSchema = Readonly<Record<string, unknown>>;

const MAX_DEPTH = 8;
/** Schemas that require more elements or characters get no example. */
const MAX_LENGTH = 100;
/** An example with more parts is too long to paste. */
const MAX_PARTS = 200;

const FORMATS: Readonly<Record<string, string>> = {
  date: '2026-01-31',
  'date-time': '2026-01-31T12:00:00Z',
  duration: 'PT1M',
  email: 'you@example.com',
  hostname: 'example.com',
  ipv4: '192.0.2.1',
  ipv6: '2001:db8::1',
  time: '12:00:00',
  uri: 'https://example.com/',
  uuid: '01912f4e-0000-7000-8000-000000000000',
};

/** Returns the example for a handler file. `schema`: null if none is known. */
export function chooseExample(file: string, schema: JsonSchema | null | undefined): object {
  return readExampleInput(readSource(file)) ?? (schema ? composeExample(schema) : {});
}

/** An empty text if the file cannot be read. */
export function readSource(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/**
 * Finds an example input for a handler: the first line of its opening comment that is a JSON
 * object, without what follows an arrow.
 */
export function readExampleInput(source: string): object | undefined {
  for (const line of source.split('\n')) {
    const comment = /^\s*(?:\/\/|\/?\*+)\s?(.*?)(?:\*\/)?\s*$/.exec(line);
    if (!comment && line.trim() !== '') break;
    const [before = ''] = (comment?.[1] ?? '').split('→');
    const value = parseObject(before.trim());
    if (value) return value;
  }
  return undefined;
}

function parseObject(text: string): object | undefined {
  if (!text.startsWith('{')) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Makes an input with the required members only. A `pattern` gets no text. */
export function composeExample(root: JsonSchema): object {
  const made = compose({ root, left: MAX_PARTS }, root, 0);
  return isObject(made) ? made : {};
}

interface Composition {
  root: JsonSchema;
  /** Parts that may still be made. */
  left: number;
}

function compose(composition: Composition, given: unknown, depth: number): unknown {
  composition.left -= 1;
  if (!isObject(given) || composition.left < 0 || depth > MAX_DEPTH) return null;
  const schema = mergeAll(composition.root, given, depth);
  const [example] = readList(schema['examples']);
  if (example !== undefined) return example;
  for (const name of ['default', 'const']) if (Object.hasOwn(schema, name)) return schema[name];
  const [choice] = readList(schema['enum']);
  if (choice !== undefined) return choice;
  const [option] = [...readList(schema['anyOf']), ...readList(schema['oneOf'])];
  if (isObject(option)) {
    const { anyOf: _any, oneOf: _one, ...rest } = schema;
    return compose(composition, merge(rest, option), depth + 1);
  }
  const [type = isObject(schema['properties']) ? 'object' : undefined] =
    typeof schema['type'] === 'string' ? [schema['type']] : readList(schema['type']);
  switch (type) {
    case 'object':
      return composeMembers(composition, schema, depth);
    case 'array':
      return composeItems(composition, schema, depth);
    case 'string':
      return composeText(schema);
    case 'integer':
    case 'number':
      return composeNumber(schema, type === 'integer' ? 1 : 0.5);
    case 'boolean':
      return true;
    default:
      return null;
  }
}

function composeMembers(composition: Composition, schema: JsonSchema, depth: number): object {
  const properties = isObject(schema['properties']) ? schema['properties'] : {};
  const names = readList(schema['required']).filter((name) => typeof name === 'string');
  const made = names
    .slice(0, Math.max(0, composition.left))
    .map((name) => [name, compose(composition, properties[name] ?? {}, depth + 1)]);
  return Object.fromEntries(made);
}

function composeItems(composition: Composition, schema: JsonSchema, depth: number): unknown[] {
  const first = readList(schema['prefixItems']);
  const length = Math.min(readNumber(schema, 'minItems') ?? first.length, MAX_LENGTH);
  return Array.from({ length }, (_, at) =>
    compose(composition, first[at] ?? schema['items'], depth + 1),
  );
}

function composeText(schema: JsonSchema): string {
  const { format } = schema;
  if (typeof format === 'string' && Object.hasOwn(FORMATS, format)) return FORMATS[format] ?? '';
  const min = Math.min(readNumber(schema, 'minLength') ?? 0, MAX_LENGTH);
  const max = readNumber(schema, 'maxLength') ?? MAX_LENGTH;
  return 'text'.padEnd(min, '.').slice(0, Math.max(0, max));
}

/** The number of the range that is nearest to 1. */
function composeNumber(schema: JsonSchema, step: number): number {
  const above = readNumber(schema, 'exclusiveMinimum');
  const below = readNumber(schema, 'exclusiveMaximum');
  const unit = readNumber(schema, 'multipleOf') ?? step;
  const min = Math.max(
    readNumber(schema, 'minimum') ?? -Infinity,
    above === undefined ? -Infinity : above + unit,
  );
  const max = Math.min(
    readNumber(schema, 'maximum') ?? Infinity,
    below === undefined ? Infinity : below - unit,
  );
  const nearest = Math.min(Math.max(1, min), max);
  const fits = Math.ceil(nearest / unit) * unit;
  return fits <= max ? fits : Math.floor(nearest / unit) * unit;
}

/** Follows `$ref` and joins `allOf`, so that one schema says everything. */
function mergeAll(root: JsonSchema, given: JsonSchema, depth: number): JsonSchema {
  const { $ref: reference, allOf, ...own } = given;
  if (depth > MAX_DEPTH) return own;
  const parts = [
    ...(reference === undefined ? [] : [resolve(root, reference)]),
    ...readList(allOf),
  ];
  return parts
    .filter(isObject)
    .reduce((all, part) => merge(all, mergeAll(root, part, depth + 1)), own as JsonSchema);
}

function merge(one: JsonSchema, other: JsonSchema): JsonSchema {
  const required = [...readList(one['required']), ...readList(other['required'])];
  const [first, second] = [one['properties'], other['properties']];
  const properties = { ...(isObject(first) && first), ...(isObject(second) && second) };
  return {
    ...other,
    ...one,
    ...(required.length > 0 && { required }),
    ...(Object.keys(properties).length > 0 && { properties }),
  };
}

/** Finds a part of the same schema: `#/$defs/name`. */
function resolve(root: JsonSchema, reference: unknown): unknown {
  if (typeof reference !== 'string' || !reference.startsWith('#')) return undefined;
  const steps = reference.split('/').slice(1);
  return steps.reduce<unknown>((part, step) => {
    const name = decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~');
    return isObject(part) && Object.hasOwn(part, name) ? part[name] : undefined;
  }, root);
}

function readNumber(schema: JsonSchema, name: string): number | undefined {
  const value = schema[name];
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

function readList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function isObject(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
