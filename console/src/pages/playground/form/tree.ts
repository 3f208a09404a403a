// Makes the tree of fields of a form from a schema and a value. Pure. Whatever the schema is, the tree has a bounded
// number of fields: what is deeper, more or not understood is one field for JSON.
import {
  fits,
  isEqual,
  isObject,
  isOfType,
  type JsonSchema,
  listOptions,
  openSchema,
  readList,
  readMember,
  readNumber,
  readText,
  readTypes,
  resolve,
  type SchemaSource,
} from './schema.ts';
import { createPart, type Path } from './values.ts';

export const BOUNDS = { fields: 500, depth: 8, members: 150, items: 100, choices: 200 };

export type TextInput = 'text' | 'area' | 'date' | 'time' | 'password';

interface Common {
  /** Unique in the tree. */
  key: string;
  path: Path;
  label: string;
  help: string | undefined;
  isRequired: boolean;
  /** Undefined: the input does not have this part. */
  value: unknown;
  examples: readonly unknown[];
  /** The default, if the part is left out. */
  fallback: unknown;
}

export type Field = Common &
  (
    | { kind: 'text'; input: TextInput; maxLength: number | undefined }
    | { kind: 'file'; encoding: 'base64' | 'base64url'; accept: string | undefined }
    | {
        kind: 'number';
        min: number | undefined;
        max: number | undefined;
        step: number | undefined;
      }
    | { kind: 'switch' }
    | { kind: 'enum'; values: readonly unknown[] }
    | { kind: 'fixed' }
    | { kind: 'group'; fields: Field[]; initial: unknown }
    | { kind: 'list'; fields: Field[]; initial: unknown; canAdd: boolean; canRemove: boolean }
    | {
        kind: 'union';
        options: readonly { label: string; initial: unknown }[];
        chosen: number | undefined;
        field: Field | undefined;
      }
    | { kind: 'json' }
  );

/** Options of unions that a person has chosen, by the key of the field: a value may fit several. */
export type Choices = ReadonlyMap<string, number>;

interface Part {
  schema: unknown;
  value: unknown;
  path: Path;
  /** Name of the part, if its schema has no title. */
  name: string;
  isRequired: boolean;
  /** Options of unions around the part, which have the same path. */
  options?: string;
}

export function buildForm(root: JsonSchema, value: unknown, choices: Choices): Field {
  const part = { schema: root, value, path: [], name: 'Input', isRequired: true };
  return new FormBuilder(openSchema(root), choices).build(part, 0);
}

/** Whether the form says more than the JSON itself. */
export function isUseful(field: Field): boolean {
  if (field.kind === 'union') return field.options.length > 1;
  return field.kind === 'group' && field.fields.length > 0;
}

/** Labels of required fields that the input lacks. */
export function listMissing(field: Field): string[] {
  if (field.kind === 'group' || field.kind === 'list') {
    if (field.value === undefined) return field.isRequired ? [field.label] : [];
    return field.fields.flatMap(listMissing);
  }
  if (field.kind === 'union' && field.field) return listMissing(field.field);
  return field.isRequired && field.value === undefined ? [field.label] : [];
}

class FormBuilder {
  readonly #source: SchemaSource;
  readonly #choices: Choices;
  #left = BOUNDS.fields;

  constructor(source: SchemaSource, choices: Choices) {
    this.#source = source;
    this.#choices = choices;
  }

