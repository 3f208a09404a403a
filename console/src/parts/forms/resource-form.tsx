// A form of a resource's fields, for a new record or for one that exists. src/wire/resources/fields.ts has the fields.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import {
  type Field,
  type Fields,
  type FieldValue,
  parseRate,
  type RateLimit,
  spellRate,
} from '../../../../src/wire/resources/field.ts';
import { asError } from '../../platform/polling.ts';
import { Problem } from '../problem.tsx';
import { ChoiceSelect, ListSelects, useChoices } from './choices.tsx';
import { Field as LabelledField } from './field.tsx';
import { FormActions } from './form-actions.tsx';

/** What the form of a new record sends: the fields that have a label. */
type FormValues<All extends Fields> = {
  [Name in keyof All as All[Name] extends { label: string }
    ? All[Name] extends { optional: string }
      ? never
      : Name
    : never]: FieldValue<All[Name]>;
};

/** Where the form sends its values. */
interface Target<All extends Fields> {
  create(values: FormValues<All>): Promise<unknown>;
  update(id: string, values: FormValues<All>): Promise<unknown>;
}

interface ResourceFormProps<All extends Fields> {
  /** `network volume`. */
  noun: string;
  fields: All;
  /** The record that the form changes, or `new`. */
  opened: { id: string; name: string } | 'new';
  target: Target<All>;
  onDone: () => void;
  onBack: () => void;
  /** Shown above the fields. */
  children?: ComponentChildren;
}

export function ResourceForm<All extends Fields>(props: ResourceFormProps<All>) {
  const { children, fields, noun, onBack, onDone, opened, target } = props;
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  // The form appears in place of the button that had the focus.
  useEffect(() => form.current?.querySelector<HTMLElement>('input, select')?.focus(), []);
  const send = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!form.current) return;
    // The browser has checked that the required fields are filled in.
    const values = readForm(fields, new FormData(form.current)) as FormValues<All>;
    setError(undefined);
    setBusy(true);
    try {
      await (opened === 'new' ? target.create(values) : target.update(opened.id, values));
      onDone();
    } catch (reason) {
      setError(asError(reason));
      setBusy(false);
    }
  };
  const isNew = opened === 'new';
  return (
    <form ref={form} class="settings" onSubmit={send}>
      <fieldset>
        <legend>{isNew ? `New ${noun}` : `Change the ${noun} ${opened.name}`}</legend>
        {children}
        <FieldInputs fields={fields} record={isNew ? undefined : opened} />
      </fieldset>
      {error && <Problem error={error} />}
      <FormActions submit={isNew ? 'Create' : 'Save'} isDisabled={isBusy} onBack={onBack} />
    </form>
  );
}

interface FieldInputsProps {
  fields: Fields;
  record?: object | undefined;
}

/** Inputs of all fields that have a label; of a record that exists, only of those that can change. */
export function FieldInputs({ fields, record }: FieldInputsProps) {
  return Object.entries(fields)
    .filter(([, field]) => field.label !== undefined && !(record && field.isFixed))
    .map(([name, field]) => (
      <FieldInput
        key={name}
        {...{ name, field, isNew: !record }}
        value={spellValue(field, record ? Reflect.get(record, name) : field.default)}
      />
    ));
}

const SWITCH = [
  { id: 'true', name: 'Yes' },
  { id: 'false', name: 'No' },
];

interface FieldInputProps {
  name: string;
  field: Field;
  value: string;
  isNew: boolean;
}

function FieldInput({ field, isNew, name, value }: FieldInputProps) {
  const choices = useChoices(field.refersTo);
  const { isSecret, label = name } = field;
  const isKept = isSecret && !isNew;
  const none = field.null ?? (isNew ? field.optional : undefined);
  const mayBeEmpty = field.kind === 'list' || field.kind === 'windows';
  const required = none === undefined && !isKept && !mayBeEmpty;
  const help = isKept ? 'Empty: the secret stays' : describeField(field, none);
  return (
    <LabelledField label={label} help={help}>
      {(ids) => {
        const given = { ...ids, name };
        if (choices && field.kind === 'list') {
          const { max: most, refersTo: list } = field;
          return <ListSelects {...{ ...given, choices, list, most, value }} />;
        }
        if (choices) {
          return <ChoiceSelect {...{ ...given, choices, value }} none={none && capitalise(none)} />;
        }
        if (field.kind === 'choice') {
          const words = field.choices.map((id) => ({ id, name: spellChoice(id) }));
          return (
            <ChoiceSelect
              {...{ ...given, choices: words, value }}
              none={none && capitalise(none)}
            />
          );
        }
        // A checkbox that is off has no value, as if the form did not have it.
        if (field.kind === 'switch') {
          return <ChoiceSelect {...{ ...given, choices: SWITCH, value }} />;
        }
        const filled = { ...given, required, defaultValue: value };
        if (field.kind === 'integer' || field.kind === 'number') {
          return <input type="number" {...filled} {...boundsOf(field)} />;
        }
        // Browsers must neither fill in nor keep what belongs to another site.
        return isSecret ? (
          <input type="password" {...filled} autocomplete="new-password" />
        ) : (
          <input type="text" {...filled} maxLength={maxLengthOf(field)} autocomplete="off" />
        );
      }}
    </LabelledField>
  );
}

