// Copies a text to the clipboard and says so; and IDs, which are short, with a button that copies the whole.
import { useState } from 'preact/hooks';

const SHOWN_MS = 2_000;

function useCopy(text: string) {
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
  return { copy, note };
}

export function Copy({ label = 'Copy', text }: { text: string; label?: string }) {
  const { copy, note } = useCopy(text);
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

/** A generated ID. The page shows its end, because IDs from the same second begin alike. */
const GENERATED = /[\da-f]{8}(?:-[\da-f]{4}){3}-([\da-f]{12})$/;

export function Id({ href, id }: { id: string; href?: string }) {
  const { copy, note } = useCopy(id);
  const shown = GENERATED.exec(id)?.[1] ?? id;
  const look = shown === id ? undefined : 'short';
  return (
    <span class="id mono" title={id}>
      {href === undefined ? (
        <span class={look}>{shown}</span>
      ) : (
        <a class={look} href={href} aria-label={id}>
          {shown}
        </a>
      )}
      <button
        type="button"
        class={note ? 'copy done' : 'copy'}
        aria-label={`Copy ${id}`}
        title="Copy"
        onClick={copy}
      />
      <span role="status" class="visually-hidden">
        {note}
      </span>
    </span>
  );
}
