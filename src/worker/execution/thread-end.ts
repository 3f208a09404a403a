// Finds out why a handler thread ended. Examines a thread that is about to be killed from outside, because it may not
// respond: its JavaScript stack, its heap, its utilization. Turns the death of a thread into the error of the attempt
// that caused it; lane-state.ts decides which attempt that was.
import type { Session } from 'node:inspector';
import type { EventLoopUtilization } from 'node:perf_hooks';
import { setTimeout as wait } from 'node:timers/promises';
import type { Worker } from 'node:worker_threads';
import { roundShare } from '../../handler/attempt/stop.ts';
import { describeThrown } from '../../handler/thrown.ts';
import type { AttemptError, StuckPlace } from '../../wire/job/attempt.ts';
import type { ThreadEnding } from './thread-messages.ts';

/** Long enough to distinguish a waiting loop from a blocked one. */
const WATCH_MS = 20;
/**
 * A thread must run on for this long after the debugger was attached. One that ends earlier leaks
 * about 3 MB of process memory (seen with Node 24.21).
 */
const RELEASE_MS = 100;
const MAX_FRAMES = 40;
const MAX_STACK_CHARS = 8_000;

const MB = 1_048_576;

export type StuckThread = Omit<StuckPlace, 'chunks' | 'lastChunkMs'>;

interface ExaminationOptions {
  /** Start of the utilization measurement. */
  since: EventLoopUtilization;
  /**
   * Limit for the stack; detaching from a thread that responded takes 100 ms more. Pausing a thread
   * takes about 30 ms; one in native code uses the whole limit.
   */
  limitMs: number;
}

/** Never rejects. The thread must not be used afterwards. */
export async function examineThread(
  thread: Worker,
  { since, limitMs }: ExaminationOptions,
): Promise<StuckThread> {
  const { eventLoopUtilization } = thread.performance;
  let heapUsedBytes: number | undefined;
  thread.getHeapStatistics().then(
    (heap) => {
      heapUsedBytes = heap.used_heap_size;
    },
    () => undefined,
  );
  const before = eventLoopUtilization();
  await wait(Math.min(WATCH_MS, limitMs));
  const isBusy = eventLoopUtilization(before).utilization > 0.5;
  const stack = isBusy ? await readStack(thread.threadId, limitMs - WATCH_MS) : undefined;
  const busyState = stack === undefined ? 'unreachable' : 'running';
  return {
    state: isBusy ? busyState : 'waiting',
    ...(stack !== undefined && { stack }),
    eventLoopUtilization: roundShare(eventLoopUtilization(since).utilization),
    ...(heapUsedBytes !== undefined && { heapUsedBytes }),
  };
}

interface ThreadDeath {
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

/** Undefined if the thread could not be paused in time, or the runtime has no inspector. */
async function readStack(threadId: number, limitMs: number): Promise<string | undefined> {
  const inspector = await import('node:inspector').catch(() => undefined);
  if (!inspector) return undefined;
  const session = new inspector.Session();
  const tooLate = new AbortController();
  const send = (sessionId: string, method: string) => {
    const message = JSON.stringify({ id: 1, method });
    session.post('NodeWorker.sendMessageToWorker', { sessionId, message });
  };
  let attached: string | undefined;
  let isReached = false;
  const onReached = () => {
    isReached = true;
  };
  const onAttached = (sessionId: string) => {
    attached = sessionId;
    send(sessionId, 'Debugger.enable');
    send(sessionId, 'Debugger.pause');
  };
  try {
    session.connect();
    const pause = awaitPause({ session, threadId, onAttached, onReached });
    const patience = wait(Math.max(0, limitMs), undefined, { signal: tooLate.signal });
    return await Promise.race([pause, patience]);
  } catch {
    return undefined;
  } finally {
    tooLate.abort();
    // A paused thread cannot be terminated, and it may still pause after this gave up.
    for (const method of ['Debugger.resume', 'Debugger.disable']) {
      if (attached !== undefined) send(attached, method);
    }
    session.disconnect();
    if (isReached) await wait(RELEASE_MS);
  }
}

interface CallFrame {
  functionName: string;
  location: { scriptId: string; lineNumber: number; columnNumber: number };
}

/** The part of the inspector's messages that is read here. */
type FromDebugger =
  | { method: 'Debugger.scriptParsed'; params: { scriptId: string; url: string } }
  | { method: 'Debugger.paused'; params: { callFrames: CallFrame[] } }
  | { method?: undefined };

interface PauseOptions {
  session: Session;
  threadId: number;
  onAttached: (sessionId: string) => void;
  /** The debugger is attached. */
  onReached: () => void;
}

/** Resolves with the stack. A thread that waits, or is in native code, does not pause. */
function awaitPause(options: PauseOptions): Promise<string> {
  const { session, threadId, onAttached, onReached } = options;
  const urls = new Map<string, string>();
  let attached: string | undefined;
  return new Promise((resolve, reject) => {
    session.on('NodeWorker.attachedToWorker', ({ params: { sessionId, workerInfo } }) => {
      // `workerId` counts the threads of this inspector session; only the title has the thread's
      // own ID.
      if (!workerInfo.title.startsWith(`[worker ${threadId}]`)) return;
      attached = sessionId;
      onAttached(sessionId);
    });
    session.on('NodeWorker.receivedMessageFromWorker', ({ params }) => {
      if (params.sessionId !== attached) return;
      onReached();
      const message: FromDebugger = JSON.parse(params.message);
      if (message.method === 'Debugger.scriptParsed') {
        urls.set(message.params.scriptId, message.params.url);
      } else if (message.method === 'Debugger.paused') {
        resolve(writeStack(message.params.callFrames, urls));
      }
    });
    session.post('NodeWorker.enable', { waitForDebuggerOnStart: false }, (error) => {
      if (error) reject(error);
    });
  });
}

/** In the format of V8's error stacks. */
function writeStack(frames: CallFrame[], urls: ReadonlyMap<string, string>): string {
  const lines = frames.slice(0, MAX_FRAMES).map(({ functionName, location }) => {
    const { scriptId, lineNumber, columnNumber } = location;
    const place = `${urls.get(scriptId) || '<anonymous>'}:${lineNumber + 1}:${columnNumber + 1}`;
    return functionName === '' ? `    at ${place}` : `    at ${functionName} (${place})`;
  });
  return lines.join('\n').slice(0, MAX_STACK_CHARS);
}