/** The fields that the form has, as the API takes them; an empty field means null, and an empty secret nothing. */
export function readForm(fields: Fields, form: FormData): Record<string, unknown> {
  const given = Object.entries(fields).flatMap(([name, field]): [string, unknown][] => {
    if (!form.has(name)) return [];
    const texts = form
      .getAll(name)
      .map((text) => (field.isSecret ? String(text) : String(text).trim()));
    const [text = ''] = texts;
    if (field.kind === 'list') return [[name, texts.flatMap(splitList)]];
    if (field.kind === 'windows' && text === '') return [[name, []]];
    if (text === '') return field.isSecret || field.optional ? [] : [[name, null]];
    return [[name, readValue(field, text)]];
  });
  return Object.fromEntries(given);
}

function readValue(field: Field, text: string): unknown {
  if (field.kind === 'switch') return text === 'true';
  if (isJson(field) || field.kind === 'windows') return parseJson(text);
  if (field.kind === 'rate') return parseRate(text) ?? text;
  return isNumber(field) ? round(Number(text) * (field.formUnit ?? 1)) : text;
}

function isJson({ kind }: Field): boolean {
  return kind === 'retry' || kind === 'weights';
}

/** The platform refuses a text that is no JSON. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function isRate(value: unknown): value is RateLimit {
  return typeof value === 'object' && value !== null && 'perMs' in value;
}

type NumberField = Extract<Field, { kind: 'integer' | 'number' }>;

function isNumber(field: Field): field is NumberField {
  return field.kind === 'integer' || field.kind === 'number';
}

function spellValue(field: Field, value: unknown): string {
  if (value === undefined || value === null) return '';
  if (field.kind === 'windows') {
    return Array.isArray(value) && value.length > 0 ? JSON.stringify(value) : '';
  }
  if (Array.isArray(value)) return value.join(', ');
  if (isJson(field)) return JSON.stringify(value);
  if (isRate(value)) return spellRate(value);
  return String(isNumber(field) ? round(Number(value) / (field.formUnit ?? 1)) : value);
}

function boundsOf({ formUnit = 1, kind, max, min }: NumberField) {
  return {
    min: round(min / formUnit),
    ...(max < Number.MAX_SAFE_INTEGER && { max: round(max / formUnit) }),
    step: kind === 'integer' && formUnit === 1 ? 1 : 'any',
  };
}

function maxLengthOf(field: Field): number | undefined {
  if (field.kind === 'name') return 200;
  return field.kind === 'text' ? field.max : undefined;
}

/** Without the rounding errors of a unit such as 0.01. */
function round(value: number): number {
  return Number(value.toFixed(6));
}

function describeField(field: Field, none: string | undefined): string {
  const order =
    field.kind === 'list'
      ? '; separate several with commas'
      : field.kind === 'retry'
        ? '; as JSON, such as {"backoff":"fixed","delayMs":5000}'
        : field.kind === 'rate'
          ? ', such as 100/1m (ms, s, m, h, d)'
          : field.kind === 'windows'
            ? '; as JSON, such as [{"cron":"0 8 * * MON-FRI","timeZone":"Europe/Berlin","workersMin":2,"forMs":36000000}]'
            : field.kind === 'weights'
              ? '; as JSON, such as {"customer-7":3}'
              : '';
  // The label has the unit of the form.
  const isConverted = isNumber(field) && field.formUnit !== undefined;
  const text = isConverted ? field.text.replace(/, (in milliseconds|ms)$/, '') : field.text;
  return none === undefined ? text + order : `${text}; empty: ${none}`;
}

/** `LOAD_BALANCER` becomes `Load balancer`. */
function spellChoice(word: string): string {
  return capitalise(word.toLowerCase().replaceAll('_', ' '));
}

function capitalise(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function splitList(text: string): string[] {
  return text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
}
