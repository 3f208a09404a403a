// Balances requests of load-balancing endpoints: tracks their workers, assigns requests to them, queues requests while no
// worker is free, and reports the load to the fleet. api/proxy sends the requests.

import type { Dispatcher } from 'undici';
import type { Clock } from '../../base/clock.ts';
import { type Log, silentLog } from '../../base/log.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import type { WorkLoad, WorkView } from '../scaling/work-view.ts';
import {
  BalancedWorker,
  type Connector,
  type TargetSource,
  type WorkerTarget,
} from './balanced-worker.ts';

export interface BalancerOptions {
  targets: TargetSource;
  endpoints: Pick<Endpoints, 'find' | 'onChange'>;
  clock: Clock;
  /** Default: no log. */
  log?: Log;
  /** How long a request waits for a ready worker, ms. Default 120,000. */
  waitMs?: number;
  /** Connects to a worker on another machine. Default: its address can be reached from here. */
  connectorOf?: ((target: WorkerTarget) => Connector | undefined) | undefined;
  /** Most requests of a worker, open upgrades included. Default 1,000. */
  maxOpen?: number;
}

interface BalancedRequest {
  endpointId: string;
  /** Aborts when the client disconnects. */
  signal: AbortSignal;
}

/** Implements WorkView: requests count as jobs, and drained workers get no new ones. */
export class Balancer implements WorkView {
  readonly #options: BalancerOptions;
  readonly #lines = new Map<string, RequestLine>();
  /** By pod ID. */
  readonly #workers = new Map<string, BalancedWorker>();
  readonly #listeners = new Set<(endpointId: string) => void>();
  readonly #stopListening: (() => void)[];
  #isStopping = false;

  constructor(options: BalancerOptions) {
    this.#options = options;
    const { endpoints, targets } = options;
    for (const { podId } of targets.all()) this.#refresh(podId);
    this.#stopListening = [
      targets.onChange((podId) => this.#refresh(podId)),
      endpoints.onChange(({ id, kind }) => {
        if (kind === 'deleted') this.#drop(id);
      }),
    ];
  }

