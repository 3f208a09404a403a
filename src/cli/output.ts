// Prints the output of commands, as text, tables and a status line. Names, logs and outputs may be untrusted, so control characters
// are written as `\u001b`, also to files, which may be shown on a terminal later. Stacks are shown without our own frames.

import { isAbsolute, relative, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { packageRoot } from '../base/package-info.ts';
import { onFailedWrite } from '../base/standard-streams.ts';
import { escapeControls, escapeLine } from '../base/text/printable.ts';
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

const UNITS = ['bytes', 'KB', 'MB'] as const;
const STEP = 1_024;

/** `512 bytes`, `18.4 KB`, `2.0 MB`. */
export function formatSize(bytes: number): string {
  const index = UNITS.findIndex((_, at) => bytes < STEP ** (at + 1) || at === UNITS.length - 1);
  if (bytes === 1) return '1 byte';
  const value = bytes / STEP ** index;
  return `${index === 0 ? value : value.toFixed(1)} ${UNITS[index]}`;
}

/** Moves to the start of the line and erases it. */
const REWRITE = '\r\u001b[2K';
const DEFAULT_COLUMNS = 80;

interface StatusStream {
  isTTY?: boolean;
  columns?: number;
  write(text: string): unknown;
}

export class StatusLine {
  readonly #stream: StatusStream;
  #shown = '';

  constructor(stream: StatusStream = process.stderr) {
    this.#stream = stream;
  }

  get isTerminal(): boolean {
    return this.#stream.isTTY === true;
  }

  /** Replaces the text on a terminal; elsewhere prints it if it is new. */
  show(text: string): void {
    if (text === this.#shown) return;
    this.#shown = text;
    if (!this.#stream.isTTY) {
      this.#stream.write(`${escapeLine(text)}\n`);
      return;
    }
    const columns = this.#stream.columns ?? DEFAULT_COLUMNS;
    this.#stream.write(REWRITE + escapeLine(text).slice(0, columns - 1));
  }

  /** Removes the text from a terminal; the next line is printed in its place. */
  clear(): void {
    if (this.#stream.isTTY && this.#shown !== '') this.#stream.write(REWRITE);
    this.#shown = '';
  }

  /** Prints lines that stay. */
  note(text: string): void {
    this.clear();
    printNote(`${text}\n`);
  }
}

interface StackView {
  /** Paths in this folder are shown relative to it. */
  folder: string;
  /** URL of the folder of this package. Default: where it is. */
  packageUrl?: string;
}

/** A frame: `at name (file:///path.ts:1:2)`, or with the place alone. */
const FRAME = /^\s+at /;

/** Node's own frames, and the step from the driver of a generator into it. */
const OF_NODE = /[( ]node:|\.(next|return|throw) \(<anonymous>\)$/;

/** Leaves out the frames of Millrace and of Node; keeps messages and causes. */
export function showOwnStack(stack: string, { folder, packageUrl }: StackView): string {
  const root = packageUrl ?? pathToFileURL(packageRoot).href;
  const own = [`${root}dist/`, `${root}src/`];
  const isForeign = (line: string) =>
    OF_NODE.test(line) || own.some((start) => line.includes(start));
  return stack
    .split('\n')
    .filter((line) => !FRAME.test(line) || !isForeign(line))
    .map((line) => (FRAME.test(line) ? shortenPlace(line, folder) : line))
    .join('\n');
}

function shortenPlace(frame: string, folder: string): string {
  return frame.replace(/file:\/\/[^\s)]*/, (place) => {
    const [, url = place, position = ''] = /^(.*?)(:\d+:\d+)?$/.exec(place) ?? [];
    const path = readPath(url);
    if (path === undefined) return place;
    const near = relative(folder, path);
    const isInside = !near.startsWith(`..${sep}`) && !isAbsolute(near);
    return (isInside ? near : path) + position;
  });
}

/** Undefined if it is not the URL of a file: a handler can write anything into its stack. */
function readPath(url: string): string | undefined {
  try {
    return fileURLToPath(url);
  } catch {
    return undefined;
  }
}
