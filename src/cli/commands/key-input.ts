// Reads an API key from standard input: without an echo on a terminal, else the whole input.
import { createInterface } from 'node:readline';
import { Writable } from 'node:stream';
import { cleanKey } from '../api-key.ts';
import { rejectOnInterrupt } from '../confirm.ts';
import { UsageError } from '../options.ts';
import { printNote } from '../output.ts';

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
