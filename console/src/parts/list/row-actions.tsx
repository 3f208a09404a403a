// The actions on a record in the last cell of its row: change and delete, with what stands in their place
// if the record is fixed.
import type { ComponentChildren } from 'preact';
import { Confirm } from '../forms/confirm.tsx';

interface RowActionsProps {
  name: string;
  /** Kind of record, as questions name it: `the template …`. */
  kind: string;
  /** The record comes from the operator's catalog file. */
  isFixed?: boolean | undefined;
  /** The signed-in user may change the record. */
  isAllowed: boolean;
  onEdit: () => void;
  /** Deletes the record; a rejection is shown beside the button. */
  remove: () => Promise<void>;
  /** What else is lost, at the end of the question: `with its content`. */
  lost?: string | undefined;
  /** What a person should know before they delete the record. */
  children: ComponentChildren;
}

export function RowActions(props: RowActionsProps) {
  const { children, isAllowed, isFixed, kind, lost, name, onEdit, remove } = props;
  if (isFixed) return <td class="number muted">Fixed by the catalog file</td>;
  if (!isAllowed) return <td />;
  return (
    <td class="number">
      <span class="row-actions">
        <button type="button" aria-label={`Change ${name}`} onClick={onEdit}>
          Change
        </button>
        <Confirm
          label="Delete"
          question={`Delete the ${kind} ${name}${lost ? ` ${lost}` : ''}?`}
          isDangerous
          act={remove}
        >
          <p>{children}</p>
        </Confirm>
      </span>
    </td>
  );
}
