// The buttons at the end of a form: send it, or close it.

interface FormActionsProps {
  /** On the button that sends the form. */
  submit: string;
  isDisabled?: boolean;
  onBack: () => void;
}

export function FormActions({ isDisabled, onBack, submit }: FormActionsProps) {
  return (
    <div class="form-actions">
      <button type="submit" class="primary" disabled={isDisabled}>
        {submit}
      </button>
      <button type="button" onClick={onBack}>
        Back
      </button>
    </div>
  );
}
