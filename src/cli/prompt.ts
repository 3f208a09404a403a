// Asks the person at a terminal: before a command deletes data (programs are not asked), and for an API key, which is not
// echoed. Without a terminal the key is the whole standard input.
import { createInterface, type Interface } from 'node:readline';
import { Writable } from 'node:stream';
import { escapeControls } from '../base/text/printable.ts';
import { CommandError, EXIT } from './command.ts';
import { cleanKey, flag, UsageError } from './options.ts';
import { printNote } from './output.ts';

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

function rejectOnInterrupt(lines: Interface, reject: (error: Error) => void): void {
  lines.once('SIGINT', () => reject(new InterruptedError('interrupted')));
}

const KEY_FORM = /^mr_[A-Za-z0-9_-]{43}$/;
/** Far more than a key with white space around it. */
const MAX_CHARS = 4_096;

/** @throws UsageError if it is no key, without showing it */
export async function readKey(prompt: string): Promise<string> {
  const given = process.stdin.isTTY ? await ask(prompt) : await readInput();
  const key = cleanKey(given);
  if (KEY_FORM.test(key)) return key;
  const found = key === '' ? 'standard input has no key' : 'that is not an API key';
  throw new UsageError(`${found}; a key is "mr_" and 43 letters, digits, "-" or "_"`);
}

function ask(prompt: string): Promise<string> {
  // The terminal is in raw mode, so only readline could echo, and it writes to nowhere.
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const lines = createInterface({ input: process.stdin, output: nowhere, terminal: true });
  printNote(prompt);
  return new Promise<string>((resolve, reject) => {
    lines.once('line', resolve);
    rejectOnInterrupt(lines, reject);
    lines.once('close', () => resolve(''));
  }).finally(() => {
    lines.close();
    printNote('\n');
  });
}

async function readInput(): Promise<string> {
  let text = '';
  for await (const chunk of process.stdin.setEncoding('utf8')) {
    text += chunk;
    if (text.length > MAX_CHARS) break;
  }
  return text;
}
