// Makes zod schemas from the tables of fields: of the bodies that create and change a resource, and of its record. Also the
// schemas of names and other free text.
import { z } from 'zod';
import { endpointRetry } from '../job/retry-schemas.ts';
import type { Field, Fields } from './field.ts';

type Plain<F extends Field> = F extends { kind: 'integer' }
  ? z.ZodInt
  : F extends { kind: 'number' }
    ? z.ZodNumber
    : F extends { kind: 'choice' }
      ? z.ZodEnum<{ [Word in F['choices'][number]]: Word }>
      : F extends { kind: 'list' }
        ? z.ZodArray<z.ZodString>
        : F extends { kind: 'switch' }
          ? z.ZodBoolean
          : F extends { kind: 'time' }
            ? z.ZodISODateTime
            : F extends { kind: 'retry' }
              ? typeof endpointRetry
              : F extends { kind: 'rate' }
                ? z.ZodObject<{ max: z.ZodInt; perMs: z.ZodInt }, z.core.$strict>
                : F extends { kind: 'windows' }
                  ? z.ZodArray<typeof windowSchema>
                  : F extends { kind: 'weights' }
                    ? z.ZodRecord<z.ZodString, z.ZodInt>
                    : z.ZodString;

const windowSchema = z.strictObject({
  cron: z.string(),
  timeZone: z.string(),
  workersMin: z.int(),
  forMs: z.int(),
});

type FieldSchema<F extends Field> = F extends { null: string } ? z.ZodNullable<Plain<F>> : Plain<F>;

type CreationSchema<F extends Field> = F extends { default: unknown }
  ? z.ZodDefault<FieldSchema<F>>
  : F extends { optional: string }
    ? z.ZodExactOptional<FieldSchema<F>>
    : FieldSchema<F>;

type StoredSchema<F extends Field> = F extends { default: unknown }
  ? z.ZodDefault<FieldSchema<F>>
  : F extends { null: string }
    ? z.ZodDefault<FieldSchema<F>>
    : FieldSchema<F>;

/** Variables have a schema of their own. */
type Made<All extends Fields> = {
  [Name in keyof All as All[Name] extends { kind: 'variables' } ? never : Name]: All[Name];
};
type Changeable<All extends Fields> = {
  [Name in keyof Made<All> as Made<All>[Name] extends { isFixed: true }
    ? never
    : Name]: Made<All>[Name];
};
type Shown<All extends Fields> = {
  [Name in keyof Made<All> as Made<All>[Name] extends { isSecret: true }
    ? never
    : Name]: Made<All>[Name];
};

type CreationShape<All extends Fields> = {
  [Name in keyof Made<All>]: CreationSchema<Made<All>[Name]>;
};
type UpdateShape<All extends Fields> = {
  [Name in keyof Changeable<All>]: z.ZodExactOptional<FieldSchema<Changeable<All>[Name]>>;
};
type RecordShape<All extends Fields> = {
  [Name in keyof Shown<All>]: FieldSchema<Shown<All>[Name]>;
};
type StoredShape<All extends Fields> = {
  [Name in keyof Shown<All>]: StoredSchema<Shown<All>[Name]>;
};

/** Members of a creation: with their bounds and defaults. */
export function creationShape<All extends Fields>(fields: All): CreationShape<All> {
  const shape = mapFields(fields, (field) => {
    const { null: none, optional } = field;
    const schema = describe(field, optional === none ? undefined : optional);
    if (field.default !== undefined) return schema.default(field.default);
    return optional === undefined ? schema : schema.exactOptional();
  });
  // The types above follow the same cases.
  return shape as CreationShape<All>;
}

/** Members of a change, all of which may be omitted: those that can change. */
export function updateShape<All extends Fields>(fields: All): UpdateShape<All> {
  const shape = mapFields(fields, (field) =>
    field.isFixed ? undefined : describe(field).exactOptional(),
  );
  return shape as UpdateShape<All>;
}

/** Members of a record: of the same types, without the bounds of requests. */
export function recordShape<All extends Fields>(fields: All): RecordShape<All> {
  const shape = mapFields(fields, (field) => {
    if (field.isSecret) return undefined;
    const schema = withoutBounds(field);
    return field.null === undefined ? schema : schema.nullable();
  });
  return shape as RecordShape<All>;
}

/** Members of a record as it is stored. If an old row lacks one, it reads as the field's default, else as null. */
export function storedShape<All extends Fields>(fields: All): StoredShape<All> {
  const shape = mapFields(fields, (field) => {
    if (field.isSecret) return undefined;
    const schema = withoutBounds(field);
    if (field.null !== undefined) return schema.nullable().default(field.default ?? null);
    return field.default === undefined ? schema : schema.default(field.default);
  });
  return shape as StoredShape<All>;
}