  /**
   * Resolves when a worker is ready for the request: at once, or after a wait that the fleet is
   * notified of. The caller must end the call. @throws ProblemError `not_found`, `queue_full`,
   * `unavailable`
   */
  async enter({ endpointId, signal }: BalancedRequest): Promise<WorkerCall> {
    const endpoint = this.#options.endpoints.find(endpointId);
    if (!endpoint || !this.#isBalanced(endpointId)) {
      throw new ProblemError('not_found', `load-balancing endpoint ${endpointId} not found`);
    }
    if (this.#isStopping) throw stopping();
    const line = this.#openLine(endpointId);
    try {
      return await line.enter({ maxWaiting: endpoint.settings.maxQueued, signal });
    } finally {
      this.#tidy(endpointId);
    }
  }

  async load(endpointId: string): Promise<WorkLoad> {
    const line = this.#lines.get(endpointId);
    return line?.load() ?? { waiting: 0, running: 0, oldestQueuedAt: null, workers: [] };
  }

  drain(_endpointId: string, podId: string): void {
    const worker = this.#workers.get(podId);
    if (worker) worker.isDraining = true;
  }

  /**
   * Calls the listener with each endpoint whose load has grown or ended, or whose workers have
   * changed. @returns the function that stops it
   */
  onLoad(listener: (endpointId: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Rejects all waiting and new requests; running ones continue. */
  stop(): void {
    this.#isStopping = true;
    for (const line of this.#lines.values()) line.refuseWaiting(stopping());
  }

  /** Another process balances from now on: its workers get the waiting requests if they are repeated. */
  refuseWaiting(): void {
    for (const line of this.#lines.values()) line.refuseWaiting(moved());
  }

  /** Breaks running requests. */
  close(): void {
    this.stop();
    for (const stop of this.#stopListening) stop();
    for (const worker of this.#workers.values()) worker.close();
    this.#workers.clear();
  }

  /** Updates the worker from its pod, which may have started, ended or moved. */
  #refresh(podId: string): void {
    const target = this.#options.targets.find(podId);
    const known = this.#workers.get(podId);
    const isServed = target && this.#isBalanced(target.endpointId);
    if (known && isServed && known.target.ip === target.ip && known.target.port === target.port) {
      known.target = target;
      this.#lines.get(target.endpointId)?.serveWaiting();
      return;
    }
    if (known) this.#removeWorker(known);
    if (isServed) this.#addWorker(target, known?.isDraining ?? false);
  }

  #addWorker(target: BalancedWorker['target'], isDraining: boolean): void {
    const { clock, connectorOf, log = silentLog, maxOpen = 1_000 } = this.#options;
    const { endpointId, podId } = target;
    const line = this.#openLine(endpointId);
    const onChange = () => {
      // An error here would silently end the pings of this worker, and with them its use.
      try {
        line.serveWaiting();
        this.#notify(endpointId);
      } catch (error) {
        log.error({ err: error, pod: podId }, 'handling a worker change failed');
      }
    };
    const connector = connectorOf?.(target);
    const worker = new BalancedWorker({ target, clock, connector, maxOpen, onChange });
    worker.isDraining = isDraining;
    this.#workers.set(podId, worker);
    line.add(worker);
    worker.watch().catch((error: unknown) => {
      log.error({ err: error, pod: podId }, 'worker pings stopped unexpectedly');
    });
  }

  #removeWorker(worker: BalancedWorker): void {
    const { endpointId, podId } = worker.target;
    this.#workers.delete(podId);
    this.#lines.get(endpointId)?.remove(worker);
    worker.close();
    this.#tidy(endpointId);
    this.#notify(endpointId);
  }

  #drop(endpointId: string): void {
    const line = this.#lines.get(endpointId);
    line?.refuseWaiting(new ProblemError('not_found', `endpoint ${endpointId} not found`));
    for (const worker of [...this.#workers.values()]) {
      if (worker.target.endpointId === endpointId) this.#removeWorker(worker);
    }
  }

  #isBalanced(endpointId: string): boolean {
    const endpoint = this.#options.endpoints.find(endpointId);
    return endpoint?.deployment?.type === 'LOAD_BALANCER';
  }

  #openLine(endpointId: string): RequestLine {
    const known = this.#lines.get(endpointId);
    if (known) return known;
    const { clock, waitMs = 120_000 } = this.#options;
    const onLoad = () => {
      this.#tidy(endpointId);
      this.#notify(endpointId);
    };
    const line = new RequestLine({ clock, waitMs, onLoad });
    this.#lines.set(endpointId, line);
    return line;
  }

  #tidy(endpointId: string): void {
    if (this.#lines.get(endpointId)?.isEmpty) this.#lines.delete(endpointId);
  }

  #notify(endpointId: string): void {
    for (const listener of this.#listeners) listener(endpointId);
  }
}

function moved(): ProblemError {
  const detail = 'another node balances requests from now on; try again';
  return new ProblemError('unavailable', detail, { retryAfterMs: 1_000 });
}

function stopping(): ProblemError {
  return new ProblemError('unavailable', 'the platform is stopping', { retryAfterMs: 1_000 });
}

/** Retry-After if too many requests wait, or if no worker became ready, ms. */
const RETRY_MS = 1_000;

/** Made once: nobody reads it, and thousands of clients may go away at once. */
const CLIENT_GONE = new ProblemError('unavailable', 'The client has gone.');

interface RequestLineOptions {
  clock: Clock;
  /** How long a request waits for a worker, ms. */
  waitMs: number;
  /**
   * Called when there are more requests than before, or none left, or a draining worker has none.
   */
  onLoad: () => void;
}

interface EnterOptions {
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

/** The requests of one endpoint. */
class RequestLine {
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
