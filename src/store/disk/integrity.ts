// Checks a database for damaged pages and lost files of payloads, in a separate process, because a check cannot be
// interrupted.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, statSync } from 'node:fs';
import { constants, setPriority } from 'node:os';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { iterateLines } from '../../base/text/line-reader.ts';
import { isPlainObject } from '../../wire/json.ts';

const entry = fileURLToPath(
  new URL(`./integrity-process${extname(import.meta.url)}`, import.meta.url),
);

const PROGRESS_EVERY_MS = 1_000;

export interface IntegrityOptions {
  path: string;
  /** `quick`: pages and rows; `full`: also whether each index has the rows of its table. */
  depth: 'quick' | 'full';
  /** Aborts the check. */
  signal: AbortSignal;
  /** Called every second with the bytes read and the total; only on Linux. */
  onProgress?: (readBytes: number, totalBytes: number) => void;
}

export interface IntegrityResult {
  /** Damage that SQLite found, and lost files: at most about a hundred lines of each. */
  problems: string[];
  /** False if the check was aborted. */
  isComplete: boolean;
}

/** @throws Error with the reason why the file cannot be checked */
export async function checkIntegrity(options: IntegrityOptions): Promise<IntegrityResult> {
  const { depth, onProgress, path, signal } = options;
  if (signal.aborted) return { problems: [], isComplete: false };
  const child = spawn(process.execPath, [entry, path, depth], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const ended = once(child, 'close');
  // The spawn error may arrive before anybody awaits the end.
  ended.catch(() => {});
  const kill = () => child.kill('SIGKILL');
  signal.addEventListener('abort', kill, { once: true });
  const progress = setInterval(() => {
    const bytes = readBytesRead(child.pid);
    if (bytes !== undefined) onProgress?.(bytes, measure(path));
  }, PROGRESS_EVERY_MS);
  try {
    yieldTo(child.pid);
    if (child.pid === undefined) await ended;
    const problems: string[] = [];
    for await (const line of iterateLines(child.stdout)) {
      const found: unknown = JSON.parse(line);
      if (isPlainObject(found)) throw new Error(String(found['failure']));
      problems.push(String(found));
    }
    const [code] = await ended;
    return { problems, isComplete: code === 0 };
  } finally {
    clearInterval(progress);
    signal.removeEventListener('abort', kill);
    kill();
  }
}

/** The platform's own work has priority. */
function yieldTo(pid: number | undefined): void {
  try {
    if (pid !== undefined) setPriority(pid, constants.priority.PRIORITY_LOW);
  } catch {
    // The process has ended, or this user may not set priorities: the check then runs at normal
    // priority.
  }
}

function measure(path: string): number {
  return [path, `${path}-wal`]
    .map((file) => statSync(file, { throwIfNoEntry: false })?.size ?? 0)
    .reduce((sum, size) => sum + size, 0);
}

function readBytesRead(pid: number | undefined): number | undefined {
  try {
    const found = /^rchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'));
    return found ? Number(found[1]) : undefined;
  } catch {
    return undefined;
  }
}
