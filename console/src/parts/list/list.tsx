// A list that the platform answers: why it cannot be shown, what to do while it is empty, and its rows.
import type { ComponentChildren } from 'preact';
import type { Polled } from '../../platform/polling.ts';
import { Problem } from '../problem.tsx';
import { type Column, Table } from './table.tsx';

interface ListProps<Item> {
  polled: Polled<readonly Item[]>;
  /** What it lists, for screen readers. */
  label: string;
  columns: readonly Column[];
  /** Instead of a table without rows. */
  empty: ComponentChildren;
  row: (item: Item) => ComponentChildren;
}

export function List<Item>({ columns, empty, label, polled, row }: ListProps<Item>) {
  const { data, error, reload } = polled;
  if (data === undefined) return error ? <Problem error={error} onRetry={reload} /> : null;
  if (data.length === 0) return <>{empty}</>;
  return (
    <Table label={label} columns={columns}>
      {data.map(row)}
    </Table>
  );
}
