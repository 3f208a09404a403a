// Reads parts of a JSON Schema. A schema is data of a worker: whatever it holds, reading it ends soon and runs nothing.

export type JsonSchema = Readonly<Record<string, unknown>>;

/** References and members of `allOf` that are followed for one part. */
const MAX_HOPS = 64;
/** Members whose constants tell options of a union apart. */
const MAX_COMPARED = 20;
const MAX_TEXT = 500;
/** Parts and members that are looked at for one form: a small schema can refer to the same part very often. */
const MAX_WORK = 300_000;

export const TYPES = ['object', 'array', 'string', 'integer', 'number', 'boolean', 'null'] as const;
export type TypeName = (typeof TYPES)[number];

export function isObject(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** An own member: `__proto__` and `constructor` are names like others. */
export function readMember(owner: unknown, name: string | number): unknown {
  return typeof owner === 'object' && owner !== null && Object.hasOwn(owner, name)
    ? Reflect.get(owner, name)
    : undefined;
}

export function readText(schema: JsonSchema, name: string): string | undefined {
  const text = readMember(schema, name);
  return typeof text === 'string' && text !== '' ? text.slice(0, MAX_TEXT) : undefined;
}

export function readNumber(schema: JsonSchema, name: string): number | undefined {
  const value = readMember(schema, name);
  return typeof value === 'number' && Number.isFinite(value) ? value : undefined;
}

export function readList(schema: JsonSchema, name: string): readonly unknown[] {
  const value = readMember(schema, name);
  return Array.isArray(value) ? value : [];
}

export function readTypes(schema: JsonSchema): TypeName[] {
  const type = readMember(schema, 'type');
  const names: unknown[] = Array.isArray(type) ? type : [type];
  const known = TYPES.filter((each) => names.includes(each));
  if (known.length === 0 && isObject(readMember(schema, 'properties'))) return ['object'];
  return known;
}

/** A schema whose parts are read, and the work that is left for it. */
export interface SchemaSource {
  readonly root: JsonSchema;
  left: number;
}

export function openSchema(root: JsonSchema): SchemaSource {
  return { root, left: MAX_WORK };
}

/** Follows `$ref` and merges `allOf`. Undefined if that does not end soon, leads nowhere, or all work is done. */
export function resolve(source: SchemaSource, schema: unknown): JsonSchema | undefined {
  return resolveWithin({ left: MAX_HOPS }, source, schema);
}

/** All branches share the bound: a chain of doubled parts would otherwise grow without end. */
function resolveWithin(
  hops: { left: number },
  source: SchemaSource,
  schema: unknown,
): JsonSchema | undefined {
  hops.left -= 1;
  if (hops.left < 0 || source.left < 0) return undefined;
  source.left -= 1 + countMembers(schema);
  if (schema === true) return {};
  if (!isObject(schema)) return undefined;
  const target = readMember(schema, '$ref');
  if (typeof target === 'string') {
    const { $ref: _, ...own } = schema;
    const found = resolveWithin(hops, source, follow(source.root, target));
    return found && { ...found, ...own };
  }
  const all = readList(schema, 'allOf');
  if (all.length === 0) return schema;
  const { allOf: _, ...own } = schema;
  let merged: JsonSchema = {};
  for (const each of all) {
    const part = resolveWithin(hops, source, each);
    if (!part) return undefined;
    merged = merge(merged, part);
  }
  return merge(merged, own);
}

/** What it costs to copy the part or to look through its members. */
function countMembers(schema: unknown): number {
  if (!isObject(schema)) return 0;
  return Object.keys(schema).length + Object.keys(toObject(schema['properties'])).length;
}

/** The second one counts where both say the same. */
function merge(one: JsonSchema, other: JsonSchema): JsonSchema {
  const properties = { ...toObject(one['properties']), ...toObject(other['properties']) };
  const required = [...readList(one, 'required'), ...readList(other, 'required')];
  const hasMembers = isObject(one['properties']) || isObject(other['properties']);
  return { ...one, ...other, required, ...(hasMembers && { properties }) };
}

function toObject(value: unknown): JsonSchema {
  return isObject(value) ? value : {};
}

/** Only references within the document: the page loads nothing. */
function follow(root: JsonSchema, target: string): unknown {
  if (!target.startsWith('#')) return undefined;
  let found: unknown = root;
  for (const step of target.slice(1).split('/').slice(1)) {
    found = readMember(found, decode(step).replaceAll('~1', '/').replaceAll('~0', '~'));
  }
  return found;
}

function decode(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}

/** The alternatives of a part: `anyOf`, `oneOf`, or several types. Empty if it has one form. */
export function listOptions(schema: JsonSchema): readonly unknown[] {
  for (const name of ['anyOf', 'oneOf']) {
    const options = readList(schema, name);
    if (options.length > 0) return options;
  }
  const types = readTypes(schema);
  return types.length > 1 ? types.map((type) => ({ ...schema, type })) : [];
}

/** Whether the value has the form of the part; looks no deeper than at constants of its members. */
export function fits(source: SchemaSource, schema: JsonSchema, value: unknown): boolean {
  if (Object.hasOwn(schema, 'const')) return isEqual(schema['const'], value);
  const values = readMember(schema, 'enum');
  if (Array.isArray(values)) source.left -= values.length;
  if (source.left < 0) return false;
  if (Array.isArray(values)) return values.some((each) => isEqual(each, value));
  const types = readTypes(schema);
  if (types.length > 0 && !types.some((type) => isOfType(type, value))) return false;
  if (!isObject(value)) return true;
  const members = Object.entries(toObject(schema['properties'])).slice(0, MAX_COMPARED);
  return members.every(([name, member]) => {
    const part = resolve(source, member);
    if (!part || !Object.hasOwn(part, 'const')) return true;
    return isEqual(part['const'], readMember(value, name));
  });
}

export function isOfType(type: TypeName, value: unknown): boolean {
  if (type === 'array') return Array.isArray(value);
  if (type === 'object') return isObject(value);
  if (type === 'null') return value === null;
  if (type === 'integer') return Number.isInteger(value);
  return typeof value === type;
}

export function isEqual(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  return isNested(one) && isNested(other) && JSON.stringify(one) === JSON.stringify(other);
}

function isNested(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}
