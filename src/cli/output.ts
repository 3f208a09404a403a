// All that a command prints. Names, logs and outputs come from others, so that control characters
// leave as `\u001b`, whether a terminal reads them or a file that is shown on one later.
import { escapeControls } from '../base/printable.ts';

/** To standard output. Resolves when it was written, or cannot be any more. */
export function print(text: string): Promise<void> {
  return new Promise((resolve) => {
    process.stdout.write(escapeControls(text), () => resolve());
  });
}

/** To standard output: text with colours, in which whatever comes from others is escaped already. */
export function printStyled(text: string): void {
  process.stdout.write(text);
}

/** To standard error. */
export function printNote(text: string): void {
  process.stderr.write(escapeControls(text));
}
