// A table that scrolls by itself on a narrow screen, so that the page does not.
import type { ComponentChildren } from 'preact';

export interface Column {
  name: string;
  /** Numbers are aligned to the right. */
  isNumber?: boolean;
  /** The name is read out, and not shown. */
  isHidden?: boolean;
}

interface TableProps {
  /** What the table lists, for screen readers. */
  label: string;
  columns: readonly Column[];
  /** Rows. */
  children: ComponentChildren;
}

export function Table({ children, columns, label }: TableProps) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls it.
    <section class="scroll" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map(({ isHidden, isNumber, name }) => (
              <th key={name} scope="col" class={isNumber ? 'number' : undefined}>
                {isHidden ? <span class="visually-hidden">{name}</span> : name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </section>
  );
}
