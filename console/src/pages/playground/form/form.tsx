// A form for a job's input, made from the JSON Schema of its handler.
import { useMemo, useState } from 'preact/hooks';
import { FieldView, type FormActions } from './field-view.tsx';
import type { JsonSchema } from './schema.ts';
import { buildForm, isUseful, listMissing } from './tree.ts';
import { setPart } from './values.ts';

interface SchemaFormProps {
  schema: JsonSchema;
  value: object;
  onChange: (value: object) => void;
}

export function SchemaForm({ onChange, schema, value }: SchemaFormProps) {
  const [choices, setChoices] = useState<ReadonlyMap<string, number>>(new Map());
  const tree = useMemo(() => buildForm(schema, value, choices), [schema, value, choices]);
  const actions: FormActions = {
    change: (path, part) => {
      const changed = setPart(value, path, part);
      onChange(typeof changed === 'object' && changed !== null ? changed : {});
    },
    choose: ({ key, path }, option, initial) => {
      setChoices(new Map([...choices, [key, option]]));
      actions.change(path, initial);
    },
  };
  const missing = listMissing(tree);
  return (
    <div class="schema-form">
      {tree.help && <p class="muted">{tree.help}</p>}
      {tree.kind === 'group' ? (
        tree.fields.map((field) => <FieldView key={field.key} field={field} actions={actions} />)
      ) : (
        <FieldView field={tree} actions={actions} />
      )}
      <p class="muted" role="status">
        {missing.length > 0 && `Required and empty: ${missing.slice(0, 10).join(', ')}`}
      </p>
    </div>
  );
}

/** Whether a form says more of the input than its JSON. */
export function hasForm(schema: JsonSchema): boolean {
  return isUseful(buildForm(schema, {}, new Map()));
}
