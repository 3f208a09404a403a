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
