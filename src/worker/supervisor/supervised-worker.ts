// Connects a worker with its supervisor: reports its state and carries out commands.
import type { WorkerMetrics } from '../health/worker-metrics.ts';
import type { Worker } from '../worker.ts';
import { NO_OBSERVER, type WorkerObserver } from '../worker-observer.ts';
import type { ParentChannel, ToWorker } from './parent-channel.ts';

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
    breakerChanged(state) {
      channel.send({ type: 'breaker', state });
      observer.breakerChanged(state);
    },
  };
}
