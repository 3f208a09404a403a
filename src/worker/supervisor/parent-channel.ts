// The channel between a worker process and its parent, a supervisor or `millrace dev`: its messages, and the worker's
// end. Both have the same version, so a message is identified by its type alone.
import type { BreakerState } from '../circuit-breaker.ts';
import type { GpuFigures } from '../gpu/usage-meter.ts';
import type { WorkerHealth } from '../worker.ts';

const BEAT_MS = 1_000;

export type FromWorker =
  /** Sent before the first call to the platform. */
  | { type: 'identity'; workerId: string; incarnation: number }
  /** The worker takes jobs. */
  | { type: 'ready' }
  /** Sent every BEAT_MS: the event loop runs. `ended`: attempts since the start. */
  | { type: 'beat'; running: number; ended: number }
  /** The first attempt since the start has completed. */
  | { type: 'completed' }
  /** Breaker state, for the next process. */
  | { type: 'breaker'; state: BreakerState }
  /** A solo job has begun or ended: it may crash the process. */
  | { type: 'solo'; isRunning: boolean }
  /**
   * The worker cannot continue. `isFinal`: another process would fail too. `exitCode`: of the supervisor, if
   * it gives up for this reason.
   */
  | { type: 'failed'; reason: string; isFinal: boolean; exitCode: number }
  /** The worker exits so that a new process replaces it. */
  | { type: 'recycling'; reason: string }
  /** The platform drained the worker: it must not be replaced. */
  | { type: 'dismissed' }
  /** The last message: the worker has sent its bye and exits with `code`. */
  | { type: 'exiting'; code: number }
  | { type: 'answer'; number: number; health: WorkerHealth; metrics: unknown };

export type ToWorker =
  /** Exit when the running jobs have ended; a new process takes over. */
  | { type: 'recycle'; reason: string }
  /** Release the jobs and exit. */
  | { type: 'release' }
  /** Figures of its devices, a few milliseconds old. */
  | { type: 'gpu'; figures: GpuFigures }
  | { type: 'ask'; number: number };

const FROM_WORKER: ReadonlySet<string> = new Set<FromWorker['type']>([
  'identity',
  'ready',
  'beat',
  'completed',
  'breaker',
  'solo',
  'failed',
  'recycling',
  'dismissed',
  'exiting',
  'answer',
]);
const TO_WORKER: ReadonlySet<string> = new Set<ToWorker['type']>([
  'recycle',
  'release',
  'gpu',
  'ask',
]);

export function isFromWorker(value: unknown): value is FromWorker {
  return hasType(value) && FROM_WORKER.has(value.type);
}

function isToWorker(value: unknown): value is ToWorker {
  return hasType(value) && TO_WORKER.has(value.type);
}

function hasType(value: unknown): value is { type: string } {
  const isObject = typeof value === 'object' && value !== null && 'type' in value;
  return isObject && typeof value.type === 'string';
}

/** The worker's end. */
export interface ParentChannel {
  send(message: FromWorker): void;
  /** Reports from now on, at an interval, that the event loop runs. */
  beat(count: () => { running: number; ended: number }): void;
  /** Passes all messages, also earlier ones, to the listener. May be called once. */
  listen(listener: (message: ToWorker) => void): void;
  /** Lets the process exit. Resolves when all messages are sent. */
  close(): Promise<void>;
}

/** For a process without a supervisor; another parent's channel does not know these messages. */
export const NO_PARENT: ParentChannel = {
  send() {},
  beat() {},
  listen() {},
  close: async () => {},
};

export function openParentChannel(): ParentChannel {
  let timer: NodeJS.Timeout | undefined;
  let lastMessage: Promise<void> = Promise.resolve();
  let receive: (message: unknown) => void = () => {};
  const send = (message: FromWorker) => {
    // The death of a parent is detected elsewhere.
    if (!process.connected) return;
    lastMessage = new Promise((resolve) => {
      process.send?.(message, undefined, undefined, () => resolve());
    });
  };
  return {
    send,
    beat(count) {
      const sendBeat = () => {
        const { running, ended } = count();
        send({ type: 'beat', running, ended });
      };
      timer ??= setInterval(sendBeat, BEAT_MS);
      timer.unref();
    },
    listen(listener) {
      receive = (message) => {
        if (isToWorker(message)) listener(message);
      };
      // Node keeps messages until somebody listens.
      process.on('message', receive);
      // Listening would keep the process alive.
      process.channel?.unref();
    },
    async close() {
      clearInterval(timer);
      process.removeListener('message', receive);
      await lastMessage;
    },
  };
}
