// Rows in columns, for people.

const GAP = '  ';

/** Under their titles, each column as wide as its widest cell; the last is not filled up. */
export function formatTable(
  titles: readonly string[],
  rows: readonly (readonly string[])[],
): string {
  const all = [titles, ...rows];
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

/** A line break would end the row. */
function fill(cell: string, width: number): string {
  const line = cell.replaceAll(/\s+/g, ' ');
  return line + ' '.repeat(Math.max(0, width - Array.from(line).length));
}
