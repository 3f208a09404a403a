// Runs `millrace conformance` as a process and returns its result as a value.
import { fileURLToPath } from 'node:url';
import { fixture, Process } from '../processes.ts';

/** Leases expire in real time, and the tests detect half-open connections when waits end. */
export const LIMIT_MS = 170_000;
const BIN = fileURLToPath(new URL('../../../bin/millrace.js', import.meta.url));
/** The command of a third-party worker; an additional argument names its fault. */
export const ODD_WORKER = [
  process.execPath,
  fileURLToPath(new URL('../workers/odd-worker.js', import.meta.url)),
];
export const ODD_RUNPOD_WORKER = [
  process.execPath,
  fileURLToPath(new URL('../workers/odd-runpod-worker.js', import.meta.url)),
];
export const OWN_WORKER = [process.execPath, BIN, 'worker', fixture('conformance.ts')];

export interface Verdict {
  code: number | null;
  holds: boolean;
  /** Rules that failed or could not be checked. */
  failing: string[];
  count: number;
}

interface Row {
  result: string;
  rule: string;
}

export async function judgeConformance(...args: string[]): Promise<Verdict> {
  const command = new Process(['conformance', '--json', ...args]);
  const code = await command.exited;
  const text = /^\{\n.*^\}$/ms.exec(command.output)?.[0];
  if (text === undefined) throw new Error(command.output);
  // The output of our own command.
  const { checks, holds } = JSON.parse(text) as { checks: Row[]; holds: boolean };
  const failing = checks.filter(({ result }) => result !== 'holds').map(({ rule }) => rule);
  return { code, holds, failing, count: checks.length };
}
