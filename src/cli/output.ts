// Prints the output of commands. Names, logs and outputs may be untrusted, so control characters
// are written as `\u001b`, also to files, which may be shown on a terminal later.
import { escapeControls } from '../base/text/printable.ts';

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
