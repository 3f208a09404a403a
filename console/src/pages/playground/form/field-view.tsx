// Draws one field of the form, with the fields in it.
import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import { Control } from './controls.tsx';
import type { Field } from './tree.ts';
import type { Path } from './values.ts';

export interface FormActions {
  /** Undefined removes the part. */
  change: (path: Path, part: unknown) => void;
  /** Chooses an option of a union. */
  choose: (field: Field, option: number, initial: unknown) => void;
}

interface FieldProps<Kind extends Field['kind'] = Field['kind']> {
  field: Extract<Field, { kind: Kind }>;
  actions: FormActions;
}

export function FieldView({ actions, field }: FieldProps) {
  if (field.kind === 'group') return <Group field={field} actions={actions} />;
  if (field.kind === 'list') return <List field={field} actions={actions} />;
  if (field.kind === 'union') return <Union field={field} actions={actions} />;
  return <Single field={field} actions={actions} />;
}

function Single({ actions, field }: FieldProps) {
  const id = useId();
  const texts = [field.help, sayFallback(field)].filter((text) => text !== undefined);
  const helpId = texts.length > 0 ? `${id}-help` : undefined;
  return (
    <div class="field">
      <label for={id}>
        <Label field={field} />
      </label>
      <Control
        field={field}
        id={id}
        describedBy={helpId}
        onChange={(part) => actions.change(field.path, part)}
      />
      {texts.length > 0 && (
        <small id={helpId} class="muted">
          {texts.join(' ')}
        </small>
      )}
      {field.value === undefined && <Examples field={field} actions={actions} />}
    </div>
  );
}

function Label({ field }: { field: Field }) {
  const isMissing = field.isRequired && field.value === undefined && field.kind !== 'group';
  return (
    <>
      {field.label}
      {field.isRequired && (
        <span class={isMissing ? 'required missing' : 'required'} title="required">
          {' '}
          *
        </span>
      )}
    </>
  );
}

function Examples({ actions, field }: FieldProps) {
  if (field.examples.length === 0) return null;
  return (
    <small class="examples">
      {field.examples.map((example) => {
        const text = JSON.stringify(example) ?? '';
        return (
          <button
            key={text}
            type="button"
            class="quiet"
            onClick={() => actions.change(field.path, example)}
          >
            Use {text.slice(0, 60)}
          </button>
        );
      })}
    </small>
  );
}

function sayFallback({ fallback, kind, value }: Field): string | undefined {
  if (fallback === undefined || value !== undefined || kind === 'fixed') return undefined;
  return `Default: ${(JSON.stringify(fallback) ?? '').slice(0, 100)}.`;
}

interface SectionProps extends FieldProps {
  /** Buttons beside the name. */
  buttons: ComponentChildren;
  children?: ComponentChildren;
}

function Section({ buttons, children, field }: SectionProps) {
  return (
    <fieldset>
      <legend>
        <Label field={field} />
      </legend>
      {field.help && <p class="muted">{field.help}</p>}
      {children}
      <div class="section-buttons">{buttons}</div>
    </fieldset>
  );
}

function Group({ actions, field }: FieldProps<'group'>) {
  const { fields, initial, isRequired, label, path, value } = field;
  const button =
    value === undefined ? (
      <button type="button" onClick={() => actions.change(path, initial)}>
        Add {label}
      </button>
    ) : (
      !isRequired && (
        <button type="button" class="quiet" onClick={() => actions.change(path, undefined)}>
          Remove {label}
        </button>
      )
    );
  return (
    <Section field={field} actions={actions} buttons={button}>
      {fields.map((each) => (
        <FieldView key={each.key} field={each} actions={actions} />
      ))}
    </Section>
  );
}

function List({ actions, field }: FieldProps<'list'>) {
  const { canAdd, canRemove, fields, initial, isRequired, label, path, value } = field;
  const items: readonly unknown[] = Array.isArray(value) ? value : [];
  const remove = (index: number) => {
    const left = items.filter((_, at) => at !== index);
    actions.change(path, left.length === 0 && !isRequired ? undefined : left);
  };
  const button = canAdd && (
    <button type="button" onClick={() => actions.change(path, [...items, initial])}>
      Add to {label}
    </button>
  );
  return (
    <Section field={field} actions={actions} buttons={button}>
      {fields.map((each, index) => (
        <div key={each.key} class="list-item">
          <FieldView field={each} actions={actions} />
          {canRemove && (
            <button
              type="button"
              class="quiet"
              aria-label={`Remove ${index + 1} of ${label}`}
              onClick={() => remove(index)}
            >
              Remove
            </button>
          )}
        </div>
      ))}
    </Section>
  );
}

const NONE = '';

function Union({ actions, field }: FieldProps<'union'>) {
  const id = useId();
  const { chosen, field: inner, isRequired, options, path } = field;
  const choose = (text: string) => {
    const option = options[Number(text)];
    if (text === NONE || !option) actions.change(path, undefined);
    else actions.choose(field, Number(text), option.initial);
  };
  return (
    <>
      <div class="field">
        <label for={id}>
          <Label field={field} />
        </label>
        <select
          id={id}
          value={chosen ?? NONE}
          onChange={(event) => choose(event.currentTarget.value)}
        >
          {(!isRequired || chosen === undefined) && <option value={NONE}>Choose…</option>}
          {options.map(({ label }, index) => (
            <option key={index} value={index}>
              {label}
            </option>
          ))}
        </select>
        {field.help && <small class="muted">{field.help}</small>}
      </div>
      {inner && inner.kind !== 'fixed' && <FieldView field={inner} actions={actions} />}
    </>
  );
}
