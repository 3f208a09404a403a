// `millrace conformance` as a process, and what it says as a value.
import { fileURLToPath } from 'node:url';
import { fixture, Process } from '../processes.ts';

/** Leases run out in real time, and half-open connections are found when their waits end. */
export const LIMIT_MS = 170_000;
const BIN = fileURLToPath(new URL('../../../bin/millrace.js', import.meta.url));
/** The command of a worker that does one thing wrong, if an oddity is named. */
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
  /** The rules that do not hold, or could not be looked at. */
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
  // Our own command's output.
  const { checks, holds } = JSON.parse(text) as { checks: Row[]; holds: boolean };
  const failing = checks.filter(({ result }) => result !== 'holds').map(({ rule }) => rule);
  return { code, holds, failing, count: checks.length };
}
