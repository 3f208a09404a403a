// Ends processes that handlers started and left running after their worker process exits: they would
// hold device memory or ports. A variable that all children inherit identifies them.
import { randomUUID } from 'node:crypto';
import { findByVariable, readProcesses, signalProcess } from '../base/process-table.ts';

/** In the environment of a worker process and of all that its handlers start. */
export const TAG_VARIABLE = 'MILLRACE_PROCESS_TAG';

/** A process that forks while it is looked for is found by the next pass. */
const MAX_PASSES = 5;

export function createTag(): string {
  return randomUUID();
}

/**
 * Kills every process with that tag but this one. Processes of other users, or whose environment was
 * replaced, are not found.
 */
export function endLeftProcesses(tag: string): void {
  // There is no /proc on other systems.
  if (process.platform !== 'linux') return;
  for (let pass = 0; pass < MAX_PASSES; pass += 1) {
    const { found } = findByVariable(TAG_VARIABLE, tag, readProcesses());
    const left = found.filter(({ pid }) => pid !== process.pid);
    if (left.length === 0) return;
    for (const each of left) signalProcess(each, 'SIGKILL');
  }
}
