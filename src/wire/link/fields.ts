// Describes a message of the worker link by its fields. The description is the only place that states a message: its type
// follows from it by inference, and its check is `read`. Both ends load this file, so it uses no zod (decision 5).
import { MAX_LISTED } from '../message-bounds.ts';
import { formatPath } from '../problem.ts';

export interface Field<T> {
  /** Returns the value without members that the message does not have. @throws FieldFault */
  read(value: unknown): T;
  readonly shape: Shape;
  /** For the OpenAPI document, if clients see the field. */
  readonly about?: string;
}

/** Absent is allowed; a field that is present must be valid. */
export interface OptionalField<T> extends Field<T> {
  readonly isOptional: true;
}

export type Fields = Readonly<Record<string, Field<unknown>>>;

/** What a field holds, for the OpenAPI document, and for the test that compares worker.proto with these descriptions. */
export type Shape =
  | { kind: 'text' | 'flag' }
  | { kind: 'number'; shown?: ShownNumber }
  | { kind: 'whole'; max: number }
  | { kind: 'word'; words: readonly string[] }
  | { kind: 'list'; element: Field<unknown> }
  | { kind: 'record'; fields: Fields }
  | { kind: 'union'; cases: readonly Field<unknown>[] };

/** What clients read of a number, which is from 0. */
interface ShownNumber {
  isWhole?: true;
  max?: number;
}

/** The type of a message or of one of its fields. */
export type TypeOf<F> = F extends Field<infer T> ? T : never;

type RecordOf<F extends Fields> = Flat<
  {
    -readonly [N in keyof F as F[N] extends OptionalField<unknown> ? never : N]: TypeOf<F[N]>;
  } & {
    -readonly [N in keyof F as F[N] extends OptionalField<unknown> ? N : never]?: TypeOf<F[N]>;
  }
>;
type UnionOf<By extends string, Cases extends Readonly<Record<string, Fields>>> = {
  [Kind in keyof Cases]: Flat<{ [Name in By]: Kind } & RecordOf<Cases[Kind]>>;
}[keyof Cases];
type Flat<T> = { [Name in keyof T]: T[Name] };

/** A value that does not fit its field. */
export class FieldFault extends Error {
  override readonly name = 'FieldFault';
  /** Of the value within the message. */
  readonly path: PropertyKey[] = [];

  /** `root`: name of the whole message. */
  describe(root: string): string {
    return `${formatPath(this.path, root)}: ${this.message}`;
  }
}

interface Range {
  min?: number;
  max?: number;
}

/** `min` and `max` are in characters. */
export function text({ max = Number.POSITIVE_INFINITY, min = 0 }: Range = {}): Field<string> {
  const range = max === Number.POSITIVE_INFINITY ? '' : ` of ${min} to ${max} characters`;
  const fault = `must be a string${range}`;
  return {
    shape: { kind: 'text' },
    read(value) {
      if (typeof value !== 'string') throw new FieldFault(fault);
      if (value.length < min || value.length > max) throw new FieldFault(fault);
      return value;
    },
  };
}

/** A text with a rule of its own. `findFault` returns what is wrong, if anything is. */
export function textWith(findFault: (text: string) => string | undefined): Field<string> {
  const any = text();
  return {
    shape: any.shape,
    read(value) {
      const given = any.read(value);
      const fault = findFault(given);
      if (fault !== undefined) throw new FieldFault(fault);
      return given;
    },
  };
}

/** Most numbers fit uint32, so that they are small on gRPC. */
const MAX_UINT32 = 4_294_967_295;

export function whole({ max = MAX_UINT32, min = 0 }: Range = {}): Field<number> {
  const fault = `must be a whole number from ${min} to ${max}`;
  return {
    shape: { kind: 'whole', max },
    read(value) {
      if (typeof value !== 'number' || !Number.isSafeInteger(value)) throw new FieldFault(fault);
      if (value < min || value > max) throw new FieldFault(fault);
      return value;
    },
  };
}

/** A finite number from 0. */
export const number: Field<number> = {
  shape: { kind: 'number' },
  read(value) {
    if (typeof value === 'number' && value >= 0 && value < Number.POSITIVE_INFINITY) return value;
    throw new FieldFault('must be a number from 0');
  },
};

/** A number that a worker may send with any value: the queue rounds and limits it to what clients read. */
export function shownAs(shown: ShownNumber): Field<number> {
  return { ...number, shape: { kind: 'number', shown } };
}

export const flag: Field<boolean> = {
  shape: { kind: 'flag' },
  read(value) {
    if (typeof value === 'boolean') return value;
    throw new FieldFault('must be true or false');
  },
};

export function word<const Word extends string>(words: readonly Word[]): Field<Word> {
  const fault = `must be one of ${words.join(', ')}`;
  return {
    shape: { kind: 'word', words },
    read(value) {
      const found = words.find((each) => each === value);
      if (found === undefined) throw new FieldFault(fault);
      return found;
    },
  };
}

/** `min` and `max` are in elements. The fault names the first invalid element only. */
export function list<T>(element: Field<T>, { max = MAX_LISTED, min = 0 }: Range = {}): Field<T[]> {
  const fault = `must be an array of ${min} to ${max} elements`;
  return {
    shape: { kind: 'list', element },
    read(value) {
      if (!Array.isArray(value)) throw new FieldFault(fault);
      if (value.length < min || value.length > max) throw new FieldFault(fault);
      const elements: T[] = [];
      try {
        for (const each of value) elements.push(element.read(each));
      } catch (error) {
        throw within(elements.length, error);
      }
      return elements;
    },
  };
}

export function optional<T>(field: Field<T>, about = field.about): OptionalField<T> {
  return { ...field, ...(about !== undefined && { about }), isOptional: true };
}

export function record<F extends Fields>(fields: F): Field<RecordOf<F>> {
  const members = Object.entries(fields).map(([name, field]) => ({
    name,
    field,
    isOptional: 'isOptional' in field,
  }));
  return {
    shape: { kind: 'record', fields },
    read(value) {
      if (!isObject(value)) throw new FieldFault('must be an object');
      const message: Record<string, unknown> = {};
      let at = '';
      try {
        for (const { field, isOptional, name } of members) {
          at = name;
          const given = value[name];
          if (given !== undefined) message[name] = field.read(given);
          else if (!isOptional) throw new FieldFault('is missing');
        }
      } catch (error) {
        throw within(at, error);
      }
      // The loop has read each member with its field.
      return message as RecordOf<F>;
    },
  };
}

/** One of several records; its member `by` says which. */
export function union<By extends string, Cases extends Readonly<Record<string, Fields>>>(
  by: By,
  cases: Cases,
): Field<UnionOf<By, Cases>> {
  const records = new Map<unknown, Field<unknown>>(
    Object.entries(cases).map(([kind, fields]) => [
      kind,
      record({ [by]: word([kind]), ...fields }),
    ]),
  );
  const fault = `must be one of ${Object.keys(cases).join(', ')}`;
  return {
    shape: { kind: 'union', cases: [...records.values()] },
    read(value) {
      if (!isObject(value)) throw new FieldFault('must be an object');
      const found = records.get(value[by]);
      if (!found) throw within(by, new FieldFault(fault));
      // The record has read the member `by` and those of this case.
      return found.read(value) as UnionOf<By, Cases>;
    },
  };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function within(step: PropertyKey, error: unknown): unknown {
  if (error instanceof FieldFault) error.path.unshift(step);
  return error;
}
