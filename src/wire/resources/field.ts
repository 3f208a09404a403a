// What a field of a resource is: its kind, bounds, text and default, as plain data. Schemas (field-schemas.ts), flags of
// commands and form fields of the console are made from it. Clients load this file, so it loads no zod.

import type { RetryPolicy } from '../job/retry-policy.ts';

interface Described {
  /** What the value is: a phrase with a capital letter, for the API's description, the flag and the form. */
  readonly text: string;
  /** What null means, as in `none`; without it, null is refused. */
  readonly null?: string;
  /** Value of a creation that omits the field. */
  readonly default?: unknown;
  /** A creation may omit the field without a default; what applies then. */
  readonly optional?: string;
  /** A value for the example of a record, if the default is none. */
  readonly example?: unknown;
  /** It cannot be changed after the creation. */
  readonly isFixed?: true;
  /** No answer has it. */
  readonly isSecret?: true;
  /** Name of its flag: `template` for `--template`. Default: the field's name; null: it has none. */
  readonly flag?: string | null;
  /** Of the flag's value: `GB`. */
  readonly placeholder?: string;
  /** Help of the flag, if the text does not fit there. */
  readonly help?: string;
  /** Of its form field. */
  readonly label?: string;
  /** What it names by ID: its form field offers them. */
  readonly refersTo?:
    | 'templates'
    | 'gpus'
    | 'networkVolumes'
    | 'dataCenters'
    | 'endpoints'
    | 'sharedLimits';
}

interface Rule<T> {
  readonly message: string;
  readonly holds: (value: T) => boolean;
}

interface NumberField extends Described {
  readonly kind: 'integer' | 'number';
  readonly min: number;
  readonly max: number;
  /** Forms show the value divided by this: 1,000 for seconds of a value in ms. */
  readonly formUnit?: number;
}

interface TextField extends Described {
  readonly kind: 'text';
  /** Characters. It may be empty only with a `min` of 0. */
  readonly min?: 0;
  readonly max: number;
  readonly pattern?: readonly [RegExp, string];
  readonly rules?: readonly Rule<string>[];
}

/** Name of a resource. */
interface NameField extends Described {
  readonly kind: 'name';
  readonly rules?: readonly Rule<string>[];
}

interface ListField extends Described {
  readonly kind: 'list';
  /** Elements. */
  readonly min?: number;
  readonly max: number;
  /** Characters of an element. */
  readonly maxText: number;
  readonly elementRules?: readonly Rule<string>[];
  readonly rules?: readonly Rule<readonly string[]>[];
}

interface ChoiceField extends Described {
  readonly kind: 'choice';
  readonly choices: readonly string[];
}

interface SwitchField extends Described {
  readonly kind: 'switch';
}

/** ISO 8601, with any offset in requests. */
interface TimeField extends Described {
  readonly kind: 'time';
}

/** At most `max` in any time of `perMs`. */
export interface RateLimit {
  max: number;
  perMs: number;
}

const RATE_UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
  ['ms', 1],
] as const;

/** `100/1m`: at most 100 in any minute. */
export function spellRate({ max, perMs }: RateLimit): string {
  const [unit, ms] = RATE_UNITS.find(([, each]) => perMs % each === 0) ?? ['ms', 1];
  return `${max}/${perMs / ms}${unit}`;
}

/** Undefined for another text; a unit alone stands for one: `100/m`. */
export function parseRate(text: string): RateLimit | undefined {
  const [, max, time, unit] = /^(\d+)\/(\d*)(ms|s|m|h|d)$/.exec(text) ?? [];
  if (max === undefined) return undefined;
  const [, ms] = RATE_UNITS.find(([each]) => each === unit) ?? ['ms', 1];
  return { max: Number(max), perMs: Number(time === '' ? 1 : time) * ms };
}

interface RateField extends Described {
  readonly kind: 'rate';
  readonly max: number;
  readonly perMs: { readonly min: number; readonly max: number };
}

/** Whole numbers by the name of a group of jobs. Flags and forms take them as JSON text. */
interface WeightsField extends Described {
  readonly kind: 'weights';
  /** Groups. */
  readonly max: number;
  /** Characters of a name. */
  readonly maxText: number;
  readonly maxWeight: number;
}

/** Environment variables; their schema is podEnv. */
interface VariablesField extends Described {
  readonly kind: 'variables';
}

/** From each time of the cron expression on, the endpoint has at least so many workers. */
export interface WorkersWindow {
  cron: string;
  timeZone: string;
  workersMin: number;
  /** Length of the window, ms. */
  forMs: number;
}

/** Windows of WorkersWindow. Flags and forms take them as JSON text. */
interface WindowsField extends Described {
  readonly kind: 'windows';
  readonly max: number;
  readonly maxText: number;
  readonly workersMin: { readonly min: number; readonly max: number };
  readonly forMs: { readonly min: number; readonly max: number };
}

/** A retry policy; its schema is endpointRetry. Flags and forms take it as JSON text. */
interface RetryField extends Described {
  readonly kind: 'retry';
}

export type Field =
  | NumberField
  | TextField
  | NameField
  | ListField
  | ChoiceField
  | SwitchField
  | TimeField
  | RetryField
  | RateField
  | WindowsField
  | WeightsField
  | VariablesField;
export type Fields = Readonly<Record<string, Field>>;

type PlainValue<F extends Field> = F extends ChoiceField
  ? F['choices'][number]
  : F extends NumberField
    ? number
    : F extends ListField
      ? string[]
      : F extends SwitchField
        ? boolean
        : F extends VariablesField
          ? Record<string, string>
          : F extends RetryField
            ? Omit<RetryPolicy, 'maxAttempts'>
            : F extends RateField
              ? RateLimit
              : F extends { kind: 'windows' }
                ? WorkersWindow[]
                : F extends WeightsField
                  ? Record<string, number>
                  : string;
export type FieldValue<F extends Field> =
  | PlainValue<F>
  | (F extends { readonly null: string } ? null : never);

export type FieldValues<All extends Fields> = { [Name in keyof All]: FieldValue<All[Name]> };

type WithDefault<All extends Fields> = {
  [Name in keyof All as All[Name] extends { readonly default: unknown } ? Name : never]: FieldValue<
    All[Name]
  >;
};

/** The defaults of the fields that have one. */
export function defaultsOf<All extends Fields>(fields: All): WithDefault<All> {
  const given = Object.entries(fields).filter(([, field]) => field.default !== undefined);
  // Each default is a value of its field.
  return Object.fromEntries(
    given.map(([name, field]) => [name, field.default]),
  ) as WithDefault<All>;
}

/** A value for each field, for the example of a record: its `example`, or its default. */
export function exampleOf<All extends Fields>(fields: All): FieldValues<All> {
  const given = Object.entries(fields).filter(([, { isSecret }]) => !isSecret);
  const values = given.map(([name, field]) => [name, field.example ?? field.default]);
  // Tests check the examples by the schemas.
  return Object.fromEntries(values) as FieldValues<All>;
}

/** Splits the members of a value into those that are fields of the table, and the rest. */
export function pickFields<T extends object, All extends Fields>(
  value: T,
  fields: All,
): [Pick<T, keyof T & keyof All>, Omit<T, keyof All>] {
  const entries = Object.entries(value);
  const picked = entries.filter(([name]) => Object.hasOwn(fields, name));
  const rest = entries.filter(([name]) => !Object.hasOwn(fields, name));
  // The same members, in two objects.
  return [
    Object.fromEntries(picked) as Pick<T, keyof T & keyof All>,
    Object.fromEntries(rest) as Omit<T, keyof All>,
  ];
}
