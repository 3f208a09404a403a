// The channel between a worker process and its parent, a supervisor or `millrace dev`: its messages, and the worker's
// end, which reports the worker's state and carries out commands. Both have the same version, so a message is identified by its type alone.
import type { BreakerState } from '../circuit-breaker.ts';
import type { GpuFigures } from '../gpu/gpu-accounts.ts';
import type { WorkerMetrics } from '../health/worker-metrics.ts';
import type { Worker, WorkerHealth } from '../worker.ts';
import { NO_OBSERVER, type WorkerObserver } from '../worker-options.ts';

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
  /** Its models have left the GPU, which may now be another worker's; or it is its own again. */
  | { type: 'parked'; isParked: boolean }
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

const FROM_WORKER: Readonly<Record<FromWorker['type'], true>> = {
  identity: true,
  ready: true,
  beat: true,
  completed: true,
  breaker: true,
  solo: true,
  parked: true,
  failed: true,
  recycling: true,
  dismissed: true,
  exiting: true,
  answer: true,
};
const TO_WORKER: Readonly<Record<ToWorker['type'], true>> = {
  recycle: true,
  release: true,
  gpu: true,
  ask: true,
};

export function isFromWorker(value: unknown): value is FromWorker {
  return hasType(value) && Object.hasOwn(FROM_WORKER, value.type);
}

function isToWorker(value: unknown): value is ToWorker {
  return hasType(value) && Object.hasOwn(TO_WORKER, value.type);
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

interface SupervisedWorkerOptions {
  channel: ParentChannel;
  worker: Worker;
  workerId: string;
  metrics: WorkerMetrics | undefined;
}

export class SupervisedWorker {
  readonly #options: SupervisedWorkerOptions;
  /** The parent or a signal has asked this process to exit. */
  isExiting = false;

  constructor(options: SupervisedWorkerOptions) {
    this.#options = options;
    options.channel.listen((message) => this.#receive(message));
  }

  reportReady(): void {
    this.#options.channel.send({ type: 'ready' });
    this.#options.channel.beat(() => this.#options.worker.health());
  }

  /** Includes the last count: a process that ran jobs is replaced without a wait. */
  reportRecycling(reason: string): void {
    const { ended, running } = this.#options.worker.health();
    this.#options.channel.send({ type: 'beat', running, ended });
    this.#options.channel.send({ type: 'recycling', reason });
  }

  /** The platform has drained the worker. */
  reportDismissed(): void {
    this.#options.channel.send({ type: 'dismissed' });
  }

  /** The last message: from now on the process only exits, with this code. */
  reportExiting(code: number): void {
    this.#options.channel.send({ type: 'exiting', code });
  }

  beginExit(how: () => Promise<unknown>): void {
    this.isExiting = true;
    void how();
  }

  #receive(message: ToWorker): void {
    switch (message.type) {
      case 'recycle':
        this.#options.worker.recycle(message.reason);
        return;
      case 'release':
        this.beginExit(() => this.#options.worker.stop());
        return;
      case 'gpu':
        this.#options.worker.noteGpuFigures(message.figures);
        return;
      case 'ask':
        void this.#answer(message.number);
    }
  }

  async #answer(number: number): Promise<void> {
    const health = this.#options.worker.health();
    const metrics = await this.#options.metrics?.export(health, this.#options.workerId);
    this.#options.channel.send({ type: 'answer', number, health, metrics });
  }
}

/** Also tells the supervisor whether the job or the machine is bad. */
export function observeForParent(
  channel: ParentChannel,
  observer: WorkerObserver = NO_OBSERVER,
): WorkerObserver {
  let hasCompleted = false;
  return {
    ...observer,
    attemptBegan(lease) {
      if (lease.solo) channel.send({ type: 'solo', isRunning: true });
      observer.attemptBegan(lease);
    },
    attemptEnded(lease, outcome, usage) {
      if (lease.solo) channel.send({ type: 'solo', isRunning: false });
      if (!hasCompleted && outcome.kind === 'completed') {
        hasCompleted = true;
        channel.send({ type: 'completed' });
      }
      observer.attemptEnded(lease, outcome, usage);
    },
    parkingChanged(state) {
      channel.send({ type: 'parked', isParked: state === 'parked' || state === 'suspended' });
      observer.parkingChanged(state);
    },
    breakerChanged(state) {
      channel.send({ type: 'breaker', state });
      observer.breakerChanged(state);
    },
  };
}
