// Formats rows as a table.
import { escapeControls } from '../base/text/printable.ts';

const GAP = '  ';

/** Each column is as wide as its widest cell; the last one has no padding. */
export function formatTable(
  titles: readonly string[],
  rows: readonly (readonly string[])[],
): string {
  const all = [titles, ...rows].map((row) => row.map(flatten));
  const widths = titles.map((_, column) =>
    Math.max(...all.map((row) => Array.from(row[column] ?? '').length)),
  );
  return all
    .map((row) =>
      row
        .map((cell, column) => fill(cell, widths[column] ?? 0))
        .join(GAP)
        .trimEnd(),
    )
    .join('\n');
}

/** Replaces line breaks, which would end the row. */
function flatten(cell: string): string {
  return escapeControls(cell.replaceAll(/[\t\n\r ]+/g, ' '));
}

function fill(cell: string, width: number): string {
  return cell + ' '.repeat(Math.max(0, width - Array.from(cell).length));
}
