// The first cell of a record's row: its name and its ID.

export function RecordName({ id, name }: { id: string; name: string }) {
  return (
    <th scope="row">
      {name}
      <small class="mono">{id}</small>
    </th>
  );
}
