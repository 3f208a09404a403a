// How a worker under test is made to leave, and what is known of its going.
import { demandSame, NotApplicable, within } from './checks.ts';

export interface Departure {
  /** Sends the worker its SIGTERM, or has somebody do that. */
  terminate: () => void;
  /** Exit code of the worker's process, where that is known; null if a signal ended it. */
  exitCode?: Promise<number | null>;
  /** A second worker beside the first one, where workers are started here. */
  startAnother?: () => Required<Pick<Departure, 'terminate' | 'exitCode'>>;
}

/** @throws Deviation, NotApplicable */
export async function demandCleanExit({ exitCode }: Departure, ms: number): Promise<void> {
  if (!exitCode) throw new NotApplicable('the worker was not started by this command');
  const code = await within(ms, 'its process did not end', exitCode);
  demandSame(code, 0, 'the exit code');
}
