// Copies a text to the clipboard and says so.
import { useState } from 'preact/hooks';

const SHOWN_MS = 2_000;

export function Copy({ label = 'Copy', text }: { text: string; label?: string }) {
  const [note, setNote] = useState('');
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setNote('Copied');
    } catch {
      setNote('Select the text and copy it: this page may not use the clipboard');
    }
    setTimeout(() => setNote(''), SHOWN_MS);
  };
  return (
    <>
      <button type="button" onClick={copy}>
        {label}
      </button>{' '}
      <span role="status" class="muted">
        {note}
      </span>
    </>
  );
}
