// Finds the descendants of a process, such as a supervisor's workers.
import { readdirSync, readFileSync } from 'node:fs';

/** Of all threads of the process, the processes that they started and that live; in no order. */
export function listChildren(pid: number): number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
      readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8')
        .split(' ')
        .filter((word) => word !== '')
        .map(Number),
    );
  } catch {
    // The process has ended.
    return [];
  }
}

/** Kills the process and all its descendants before any of them can react. */
export function killTree(pid: number): void {
  const children = listChildren(pid);
  kill(pid);
  for (const child of children) killTree(child);
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has ended.
  }
}
