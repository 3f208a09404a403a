// The first cell of a record's row: its name and its ID.
import { Id } from '../copy.tsx';

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
