// Runs a program until it exits or a deadline passes, and returns its output.
import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { delimiter, isAbsolute, join, sep } from 'node:path';
import type { Clock } from '../../base/clock.ts';

const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;

export type ProgramEnd =
  | { kind: 'exited'; code: number; stdout: string; stderr: string }
  /** Ended by a foreign signal, or by more than 64 MB of output. */
  | { kind: 'broken'; reason: string }
  | { kind: 'missing' }
  | { kind: 'unstartable'; reason: string }
  | { kind: 'timeout' };

interface ProgramRun {
  file: string;
  args: readonly string[];
  timeoutMs: number;
  clock: Clock;
  /** Ends the program like the deadline. */
  signal?: AbortSignal | undefined;
}

/**
 * Never rejects. After `timeoutMs`, or on the signal, the program is killed and not awaited: a
 * program stuck in the driver does not even die of SIGKILL.
 */
export async function runProgram(run: ProgramRun): Promise<ProgramEnd> {
  try {
    return await startProgram(run);
  } catch (error) {
    // Without free memory spawn throws instead of calling back.
    return { kind: 'unstartable', reason: error instanceof Error ? error.message : String(error) };
  }
}

function startProgram(run: ProgramRun): Promise<ProgramEnd> {
  const { file, args, timeoutMs, clock, signal } = run;
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve({ kind: 'broken', reason: 'cancelled' });
    const child = execFile(
      file,
      [...args],
      { maxBuffer: MAX_OUTPUT_BYTES, windowsHide: true },
      (error, stdout, stderr) => {
        cancel();
        signal?.removeEventListener('abort', abandon);
        if (!error) resolve({ kind: 'exited', code: 0, stdout, stderr });
        else if (typeof error.code === 'number') {
          resolve({ kind: 'exited', code: error.code, stdout, stderr });
        } else resolve(explainFailure(error));
      },
    );
    const giveUp = (end: ProgramEnd) => {
      cancel();
      signal?.removeEventListener('abort', abandon);
      child.kill('SIGKILL');
      child.stdout?.destroy();
      child.stderr?.destroy();
      child.unref();
      resolve(end);
    };
    const cancel = clock.after(timeoutMs, () => giveUp({ kind: 'timeout' }));
    const abandon = () => giveUp({ kind: 'broken', reason: 'cancelled' });
    signal?.addEventListener('abort', abandon, { once: true });
  });
}

function explainFailure(error: Error): ProgramEnd {
  const code = 'code' in error ? error.code : undefined;
  if (code === 'ENOENT') return { kind: 'missing' };
  const wasStarted =
    code === null || code === undefined || code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER';
  if (!wasStarted) return { kind: 'unstartable', reason: error.message };
  const signal = 'signal' in error && error.signal ? `ended by ${error.signal}` : error.message;
  return { kind: 'broken', reason: signal };
}

/** Finds the file for `name` on a PATH; undefined if there is none. Starts nothing. */
export async function findProgram(name: string, searchPath: string): Promise<string | undefined> {
  const isPath = isAbsolute(name) || name.includes(sep);
  const folders = searchPath.split(delimiter).filter((folder) => folder !== '');
  const candidates = isPath ? [name] : folders.map((folder) => join(folder, name));
  for (const candidate of candidates) {
    if (await isExecutable(candidate)) return candidate;
  }
  return undefined;
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
