// Separates a test run from the rest of the machine, and detects what it leaves behind. Each run has its own folder for
// temporary files and marks its processes with a variable; the run fails if either is left at the end.
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setTimeout } from 'node:timers/promises';

const MARK = 'MILLRACE_TEST_RUN';
/** Beside Vite's. Not in the run's folder: Vitest's workers write to it after the folder was removed. */
const COMPILE_CACHE = join(import.meta.dirname, '../../node_modules/.cache/node-compile-cache');
/** Time that ending processes get, in polls of 100 ms. */
const POLLS = 300;

let folder: string | undefined;

/** Runs once, before the first project: all test processes inherit the variables. */
export function setup(): void {
  if (folder !== undefined) return;
  // Those of the caller's shell, such as a key: tests set their own.
  for (const name of Object.keys(process.env)) {
    if (name.startsWith('MILLRACE_')) delete process.env[name];
  }
  folder = mkdtempSync(join(tmpdir(), 'mr-'));
  // Pods run as another user.
  chmodSync(folder, 0o1777);
  process.env['TMPDIR'] = folder;
  // Also for processes with a TMPDIR of their own, so that not each of them compiles everything anew.
  process.env['NODE_COMPILE_CACHE'] = COMPILE_CACHE;
  process.env[MARK] = basename(folder);
}

/** @throws Error that names what was left */
export async function teardown(): Promise<void> {
  if (folder === undefined) return;
  const home = folder;
  folder = undefined;
  let left: string[] = [];
  for (let poll = 0; poll < POLLS; poll++) {
    left = listLeftovers(home);
    if (left.length === 0) break;
    await setTimeout(100);
  }
  rmSync(home, { recursive: true, force: true });
  if (left.length > 0) throw new Error(`The tests left behind:\n${left.join('\n')}`);
}

function listLeftovers(home: string): string[] {
  const processes = readdirSync('/proc').filter((name) => /^\d+$/.test(name) && isLeft(name));
  const folders = readdirSync(home).filter((name) => !isCache(name));
  return [
    ...processes.map((pid) => `process ${pid}: ${readProc(pid, 'cmdline').replaceAll('\0', ' ')}`),
    ...folders.map((name) => `folder ${name}`),
  ];
}

/** Vitest keeps its own from run to run. */
function isCache(name: string): boolean {
  return name.startsWith('vitest');
}

function isLeft(pid: string): boolean {
  if (pid === String(process.pid)) return false;
  const isMarked = readProc(pid, 'environ').split('\0').includes(`${MARK}=${process.env[MARK]}`);
  // Vitest's own processes end after this one, and so does the compiler of its sources.
  return isMarked && !/vitest|esbuild|rolldown/.test(readProc(pid, 'cmdline'));
}

/** Empty if the process has ended or belongs to another user. */
function readProc(pid: string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'latin1');
  } catch {
    return '';
  }
}
