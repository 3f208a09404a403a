// Shows the progress of a command on standard error: one line that is rewritten on a terminal, one line for
// each change elsewhere.
import { escapeLine } from '../../base/text/printable.ts';
import { printNote } from '../output.ts';

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
