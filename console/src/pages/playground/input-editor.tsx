// The input of a job: as a form if the handler's schema is known, or as JSON. Both edit one text.
import { useMemo, useState } from 'preact/hooks';
import { callOf } from '../../../../src/client/api-caller.ts';
import type { InputSchemaRecord } from '../../../../src/client.ts';
import { JOB_ROUTES } from '../../../../src/wire/routes/routes.ts';
import type { ReadInput } from '../../parts/job/json-input.ts';
import { caller } from '../../platform/calls.ts';
import { usePolled } from '../../platform/polling.ts';
import { hasForm, SchemaForm } from './form/form.tsx';
import type { JsonSchema } from './form/schema.ts';
import { InputPanel } from './input-panel.tsx';

/** What the endpoint's handler accepts: undefined while it is loading, null if no form can be made. */
export function useInputSchema(endpoint: string): JsonSchema | null | undefined {
  const { data, error } = usePolled({
    key: endpoint,
    everyMs: null,
    load: (signal) =>
      caller.json<InputSchemaRecord>({
        ...callOf(JOB_ROUTES.getInputSchema, { endpoint }),
        signal,
      }),
  });
  return useMemo(() => {
    if (!data) return error ? null : undefined;
    return data.schema && hasForm(data.schema) ? data.schema : null;
  }, [data, error]);
}

interface InputEditorProps {
  schema: JsonSchema | null | undefined;
  text: string;
  read: ReadInput;
  onInput: (text: string) => void;
}

export function InputEditor({ onInput, read, schema, text }: InputEditorProps) {
  const [view, setView] = useState<'form' | 'json'>('form');
  const problem = 'problem' in read ? read.problem : undefined;
  const place = 'problem' in read ? read.place : undefined;
  const panel = <InputPanel {...{ text, problem, place, onInput }} />;
  if (schema === undefined) return <p class="muted">Loading the input schema…</p>;
  if (schema === null) return panel;
  return (
    <>
      <div class="choice" role="radiogroup" aria-label="How to enter the input">
        <ViewOption name="Form" isChosen={view === 'form'} onChoose={() => setView('form')} />
        <ViewOption name="JSON" isChosen={view === 'json'} onChoose={() => setView('json')} />
      </div>
      {view === 'json' && panel}
      {view === 'form' && !('value' in read) && (
        <p class="field-problem">
          The form needs valid JSON. Correct it in the view JSON: {problem}
        </p>
      )}
      {view === 'form' && 'value' in read && (
        <SchemaForm
          schema={schema}
          value={read.value}
          onChange={(value) => onInput(JSON.stringify(value, null, 2))}
        />
      )}
    </>
  );
}

interface ViewOptionProps {
  name: string;
  isChosen: boolean;
  onChoose: () => void;
}

function ViewOption({ isChosen, name, onChoose }: ViewOptionProps) {
  return (
    <label>
      <input type="radio" name="view" checked={isChosen} onChange={onChoose} />
      {name}
    </label>
  );
}
