// Formats rows as a table that fits the terminal.
import { escapeControls } from '../base/text/printable.ts';

const GAP = '  ';
/** A cut cell keeps at least this many characters. */
const MIN_WIDTH = 6;

/**
 * An empty cell is shown as `-`. Each column is as wide as its widest cell; the last one has no padding. If the table is wider than `width`, the
 * widest columns are cut, but never the first one, which has the ID. A very narrow terminal wraps the rest.
 */
export function formatTable(
  titles: readonly string[],
  rows: readonly (readonly string[])[],
  width = Number.POSITIVE_INFINITY,
): string {
  const all = [titles, ...rows].map((row) => row.map((cell) => Array.from(flatten(cell) || '-')));
  const widths = titles.map((_, column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  const limits = fitWidths(widths, {
    least: titles.map((title) => Math.max(MIN_WIDTH, Array.from(title).length)),
    width,
  });
  return all
    .map((row) =>
      row
        .map((cell, column) => fill(cell, limits[column] ?? 0))
        .join(GAP)
        .trimEnd(),
    )
    .join('\n');
}

/** Narrows the widest column again and again. */
function fitWidths(
  widths: readonly number[],
  { least, width }: { least: readonly number[]; width: number },
): number[] {
  const fitted = [...widths];
  let excess = fitted.reduce((sum, each) => sum + each + GAP.length, -GAP.length) - width;
  for (; excess > 0; excess--) {
    const spare = fitted.map((each, column) =>
      column > 0 && each > (least[column] ?? 0) ? each : 0,
    );
    const widest = spare.indexOf(Math.max(...spare));
    if (!spare[widest]) break;
    fitted[widest] = spare[widest] - 1;
  }
  return fitted;
}

/** Replaces line breaks, which would end the row. */
function flatten(cell: string): string {
  return escapeControls(cell.replaceAll(/[\t\n\r ]+/g, ' '));
}

function fill(cell: readonly string[], width: number): string {
  if (cell.length > width) return `${cell.slice(0, width - 1).join('')}…`;
  return cell.join('') + ' '.repeat(width - cell.length);
}
