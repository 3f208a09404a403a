// Prints the output of commands. Names, logs and outputs may be untrusted, so control characters
// are written as `\u001b`, also to files, which may be shown on a terminal later.
import { onFailedWrite } from '../base/standard-streams.ts';
import { escapeControls } from '../base/text/printable.ts';
import { EXIT } from './command.ts';

let isWatched = false;
let onFailed = endCommand;

/** Call it before the first output. Text that standard error does not accept is lost. */
export function watchOutput(): void {
  if (isWatched) return;
  isWatched = true;
  onFailedWrite((stream, error) => {
    if (stream === 'stdout') onFailed(error);
  });
}

/** The command continues when standard output fails, because its purpose is not the output. */
export function outliveOutput(then: (error: NodeJS.ErrnoException) => void = () => {}): void {
  onFailed = then;
}

function endCommand(error: NodeJS.ErrnoException): void {
  if (error.code === 'EPIPE') process.exit(EXIT.noReader);
  outliveOutput();
  noteFailedOutput(error);
  process.exit(EXIT.failed);
}

export function noteFailedOutput({ message }: Error): void {
  printNote(`millrace: standard output cannot be written: ${message}\n`);
}

/** Prints to standard output. Resolves when the text is written, or can no longer be written. */
export function print(text: string): Promise<void> {
  return new Promise((resolve) => {
    process.stdout.write(escapeControls(text), () => resolve());
  });
}

/** Prints text with colours to standard output; the caller has escaped all untrusted parts. */
export function printStyled(text: string): Promise<void> {
  return new Promise((resolve) => {
    process.stdout.write(text, () => resolve());
  });
}

/** Width that tables have to fit: that of the terminal. A file or a program gets whole cells. */
export function readTableWidth({ wide }: { wide: boolean }): number {
  const { columns, isTTY } = process.stdout;
  return isTTY && !wide ? columns : Number.POSITIVE_INFINITY;
}

/** Prints to standard error. */
export function printNote(text: string): void {
  process.stderr.write(escapeControls(text));
}

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