  build(part: Part, depth: number): Field {
    this.#left -= 1;
    const schema = resolve(this.#source, part.schema);
    const common = describe(part, schema ?? {});
    const isBounded = this.#left > 0 && depth <= BOUNDS.depth;
    return (
      (isBounded && schema && this.#choose(part, schema, depth)) || { ...common, kind: 'json' }
    );
  }

  /** Undefined: as JSON. */
  #choose(part: Part, schema: JsonSchema, depth: number): Field | undefined {
    const common = describe(part, schema);
    const { isRequired, value } = part;
    if (Object.hasOwn(schema, 'const')) {
      return isSet(value) && !isEqual(value, schema['const'])
        ? undefined
        : { ...common, kind: 'fixed', fallback: schema['const'] };
    }
    const values = readMember(schema, 'enum');
    if (Array.isArray(values)) {
      if (values.length > BOUNDS.choices) return undefined;
      if (isSet(value) && !values.some((each) => isEqual(each, value))) return undefined;
      return { ...common, kind: 'enum', values };
    }
    if (listOptions(schema).length > 0) return this.#buildUnion(part, schema, depth);
    const [type] = readTypes(schema);
    if (!type || (isSet(value) && !isOfType(type, value))) return undefined;
    switch (type) {
      case 'object':
        return this.#buildGroup(part, schema, depth);
      case 'array':
        return this.#buildList(part, schema, depth);
      case 'boolean':
        return { ...common, kind: 'switch' };
      case 'null':
        return { ...common, kind: 'fixed', fallback: null, isRequired };
      case 'string':
        return { ...common, ...describeText(schema) };
      default:
        return { ...common, kind: 'number', ...describeRange(schema, type === 'integer') };
    }
  }

  #buildGroup(part: Part, schema: JsonSchema, depth: number): Field | undefined {
    const properties = readMember(schema, 'properties');
    const members = Object.entries(isObject(properties) ? properties : {});
    if (members.length === 0 || members.length > BOUNDS.members) return undefined;
    const required = readList(schema, 'required');
    const common = describe(part, schema);
    const isShown = isSet(part.value) || depth === 0;
    const fields = (isShown ? members : []).map(([name, member]) =>
      this.build(
        {
          schema: member,
          value: readMember(part.value, name),
          path: [...part.path, name],
          name,
          isRequired: required.includes(name),
        },
        depth + 1,
      ),
    );
    // A button adds the part.
    const initial = isShown ? undefined : (createPart(this.#source, schema) ?? {});
    return { ...common, kind: 'group', fields, initial };
  }

  #buildList(part: Part, schema: JsonSchema, depth: number): Field | undefined {
    const items = resolve(this.#source, readMember(schema, 'items'));
    const list: readonly unknown[] = Array.isArray(part.value) ? part.value : [];
    const isTuple = readList(schema, 'prefixItems').length > 0;
    if (!items || isTuple || list.length > BOUNDS.items) return undefined;
    const fields = list.map((value, index) =>
      this.build(
        {
          schema: items,
          value,
          path: [...part.path, index],
          name: `${index + 1}`,
          isRequired: true,
        },
        depth + 1,
      ),
    );
    const maxItems = Math.min(readNumber(schema, 'maxItems') ?? BOUNDS.items, BOUNDS.items);
    return {
      ...describe(part, schema),
      ...{ kind: 'list', fields, initial: createItem(this.#source, items) },
      canAdd: list.length < maxItems,
      canRemove: list.length > (readNumber(schema, 'minItems') ?? 0),
    };
  }

  #buildUnion(part: Part, schema: JsonSchema, depth: number): Field | undefined {
    const found = listOptions(schema);
    const parts = found.map((each) => resolve(this.#source, each));
    const known = parts.filter((each) => each !== undefined);
    if (known.length !== found.length || known.length > BOUNDS.choices) return undefined;
    const common = describe(part, schema);
    const picked = this.#choices.get(common.key);
    const option = picked === undefined ? undefined : known[picked];
    const isStillPicked = option && (!isSet(part.value) || fits(this.#source, option, part.value));
    const first = known.findIndex((each) => fits(this.#source, each, part.value));
    const matching = isSet(part.value) && first !== -1 ? first : undefined;
    const chosen = isStillPicked ? picked : matching;
    if (isSet(part.value) && chosen === undefined) return undefined;
    const inner = chosen === undefined ? undefined : known[chosen];
    const options = `${part.options ?? ''}/${chosen}`;
    // The union has the name and the help; its option adds what is its own.
    const own = inner && {
      ...part,
      schema: { ...inner, title: describeOption(this.#source, inner) },
    };
    return {
      ...common,
      kind: 'union',
      options: known.map((each) => ({
        label: describeOption(this.#source, each),
        initial: createItem(this.#source, each),
      })),
      chosen,
      field: own && this.build({ ...own, options }, depth + 1),
    };
  }
}

/** A new element must be something: a field without a value would not show. */
function createItem(source: SchemaSource, schema: JsonSchema): unknown {
  const made = createPart(source, schema);
  if (made !== undefined) return made;
  const [type] = readTypes(schema);
  return type === 'string' && !Array.isArray(schema['enum']) ? '' : null;
}

function isSet(value: unknown): boolean {
  return value !== undefined;
}

function describe(part: Part, schema: JsonSchema): Common {
  const { isRequired, name, options = '', path, value } = part;
  return {
    key: JSON.stringify(path) + options,
    ...{ path, isRequired, value },
    label: readText(schema, 'title') ?? name.slice(0, 200),
    help: readText(schema, 'description'),
    examples: readList(schema, 'examples').slice(0, 3),
    fallback: readMember(schema, 'default'),
  };
}

const TEXT_INPUTS: Readonly<Record<string, TextInput>> = {
  date: 'date',
  time: 'time',
  password: 'password',
};
const FILE_FORMATS = ['byte', 'binary', 'base64', 'base64url'];
/** A longer text may have several lines. */
const LINE_CHARACTERS = 100;

function describeText(schema: JsonSchema) {
  const format = readText(schema, 'format') ?? '';
  const encoding = readText(schema, 'contentEncoding');
  if (encoding !== undefined || FILE_FORMATS.includes(format)) {
    const isUrlSafe = [encoding, format].includes('base64url');
    const accept = readText(schema, 'contentMediaType');
    return { kind: 'file', encoding: isUrlSafe ? 'base64url' : 'base64', accept } as const;
  }
  const maxLength = readNumber(schema, 'maxLength');
  const isPlain = format === '' && readText(schema, 'pattern') === undefined;
  const mayBeLong = isPlain && (maxLength ?? Number.POSITIVE_INFINITY) > LINE_CHARACTERS;
  const known = Object.hasOwn(TEXT_INPUTS, format) ? TEXT_INPUTS[format] : undefined;
  return { kind: 'text', input: known ?? (mayBeLong ? 'area' : 'text'), maxLength } as const;
}

function describeRange(schema: JsonSchema, isWhole: boolean) {
  const step = readNumber(schema, 'multipleOf') ?? (isWhole ? 1 : undefined);
  return {
    min: readNumber(schema, 'minimum') ?? readNumber(schema, 'exclusiveMinimum'),
    max: readNumber(schema, 'maximum') ?? readNumber(schema, 'exclusiveMaximum'),
    step: step !== undefined && step > 0 ? step : undefined,
  };
}

/** Its title, the constants that tell it from the others, or its type. */
function describeOption(source: SchemaSource, schema: JsonSchema): string {
  const title = readText(schema, 'title');
  if (title !== undefined) return title;
  const properties = readMember(schema, 'properties');
  for (const [name, member] of Object.entries(isObject(properties) ? properties : {})) {
    const constant = readMember(resolve(source, member), 'const');
    if (typeof constant === 'string') return `${name}: ${constant}`.slice(0, 200);
  }
  if (Object.hasOwn(schema, 'const')) return String(JSON.stringify(schema['const'])).slice(0, 200);
  const [type] = readTypes(schema);
  return type ?? 'any';
}
