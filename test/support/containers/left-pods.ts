// Pods on the process engine go on when their platform ends: a test that started some ends them too.
import { readdirSync, readFileSync } from 'node:fs';
import { killTree } from '../process-tree.ts';

/** Kills what was started for a run whose record is in the folder, with all beneath it. */
export function killPods(folder: string): void {
  for (const pid of listPods(folder)) killTree(pid);
}

function listPods(folder: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => readArguments(pid)[2]?.startsWith(`${folder}/`))
    .map(Number);
}

/** None of one that has ended. */
function readArguments(pid: string): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  } catch {
    return [];
  }
}
