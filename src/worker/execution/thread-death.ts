// Turns the death of a handler thread into the error of the attempt that caused it. lane-jobs.ts
// decides which attempt that was.
import { describeThrown } from '../../handler/thrown.ts';
import type { AttemptError } from '../../wire/job/job.ts';
import type { ThreadEnding } from './thread-messages.ts';

const MB = 1_048_576;

export interface ThreadDeath {
  /** Error from piscina. */
  error: unknown;
  ending: ThreadEnding | undefined;
  /** Undefined if the thread never started. */
  heapLimitBytes: number | undefined;
}

export function describeDeath({ error, ending, heapLimitBytes }: ThreadDeath): AttemptError {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === 'ERR_WORKER_OUT_OF_MEMORY') {
    const limit =
      heapLimitBytes === undefined ? '' : ` (its limit is ${Math.round(heapLimitBytes / MB)} MB)`;
    return { code: 'out_of_memory', message: `the handler's thread ran out of memory${limit}` };
  }
  if (ending?.because === 'exit') {
    const message = `the handler ended its thread with process.exit(${ending.code})`;
    return { code: 'handler_exited', message };
  }
  const { message, ...rest } =
    ending?.thrown ?? describeThrown(error ?? 'the thread ended without a reason');
  switch (ending?.because) {
    case 'uncaught':
      return { code: 'uncaught_exception', message: `uncaught exception: ${message}`, ...rest };
    case 'rejection':
      return {
        code: 'unhandled_rejection',
        message: `unhandled promise rejection: ${message}`,
        ...rest,
      };
    case undefined:
      return { code: 'thread_crashed', message: `the handler's thread died: ${message}`, ...rest };
  }
}
