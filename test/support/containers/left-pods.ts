// Ends pods of the process engine, which continue when their platform ends.
import { readdirSync, readFileSync } from 'node:fs';
import { killTree } from '../process-tree.ts';

/** Kills the processes of each run whose record is in the folder. */
export function killPods(folder: string): void {
  for (const pid of listPods(folder)) killTree(pid);
}

function listPods(folder: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => readArguments(pid)[2]?.startsWith(`${folder}/`))
    .map(Number);
}

/** Empty if the process has ended. */
function readArguments(pid: string): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  } catch {
    return [];
  }
}
