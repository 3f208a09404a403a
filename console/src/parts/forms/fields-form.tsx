// A form of labelled fields that sends what they hold, and shows why that failed.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { asError } from '../../platform/polling.ts';
import { Problem } from '../problem.tsx';
import { FormActions } from './form-actions.tsx';

export interface FieldValues {
  /** Trimmed; empty if the form has no field with this name. */
  text: (name: string) => string;
  number: (name: string) => number;
  /** Values of all fields with this name, without empty ones. */
  all: (name: string) => string[];
  /** As it was typed, with its spaces. */
  secret: (name: string) => string;
}

interface FieldsFormProps {
  /** What the form does: `Create a network volume`. */
  label: string;
  /** On the button that sends it. */
  submit: string;
  act: (values: FieldValues) => Promise<unknown>;
  onDone: () => void;
  onBack: () => void;
  /** Fields. */
  children: ComponentChildren;
}

export function FieldsForm(props: FieldsFormProps) {
  const { act, children, label, onBack, onDone, submit } = props;
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  // The form appears in place of the button that had the focus.
  useEffect(() => form.current?.querySelector<HTMLElement>('input, select')?.focus(), []);
  const send = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!form.current) return;
    const data = new FormData(form.current);
    setError(undefined);
    setBusy(true);
    try {
      await act(readFields(data));
      onDone();
    } catch (reason) {
      setError(asError(reason));
      setBusy(false);
    }
  };
  return (
    <form ref={form} class="settings" onSubmit={send}>
      <fieldset>
        <legend>{label}</legend>
        {children}
      </fieldset>
      {error && <Problem error={error} />}
      <FormActions submit={submit} isDisabled={isBusy} onBack={onBack} />
    </form>
  );
}

function readFields(data: FormData): FieldValues {
  const secret = (name: string) => String(data.get(name) ?? '');
  const text = (name: string) => secret(name).trim();
  const all = (name: string) =>
    data
      .getAll(name)
      .map(String)
      .filter((value) => value !== '');
  return { secret, text, all, number: (name) => Number(text(name)) };
}
