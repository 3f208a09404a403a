// Reads the code blocks of a README and runs its command lines in a shell as printed.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

export interface CodeBlock {
  /** Empty if the block has no language. */
  language: string;
  text: string;
}

/** @param path relative to the root of the checkout */
export async function readCodeBlocks(path: string): Promise<CodeBlock[]> {
  const markdown = await readFile(`${ROOT}/${path}`, 'utf8');
  return [...markdown.matchAll(/^```(\w*)\n(.*?)^```$/gms)].map(
    ([, language = '', block = '']) => ({
      language,
      text: block,
    }),
  );
}

/**
 * `npx millrace` starts the launcher itself: npm takes longer than the command. `command npx millrace` is the
 * real one.
 */
const NPX = `npx() {
  if [ "$1" = millrace ]; then
    shift
    '${process.execPath}' '${ROOT}bin/millrace.js' "$@"
  else
    command npx "$@"
  fi
}
`;

export interface CommandEnd {
  exitCode: number;
  stdout: string;
  stderr: string;
}

/** Runs a command line in the checkout or in the given folder. */
export async function runCommandLine(line: string, cwd = ROOT): Promise<CommandEnd> {
  // A test runner that a test starts must not see the variables of the outer one.
  const own = Object.entries(process.env).filter(
    ([name]) => !/^(VITEST|NODE_ENV|TEST$)/.test(name),
  );
  const child = spawn('bash', ['-c', NPX + line], { cwd, env: Object.fromEntries(own) });
  child.stdin.end();
  const [stdout, stderr, [exitCode]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ]);
  return { exitCode, stdout, stderr };
}
