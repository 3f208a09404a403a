// Creates or changes a record by its JSON: all settings that the API has, without a form of their own for each.
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { caller } from '../../platform/calls.ts';
import { asError } from '../../platform/polling.ts';
import { readInput } from '../job/json-input.ts';
import { Problem } from '../problem.tsx';
import { FormActions } from './form-actions.tsx';

interface RecordFormProps {
  /** What the form does: `Create a template`. */
  label: string;
  method: 'POST' | 'PATCH';
  path: string;
  /** The path as the OpenAPI document has it. Default: `path`. */
  documentedPath?: string;
  /** What the text starts with. */
  initial: object;
  onDone: () => void;
  onBack: () => void;
}

const TEXTS = {
  POST: { submit: 'Create', rest: 'Omitted fields use their defaults.' },
  PATCH: { submit: 'Save', rest: 'Omitted fields keep their values.' },
} as const;

export function RecordForm(props: RecordFormProps) {
  const { documentedPath, initial, label, method, onBack, onDone, path } = props;
  const [text, setText] = useState(() => JSON.stringify(initial, null, 2));
  const [error, setError] = useState<Error>();
  const id = useId();
  const field = useRef<HTMLTextAreaElement>(null);
  // The form appears in place of the button that had the focus.
  useEffect(() => field.current?.focus(), []);
  const read = readInput(text);
  const { rest, submit } = TEXTS[method];
  const send = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!('value' in read)) return;
    setError(undefined);
    try {
      await caller.json({ method, path, body: read.value, repeatable: false });
      onDone();
    } catch (reason) {
      setError(asError(reason));
    }
  };
  return (
    <form class="create note" onSubmit={send}>
      <label for={id}>{label} (JSON)</label>
      <textarea
        id={id}
        ref={field}
        rows={10}
        spellcheck={false}
        value={text}
        aria-invalid={'problem' in read}
        aria-describedby={`${id}-problem`}
        onInput={({ currentTarget }) => setText(currentTarget.value)}
      />
      <p id={`${id}-problem`} class={'problem' in read ? 'field-problem' : 'muted'}>
        {'problem' in read
          ? read.problem
          : `Fields: ${method} ${documentedPath ?? path} in /openapi.json. ${rest}`}
      </p>
      {error && <Problem error={error} />}
      <FormActions submit={submit} isDisabled={'problem' in read} onBack={onBack} />
    </form>
  );
}
