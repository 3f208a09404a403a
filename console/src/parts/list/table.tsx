// A table that scrolls by itself where it is too wide. On a phone, each row is a card, with the names of its columns.
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

export interface Column {
  name: string;
  /** Numbers are aligned to the right. */
  isNumber?: boolean;
  /** The name is read out, and not shown. */
  isHidden?: boolean;
  /** In the head of the column, instead of its name. */
  head?: ComponentChildren;
}

interface TableProps {
  /** What the table lists, for screen readers. */
  label: string;
  columns: readonly Column[];
  /** Rows. */
  children: ComponentChildren;
}

export function Table({ children, columns, label }: TableProps) {
  const body = useRef<HTMLTableSectionElement>(null);
  // The style sheet draws them in cards.
  useLayoutEffect(() => {
    for (const row of body.current?.rows ?? []) {
      for (const [index, cell] of [...row.cells].entries()) {
        const column = columns[index];
        if (column && !column.isHidden) cell.dataset['label'] = column.name;
      }
    }
  });
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls it.
    <section class="scroll" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map(({ head, isHidden, isNumber, name }) => (
              <th key={name} scope="col" class={isNumber ? 'number' : undefined}>
                {head ?? (isHidden ? <span class="visually-hidden">{name}</span> : name)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>{children}</tbody>
      </table>
    </section>
  );
}
