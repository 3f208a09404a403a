// Runs one command-line program on one input: its standard error goes to the log, a cancelled job
// ends it, its exit code decides how the job ends.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { type Context, NonRetryableError } from 'millrace';

/** Between asking a program to end and ending it. */
const KILL_AFTER_MS = 1_000;

export interface ProgramOptions {
  /** For the program's standard input. */
  input: Uint8Array | string;
  /** The program is stopped when it writes more. */
  maxOutputBytes: number;
  ctx: Pick<Context, 'signal' | 'log'>;
}

/**
 * What the program wrote to its standard output. There is no shell: arguments arrive as they are.
 *
 * @throws NonRetryableError if it exits with another code than 0, or writes too much: with the same
 * input it will do so again. An ordinary Error if it could not be started or something killed it.
 */
export async function runProgram(
  program: string,
  args: readonly string[],
  { input, maxOutputBytes, ctx: { signal, log } }: ProgramOptions,
): Promise<Buffer> {
  signal.throwIfAborted();
  const child = spawn(program, args, { stdio: 'pipe' });
  const stop = () => {
    child.kill('SIGTERM');
    setTimeout(() => child.kill('SIGKILL'), KILL_AFTER_MS).unref();
  };
  signal.addEventListener('abort', stop, { once: true });

  const output: Buffer[] = [];
  let outputBytes = 0;
  child.stdout.on('data', (piece: Buffer) => {
    outputBytes += piece.length;
    if (outputBytes <= maxOutputBytes) output.push(piece);
    else stop();
  });
  let lastWords = '';
  createInterface({ input: child.stderr }).on('line', (line) => {
    if (line.trim() === '') return;
    lastWords = line;
    log.warn({ program }, line);
  });
  // A program may end without having read all of its input; its exit code says whether that is bad.
  child.stdin.on('error', () => {});
  child.stdin.end(input);

  try {
    const [exitCode, killedBy] = await once(child, 'close');
    signal.throwIfAborted();
    if (outputBytes > maxOutputBytes) {
      throw new NonRetryableError(`${program} wrote more than ${maxOutputBytes} bytes`);
    }
    if (killedBy !== null) throw new Error(`${program} was killed by ${killedBy}`);
    if (exitCode !== 0) {
      throw new NonRetryableError(`${program} exited with ${exitCode}: ${lastWords}`);
    }
    return Buffer.concat(output);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
