// Creates a resource from its JSON: all settings that the API has, without a form of their own for each.
import { useId, useState } from 'preact/hooks';
import { caller } from '../platform/calls.ts';
import { asError } from '../platform/polling.ts';
import { readInput } from './json-input.ts';
import { Problem } from './problem.tsx';

interface CreatePanelProps {
  /** In the button: `Create a template`. */
  label: string;
  /** Path of the list: `/v1/templates`. */
  path: string;
  /** What the text starts with. */
  example: object;
  onCreated: () => void;
}

export function CreatePanel({ example, label, onCreated, path }: CreatePanelProps) {
  const [text, setText] = useState(() => JSON.stringify(example, null, 2));
  const [error, setError] = useState<Error>();
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  const read = readInput(text);
  const create = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!('value' in read)) return;
    setError(undefined);
    try {
      await caller.json({ method: 'POST', path, body: read.value, repeatable: false });
      setOpen(false);
      onCreated();
    } catch (reason) {
      setError(asError(reason));
    }
  };
  if (!isOpen) {
    return (
      <p>
        <button type="button" onClick={() => setOpen(true)}>
          {label}
        </button>
      </p>
    );
  }
  return (
    <form class="create note" onSubmit={create}>
      <label for={id}>{label} (JSON)</label>
      <textarea
        id={id}
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
          : `Fields: POST ${path} in /openapi.json. Left-out fields get their default.`}
      </p>
      {error && <Problem error={error} />}
      <div class="form-actions">
        <button type="submit" class="primary" disabled={'problem' in read}>
          Create
        </button>
        <button type="button" onClick={() => setOpen(false)}>
          Back
        </button>
      </div>
    </form>
  );
}
