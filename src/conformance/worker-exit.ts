// How the checks end a worker under test, and how they learn of its exit.
import { demandSame, NotApplicable, within } from './checks.ts';

export interface WorkerExit {
  /** Sends SIGTERM to the worker, or asks the user to do so. */
  terminate: () => void;
  /** Exit code of the worker's process, if known; null if a signal ended it. */
  exitCode?: Promise<number | null>;
  /** Starts a second worker, if this command starts the workers. */
  startAnother?: () => Required<Pick<WorkerExit, 'terminate' | 'exitCode'>>;
}

/** @throws Deviation, NotApplicable */
export async function demandCleanExit({ exitCode }: WorkerExit, ms: number): Promise<void> {
  if (!exitCode) throw new NotApplicable('this command did not start the worker');
  const code = await within(ms, "the worker's process did not exit", exitCode);
  demandSame(code, 0, 'the exit code');
}
