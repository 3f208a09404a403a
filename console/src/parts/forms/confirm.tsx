// A button that asks before it acts, and shows why the action failed.
import type { ComponentChildren } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { asError } from '../../platform/polling.ts';
import { Problem } from '../problem.tsx';

interface ConfirmProps {
  /** On the button, and on the one that confirms. */
  label: string;
  /** What happens, as a question. */
  question: string;
  /** Further explanation. */
  children?: ComponentChildren;
  isDangerous?: boolean;
  disabled?: boolean;
  act: () => Promise<unknown>;
}

export function Confirm({ act, children, disabled, isDangerous, label, question }: ConfirmProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const open = () => {
    setError(undefined);
    dialog.current?.showModal();
  };
  const confirm = async () => {
    setBusy(true);
    try {
      await act();
      dialog.current?.close();
    } catch (reason) {
      setError(asError(reason));
    }
    setBusy(false);
  };
  const tone = isDangerous ? 'danger' : undefined;
  return (
    <>
      <button type="button" class={tone} disabled={disabled} onClick={open}>
        {label}
      </button>
      <dialog ref={dialog} aria-label={question}>
        <h2>{question}</h2>
        {children && <div>{children}</div>}
        {error && <Problem error={error} />}
        <div class="dialog-actions">
          <button type="button" onClick={() => dialog.current?.close()}>
            Back
          </button>
          <button type="button" class={tone ?? 'primary'} disabled={isBusy} onClick={confirm}>
            {label}
          </button>
        </div>
      </dialog>
    </>
  );
}
