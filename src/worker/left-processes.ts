// Ends processes that handlers started and left running after their worker process exits: they would
// hold device memory or ports. A variable that all children inherit identifies them.
import { findByVariable, readProcesses, signalProcess } from '../base/process/process-table.ts';
import { createRandomId } from '../base/random-id.ts';

/** Environment variable of a worker process and of all processes that its handlers start. */
export const TAG_VARIABLE = 'MILLRACE_PROCESS_TAG';

/** A process that forks during the search is found by the next pass. */
const MAX_PASSES = 5;

export function createTag(): string {
  return createRandomId();
}

/**
 * Kills every process with that tag except this one. Cannot find processes of other users or with a
 * replaced environment.
 */
export function endLeftProcesses(tag: string): void {
  // Other systems have no /proc.
  if (process.platform !== 'linux') return;
  for (let pass = 0; pass < MAX_PASSES; pass += 1) {
    const { found } = findByVariable(TAG_VARIABLE, tag, readProcesses());
    const left = found.filter(({ pid }) => pid !== process.pid);
    if (left.length === 0) return;
    for (const each of left) signalProcess(each, 'SIGKILL');
  }
}
