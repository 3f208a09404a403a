// The button in the head of a page or a section that opens the form for a new record.

interface CreateButtonProps {
  /** `Create a template`. */
  label: string;
  isOpen: boolean;
  onOpen: () => void;
}

export function CreateButton({ isOpen, label, onOpen }: CreateButtonProps) {
  return (
    <button type="button" class="primary" aria-expanded={isOpen} onClick={onOpen}>
      {label}
    </button>
  );
}
