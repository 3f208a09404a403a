// A field of a form with its label and its help.
import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';

interface FieldProps {
  label: string;
  help?: string | undefined;
  /** Draws the control, which has these attributes. */
  children: (ids: { id: string; 'aria-describedby': string | undefined }) => ComponentChildren;
}

export function Field({ children, help, label }: FieldProps) {
  const id = useId();
  const helpId = `${id}-help`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, 'aria-describedby': help ? helpId : undefined })}
      {help && (
        <small id={helpId} class="muted">
          {markCode(help)}
        </small>
      )}
    </div>
  );
}

/** Words between backticks become code. */
function markCode(text: string): ComponentChildren {
  return text
    .split(/`([^`]+)`/)
    .map((part, index) => (index % 2 === 1 ? <code>{part}</code> : part));
}
