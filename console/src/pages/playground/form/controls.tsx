// The controls of fields that hold one value.
import { useState } from 'preact/hooks';
import { sayBytes } from '../../../parts/bytes.ts';
import { encodeFile } from '../files.ts';
import type { Field } from './tree.ts';

interface ControlProps<Kind extends Field['kind'] = Field['kind']> {
  field: Extract<Field, { kind: Kind }>;
  id: string;
  describedBy: string | undefined;
  /** Undefined: nothing is entered. */
  onChange: (value: unknown) => void;
}

export function Control({ field, ...rest }: ControlProps) {
  switch (field.kind) {
    case 'text':
      return <Text field={field} {...rest} />;
    case 'number':
      return <NumberInput field={field} {...rest} />;
    case 'switch':
      return (
        <input
          id={rest.id}
          type="checkbox"
          aria-describedby={rest.describedBy}
          checked={field.value === true}
          onChange={({ currentTarget }) => rest.onChange(currentTarget.checked)}
        />
      );
    case 'enum':
      return <Enum field={field} {...rest} />;
    case 'file':
      return <FileInput field={field} {...rest} />;
    case 'fixed':
      return <Fixed field={field} {...rest} />;
    default:
      return <JsonInput field={field} {...rest} />;
  }
}

const MAX_ROWS = 12;
const ROW_CHARACTERS = 60;

function Text({ describedBy, field, id, onChange }: ControlProps<'text'>) {
  const text = typeof field.value === 'string' ? field.value : '';
  const common = {
    ...{ id, value: text, maxLength: field.maxLength },
    'aria-describedby': describedBy,
    'aria-required': field.isRequired,
  };
  const enter = (entered: string) => {
    // An empty text of a required part is a value; that of an optional one is none.
    onChange(entered === '' && !field.isRequired ? undefined : entered);
  };
  const onInput = ({ currentTarget }: { currentTarget: HTMLInputElement }) =>
    enter(currentTarget.value);
  if (field.input === 'password') return <input {...common} type="password" onInput={onInput} />;
  if (field.input === 'date' || field.input === 'time') {
    return <input {...common} type={field.input} onInput={onInput} />;
  }
  if (field.input !== 'area') {
    return <input {...common} type="text" onInput={onInput} />;
  }
  const lines = text.slice(0, MAX_ROWS * ROW_CHARACTERS).split('\n');
  const rows = lines.reduce((sum, line) => sum + 1 + Math.floor(line.length / ROW_CHARACTERS), 0);
  return (
    <textarea
      {...common}
      class="text"
      rows={Math.min(MAX_ROWS, rows)}
      onInput={({ currentTarget }) => enter(currentTarget.value)}
    />
  );
}

function NumberInput({ describedBy, field, id, onChange }: ControlProps<'number'>) {
  const [text, setText] = useState('');
  const value = typeof field.value === 'number' ? field.value : undefined;
  // `1.` and `1.0` stay as they are typed.
  const isTyped = text !== '' && Number(text) === value;
  return (
    <input
      id={id}
      type="number"
      min={field.min}
      max={field.max}
      step={field.step ?? 'any'}
      value={isTyped ? text : (value ?? '')}
      aria-describedby={describedBy}
      aria-required={field.isRequired}
      onInput={({ currentTarget }) => {
        const entered = Number.parseFloat(currentTarget.value);
        setText(currentTarget.value);
        // While a number is incomplete, as `-` is, the browser gives no text.
        if (!Number.isNaN(entered)) onChange(entered);
        else if (!currentTarget.validity.badInput) onChange(undefined);
      }}
    />
  );
}

const NONE = '';

function Enum({ describedBy, field, id, onChange }: ControlProps<'enum'>) {
  const texts = field.values.map((each) => JSON.stringify(each));
  const index = texts.indexOf(JSON.stringify(field.value));
  return (
    <select
      id={id}
      aria-describedby={describedBy}
      aria-required={field.isRequired}
      value={index === -1 ? NONE : `${index}`}
      onChange={({ currentTarget }) =>
        onChange(
          currentTarget.value === NONE ? undefined : field.values[Number(currentTarget.value)],
        )
      }
    >
      {(!field.isRequired || index === -1) && <option value={NONE}>Choose…</option>}
      {field.values.map((each, at) => (
        <option key={at} value={`${at}`}>
          {(typeof each === 'string' ? each : (texts[at] ?? '')).slice(0, 200)}
        </option>
      ))}
    </select>
  );
}

function FileInput({ describedBy, field, id, onChange }: ControlProps<'file'>) {
  const [note, setNote] = useState('');
  const text = typeof field.value === 'string' ? field.value : '';
  const read = async (file: File | undefined) => {
    if (!file) return;
    const encoded = await encodeFile(file);
    if ('problem' in encoded) return setNote(encoded.problem);
    setNote(`${file.name}, ${sayBytes(file.size)}`);
    onChange(field.encoding === 'base64url' ? toUrlSafe(encoded.base64) : encoded.base64);
  };
  const held = text === '' ? 'No file' : `${text.length.toLocaleString()} characters of base64`;
  return (
    <span class="file-field">
      <input
        id={id}
        type="file"
        accept={field.accept}
        aria-describedby={describedBy}
        onChange={({ currentTarget }) => {
          void read(currentTarget.files?.[0]);
          currentTarget.value = '';
        }}
      />
      <span class="muted" role="status">
        {note || held}
      </span>
      {text !== '' && (
        <button
          type="button"
          class="quiet"
          onClick={() => {
            setNote('');
            onChange(undefined);
          }}
        >
          Remove the file
        </button>
      )}
    </span>
  );
}

function toUrlSafe(base64: string): string {
  return base64.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}

/** Only one value is possible: it is there, or not. */
function Fixed({ describedBy, field, id, onChange }: ControlProps<'fixed'>) {
  return (
    <span>
      <input
        id={id}
        type="checkbox"
        aria-describedby={describedBy}
        checked={field.value !== undefined}
        onChange={({ currentTarget }) =>
          onChange(currentTarget.checked ? field.fallback : undefined)
        }
      />{' '}
      <code>{(JSON.stringify(field.fallback) ?? '').slice(0, 200)}</code>
    </span>
  );
}

function JsonInput({ describedBy, field, id, onChange }: ControlProps) {
  const [typed, setTyped] = useState<string>();
  const own = field.value === undefined ? '' : (JSON.stringify(field.value, null, 2) ?? '');
  const text = typed ?? own;
  const problem = text.trim() === '' ? undefined : findProblem(text);
  return (
    <>
      <textarea
        id={id}
        rows={Math.min(MAX_ROWS, text.split('\n', MAX_ROWS).length + 1)}
        spellcheck={false}
        placeholder="JSON"
        value={text}
        aria-describedby={describedBy}
        aria-invalid={problem !== undefined}
        onInput={({ currentTarget: { value } }) => {
          setTyped(value);
          if (value.trim() === '') onChange(undefined);
          else if (findProblem(value) === undefined) onChange(JSON.parse(value));
        }}
        onBlur={() => problem === undefined && setTyped(undefined)}
      />
      {problem && <small class="field-problem">{problem}</small>}
    </>
  );
}

function findProblem(text: string): string | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
