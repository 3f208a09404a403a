// Which form of a page is open: that of a new record, that of one record, or none.
import { useRef, useState } from 'preact/hooks';

export interface OpenedForm<Item> {
  /** `new`, or the record that the form changes. */
  opened: Item | 'new' | undefined;
  open: (what: Item | 'new') => void;
  /** For the form. Its end returns the focus to the button that opened it. */
  form: { onDone: () => void; onBack: () => void };
}

export function useOpenedForm<Item>(onSaved: () => void): OpenedForm<Item> {
  const [opened, setOpened] = useState<Item | 'new'>();
  const opener = useRef<Element | null>(null);
  const open = (what: Item | 'new') => {
    opener.current = document.activeElement;
    setOpened(() => what);
  };
  const close = () => {
    setOpened(undefined);
    if (opener.current instanceof HTMLElement) opener.current.focus();
  };
  const done = () => {
    close();
    onSaved();
  };
  return { opened, open, form: { onDone: done, onBack: close } };
}
