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

/** Kills the process and all its descendants before any of them can react. @returns those processes */
export function killTree(pid: number): number[] {
  const children = listChildren(pid);
  kill(pid);
  return [pid, ...children.flatMap(killTree)];
}

/** Whether the process is there and has not given back its memory: a killed one may take a while on a busy machine. */
export function holdsMemory(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has ended.
  }
}
