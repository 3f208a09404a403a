// Asks on a terminal before a command deletes data. Programs are not asked.
import { createInterface, type Interface } from 'node:readline';
import { escapeControls } from '../base/text/printable.ts';
import { CommandError, EXIT } from './command.ts';
import { flag } from './options.ts';

/** The person has pressed Ctrl-C. */
class InterruptedError extends CommandError {
  override readonly exitCode: number = EXIT.interrupted;
}

export const yesOption = flag({ help: 'do not ask; without a terminal, the command never asks' });

interface Terminal {
  input: NodeJS.ReadableStream & { isTTY?: boolean };
  output: NodeJS.WritableStream & { isTTY?: boolean };
}

/** Asks only if `yes` is false and a person can read and answer. @throws CommandError unless the answer is yes */
export async function confirm(
  question: string,
  { yes }: { yes: boolean },
  { input, output }: Terminal = { input: process.stdin, output: process.stderr },
): Promise<void> {
  if (yes || !input.isTTY || !output.isTTY) return;
  const lines = createInterface({ input, output });
  const answer = await new Promise<string>((resolve, reject) => {
    rejectOnInterrupt(lines, reject);
    lines.question(escapeControls(`${question} [y/N] `), resolve);
    lines.once('close', () => resolve(''));
  }).finally(() => lines.close());
  if (!/^\s*y(es)?\s*$/i.test(answer)) throw new CommandError('nothing was changed');
}

export function rejectOnInterrupt(lines: Interface, reject: (error: Error) => void): void {
  lines.once('SIGINT', () => reject(new InterruptedError('interrupted')));
}