function mapFields(
  fields: Fields,
  make: (field: Field) => z.ZodType | undefined,
): Record<string, z.ZodType> {
  const made = Object.entries(fields).flatMap(([name, field]) => {
    const schema = field.kind === 'variables' ? undefined : make(field);
    return schema ? [[name, schema] as const] : [];
  });
  return Object.fromEntries(made);
}

/** Checks the value of one field. `otherwise`: what applies without it. */
function describe(field: Field, otherwise?: string): z.ZodType {
  const { null: none, text } = field;
  const schema = none === undefined ? withBounds(field) : withBounds(field).nullable();
  const ofNull = none === undefined ? '' : `; null: ${none}`;
  return schema.describe(
    text + ofNull + (otherwise === undefined ? '' : `; Default: ${otherwise}`),
  );
}

function withBounds(field: Field): z.ZodType {
  switch (field.kind) {
    case 'integer':
      return z.int().min(field.min).max(field.max);
    case 'number':
      return z.number().min(field.min).max(field.max);
    case 'name':
      return withRules(resourceName, field.rules);
    case 'text': {
      const bounded = z.string().max(field.max);
      // A pattern says itself whether the text may be empty.
      const isFree = field.min === 0 || field.pattern !== undefined;
      const text = isFree ? bounded : bounded.min(1);
      return withRules(field.pattern ? text.regex(...field.pattern) : text, field.rules);
    }
    case 'list': {
      const element = z.string().min(1).max(field.maxText);
      const list = z.array(withRules(element, field.elementRules)).max(field.max);
      return withRules(field.min === undefined ? list : list.min(field.min), field.rules);
    }
    case 'time':
      return z.iso.datetime({ offset: true });
    case 'rate': {
      const { max, perMs } = field;
      return z.strictObject({
        max: z.int().min(1).max(max).describe('Jobs'),
        perMs: z.int().min(perMs.min).max(perMs.max).describe('In any time of this length, ms'),
      });
    }
    case 'windows': {
      const { forMs, maxText, workersMin } = field;
      const text = z.string().min(1).max(maxText);
      const window = z.strictObject({
        cron: text.describe('When it begins: a cron expression, as schedules have it'),
        timeZone: text.default('UTC').describe('IANA time zone, such as Europe/Berlin'),
        workersMin: z.int().min(workersMin.min).max(workersMin.max).describe('At most workersMax'),
        forMs: z.int().min(forMs.min).max(forMs.max).describe('How long it lasts, ms'),
      });
      return z.array(window).max(field.max);
    }
    case 'weights': {
      const { max, maxText, maxWeight } = field;
      const name = wellFormedText.min(1).max(maxText).regex(NO_CONTROL_CHARACTERS);
      return z
        .record(name, z.int().min(1).max(maxWeight))
        .refine((weights) => Object.keys(weights).length <= max, `has more than ${max} groups`);
    }
    case 'choice':
    case 'retry':
    case 'switch':
    case 'variables':
      return withoutBounds(field);
  }
}

function withRules<S extends z.ZodType>(
  schema: S,
  rules: readonly { message: string; holds: (value: z.output<S>) => boolean }[] = [],
): S {
  return rules.reduce((checked, { holds, message }) => checked.refine(holds, message), schema);
}

function withoutBounds(field: Field): z.ZodType {
  switch (field.kind) {
    case 'integer':
      return z.int();
    case 'number':
      return z.number();
    case 'choice':
      return z.enum(field.choices);
    case 'list':
      return z.array(z.string());
    case 'switch':
      return z.boolean();
    case 'time':
      return z.iso.datetime();
    case 'windows':
      return z.array(windowSchema);
    case 'retry':
      return endpointRetry;
    case 'rate':
      return z.strictObject({ max: z.int(), perMs: z.int() });
    case 'weights':
      return z.record(z.string(), z.int());
    default:
      return z.string();
  }
}

/** Text is stored and shown unchanged. An unpaired surrogate has no UTF-8: two different texts would be stored as the same bytes. */
export const wellFormedText = z
  .string()
  .refine((text) => text.isWellFormed(), 'must not contain an unpaired surrogate');

/**
 * One pattern without `\P{Cc}` and without flags: generators of clients know neither flags nor two patterns for one
 * text. The characters are those of the Unicode category Cc.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what the pattern refuses
const NAME = /^[^\s\x00-\x1f\x7f-\x9f](?:[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f])?$/;
// biome-ignore lint/suspicious/noControlCharactersInRegex: as above
export const NO_CONTROL_CHARACTERS = /^[^\x00-\x1f\x7f-\x9f]*$/;

/** Name of a resource: free text of 1 to 200 characters, not unique. */
export const resourceName = wellFormedText
  .min(1)
  .max(200)
  .regex(NAME, 'must not contain control characters, nor begin or end with white space');
