// Cells of a record's row: its name and its ID in the first one, and when it was created.
import { Id } from '../copy.tsx';
import { Time } from '../time.tsx';

export function RecordName({ href, id, name }: { id: string; name: string; href?: string }) {
  return (
    <th scope="row">
      {href === undefined ? name : <a href={href}>{name}</a>}
      {name !== id && (
        <small>
          <Id id={id} />
        </small>
      )}
    </th>
  );
}

/** `at`: ISO 8601; null for a record of the operator's catalog file. */
export function CreatedCell({ at }: { at: string | null }) {
  return <td class="nowrap">{at === null ? '–' : <Time at={at} />}</td>;
}
