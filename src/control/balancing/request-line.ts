// The requests of one load-balancing endpoint: chooses the worker of the next request, and queues
// requests while no worker is free. api/proxy sends them.
import type { Dispatcher } from 'undici';
import type { Clock } from '../../base/clock.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { WorkLoad } from '../scaling/worker-list.ts';
import type { BalancedWorker } from './balanced-worker.ts';

/** Retry-After if too many requests wait, or if no worker became ready, ms. */
const RETRY_MS = 1_000;

/** Made once: nobody reads it, and thousands of clients may go away at once. */
const CLIENT_GONE = new ProblemError('unavailable', 'The client has gone.');

export interface RequestLineOptions {
  clock: Clock;
  /** How long a request waits for a worker, ms. */
  waitMs: number;
  /**
   * Called when there are more requests than before, or none left, or a draining worker has none.
   */
  onLoad: () => void;
}

export interface EnterOptions {
  /** Most waiting requests, this one included. */
  maxWaiting: number;
  /** Aborts when the client disconnects. */
  signal: AbortSignal;
}

/** A request that a worker serves. */
export interface WorkerCall {
  readonly podId: string;
  readonly dispatcher: Dispatcher;
  /** Nothing of the request has reached the worker. */
  noteUnreachable(): void;
  /** The request is over. May be called again. */
  end(): void;
}

interface WaitingRequest {
  admit(worker: BalancedWorker): void;
  refuse(problem: ProblemError): void;
}

export class RequestLine {
  readonly #options: RequestLineOptions;
  readonly #workers = new Set<BalancedWorker>();
  /** In order of arrival. */
  readonly #waiting = new Set<WaitingRequest>();
  #open = 0;
  #calls = 0;
  /** Number of requests at the last call of `onLoad`. */
  #announced = 0;

  constructor(options: RequestLineOptions) {
    this.#options = options;
  }

  add(worker: BalancedWorker): void {
    this.#workers.add(worker);
  }

  remove(worker: BalancedWorker): void {
    this.#workers.delete(worker);
  }

  get isEmpty(): boolean {
    return this.#workers.size === 0 && this.#waiting.size === 0 && this.#open === 0;
  }

  /** @throws ProblemError `queue_full`, or `unavailable` if no worker became ready in time */
  async enter({ maxWaiting, signal }: EnterOptions): Promise<WorkerCall> {
    const worker = this.#findLeastBusy();
    if (worker) return this.#begin(worker);
    if (this.#waiting.size < maxWaiting) return this.#wait(signal);
    const detail = `${this.#waiting.size} requests wait for a worker already`;
    throw new ProblemError('queue_full', detail, { retryAfterMs: RETRY_MS });
  }

  /** Call it when a worker may have become free. */
  serveWaiting(): void {
    for (const waiting of this.#waiting) {
      const worker = this.#findLeastBusy();
      if (!worker) return;
      waiting.admit(worker);
    }
  }

  refuseWaiting(problem: ProblemError): void {
    for (const waiting of this.#waiting) waiting.refuse(problem);
  }

  load(): WorkLoad {
    const ready = [...this.#workers].filter(({ isReady }) => isReady);
    return {
      waiting: 0,
      running: this.#requests,
      oldestQueuedAt: null,
      workers: ready.map(({ isDraining, open, taken, target }) => {
        return { podId: target.podId, jobs: open, taken, draining: isDraining };
      }),
    };
  }

  get #requests(): number {
    return this.#open + this.#waiting.size;
  }

  /** Among equally busy workers, the one whose last request is oldest. */
  #findLeastBusy(): BalancedWorker | undefined {
    let best: BalancedWorker | undefined;
    for (const worker of this.#workers) {
      if (!worker.takesMore) continue;
      const { lastCall, open } = worker;
      const isBetter =
        !best || open < best.open || (open === best.open && lastCall < best.lastCall);
      if (isBetter) best = worker;
    }
    return best;
  }

  #begin(worker: BalancedWorker): WorkerCall {
    worker.open++;
    worker.taken++;
    worker.lastCall = ++this.#calls;
    this.#open++;
    this.#announce();
    let isOver = false;
    return {
      podId: worker.target.podId,
      dispatcher: worker.pool,
      noteUnreachable: () => worker.noteUnreachable(),
      end: () => {
        if (isOver) return;
        isOver = true;
        this.#end(worker);
      },
    };
  }

  #end(worker: BalancedWorker): void {
    worker.open--;
    this.#open--;
    if (this.#waiting.size > 0) this.serveWaiting();
    if (worker.isDraining && worker.open === 0) this.#options.onLoad();
    this.#announce();
  }

  #wait(signal: AbortSignal): Promise<WorkerCall> {
    const { clock, waitMs } = this.#options;
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#waiting.delete(waiting);
        cancel();
        signal.removeEventListener('abort', onGone);
      };
      const waiting: WaitingRequest = {
        admit: (worker) => {
          leave();
          resolve(this.#begin(worker));
        },
        refuse: (problem) => {
          leave();
          reject(problem);
          this.#announce();
        },
      };
      const onGone = () => waiting.refuse(CLIENT_GONE);
      const cancel = clock.after(waitMs, () => waiting.refuse(this.#explainWait()));
      signal.addEventListener('abort', onGone, { once: true });
      this.#waiting.add(waiting);
      this.#announce();
    });
  }

  #explainWait(): ProblemError {
    const [last] = [...this.#workers].filter(({ isReady }) => !isReady).slice(-1);
    const seconds = this.#options.waitMs / 1_000;
    const detail = `no worker was ready within ${seconds} s${last ? `: ${last.describe()}` : ''}`;
    return new ProblemError('unavailable', detail, { retryAfterMs: RETRY_MS });
  }

  #announce(): void {
    const requests = this.#requests;
    if (requests <= this.#announced && requests > 0) return;
    this.#announced = requests;
    this.#options.onLoad();
  }
}
