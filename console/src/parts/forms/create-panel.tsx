// A button that opens the form for a new record.
import { useEffect, useRef, useState } from 'preact/hooks';
import { RecordForm } from './record-form.tsx';

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
  const [isOpen, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const wasOpen = useRef(false);
  useEffect(() => {
    if (wasOpen.current && !isOpen) button.current?.focus();
    wasOpen.current = isOpen;
  }, [isOpen]);
  if (isOpen) {
    const done = () => {
      setOpen(false);
      onCreated();
    };
    const form = { label, path, initial: example, onDone: done, onBack: () => setOpen(false) };
    return <RecordForm method="POST" {...form} />;
  }
  return (
    <p>
      <button ref={button} type="button" onClick={() => setOpen(true)}>
        {label}
      </button>
    </p>
  );
}
