// The value of a form: what it starts with, and copies of it with one part changed.
import {
  isObject,
  type JsonSchema,
  listOptions,
  openSchema,
  readList,
  readMember,
  readTypes,
  resolve,
  type SchemaSource,
} from './schema.ts';

export type Path = readonly (string | number)[];

/** Parts that a schema may ask for before anyone has entered anything. */
const MAX_PARTS = 200;
const MAX_DEPTH = 8;

/** A copy with that part. Undefined removes a member of an object; an element of a list becomes null. */
export function setPart(value: unknown, path: Path, part: unknown): unknown {
  const [step, ...rest] = path;
  if (step === undefined) return part;
  const changed = setPart(readMember(value, step), rest, part);
  if (typeof step === 'number') {
    const list: unknown[] = Array.isArray(value) ? [...value] : [];
    list[step] = changed ?? null;
    return list;
  }
  const members = isObject(value) ? value : {};
  if (changed !== undefined) return { ...members, [step]: changed };
  return Object.fromEntries(Object.entries(members).filter(([name]) => name !== step));
}

/** The example of the whole input if there is one; otherwise constants, defaults and empty required parts. */
export function createInput(root: JsonSchema): object {
  const example = readList(root, 'examples').find(isObject);
  const made = example ?? createPart(openSchema(root), root);
  return isObject(made) ? made : {};
}

/** Undefined if a person has to choose it. */
export function createPart(source: SchemaSource, schema: unknown): unknown {
  return create({ source, left: MAX_PARTS }, schema, 0);
}

interface Budget {
  source: SchemaSource;
  left: number;
}

function create(budget: Budget, given: unknown, depth: number): unknown {
  budget.left -= 1;
  const schema = resolve(budget.source, given);
  if (!schema || budget.left < 0 || depth > MAX_DEPTH) return undefined;
  if (Object.hasOwn(schema, 'default')) return schema['default'];
  if (Object.hasOwn(schema, 'const')) return schema['const'];
  if (listOptions(schema).length > 0 || Array.isArray(schema['enum'])) return undefined;
  const [type] = readTypes(schema);
  if (type === 'null') return null;
  if (type === 'boolean') return false;
  if (type === 'array') return [];
  return type === 'object' ? createMembers(budget, schema, depth) : undefined;
}

function createMembers(budget: Budget, schema: JsonSchema, depth: number): object {
  const required = readList(schema, 'required');
  const made: [string, unknown][] = [];
  const { properties } = schema;
  for (const [name, member] of Object.entries(isObject(properties) ? properties : {})) {
    if (budget.left <= 0) break;
    const part = resolve(budget.source, member);
    // An optional part that has parts of its own is added by a button.
    if (!required.includes(name) && !(part && Object.hasOwn(part, 'default'))) continue;
    const value = create(budget, member, depth + 1);
    if (value !== undefined) made.push([name, value]);
  }
  return Object.fromEntries(made);
}
