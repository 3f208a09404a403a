// A process in a simulated world: it can be paused, as by SIGSTOP, and killed. Its timers and everything that
// arrives for it wait while it is paused; nothing of it runs after its death.
import { AsyncLocalStorage } from 'node:async_hooks';
import { takenOver } from '../global-time.ts';
import type { VirtualTime } from '../virtual-time.ts';

/** A silent process counts as failed at those who wait for it, as between real nodes, ms. */
const SILENCE_MS = 8_000;

const current = new AsyncLocalStorage<SimulatedProcess>();

export class SimulatedProcess {
  readonly name: string;
  readonly #time: VirtualTime;
  #state: 'running' | 'paused' | 'waking' | 'dead' = 'running';
  readonly #inbox: (() => void)[] = [];
  /** Those who wait for an answer of this process. */
  readonly #watchers = new Set<() => void>();
  readonly #onDeath = new Set<() => void>();
  #pauses = 0;

  constructor(name: string, time: VirtualTime) {
    this.name = name;
    this.#time = time;
  }

  get isDead(): boolean {
    return this.#state === 'dead';
  }

  get isRunning(): boolean {
    return this.#state === 'running';
  }

  /** Runs it in this process: now, or when the process runs again. */
  deliver(act: () => void): void {
    if (this.#state === 'dead') return;
    if (this.#state === 'running') current.run(this, act);
    else this.#inbox.push(act);
  }

  after(ms: number, act: () => void): () => void {
    let isCancelled = false;
    const cancel = this.#time.after(ms, () =>
      this.deliver(() => {
        if (!isCancelled) act();
      }),
    );
    return () => {
      isCancelled = true;
      cancel();
    };
  }

  pause(): void {
    if (this.#state !== 'running') return;
    this.#state = 'paused';
    const pause = ++this.#pauses;
    this.#time.after(SILENCE_MS, () => {
      if (this.#state === 'paused' && this.#pauses === pause) this.#fail();
    });
  }

  /** Runs what has waited, in the order of its arrival. */
  resume(): void {
    if (this.#state !== 'paused') return;
    this.#state = 'waking';
    const step = () => {
      if (this.#state !== 'waking') return;
      const act = this.#inbox.shift();
      if (!act) {
        this.#state = 'running';
        return;
      }
      current.run(this, act);
      this.#time.after(0, step);
    };
    step();
  }

  kill(): void {
    if (this.#state === 'dead') return;
    this.#state = 'dead';
    this.#inbox.length = 0;
    for (const act of this.#onDeath) act();
    this.#fail();
  }

  /** Calls `act` at the death of the process, in the world. */
  onDeath(act: () => void): void {
    this.#onDeath.add(act);
  }

  /** Calls `act` once if the process dies or is silent for long. @returns the end of the watch */
  watch(act: () => void): () => void {
    if (this.isDead) this.#time.after(0, act);
    else if (this.#state === 'paused') this.#time.after(SILENCE_MS, act);
    this.#watchers.add(act);
    return () => this.#watchers.delete(act);
  }

  #fail(): void {
    for (const act of this.#watchers) act();
    this.#watchers.clear();
  }
}

/** Gives each process its own timers, after `time` has taken over. Ends with it. */
export function separateProcesses(time: VirtualTime): () => void {
  const { setImmediate } = takenOver;
  if (!setImmediate) throw new Error('the time of the world has not taken over');
  const nextTurn = (act: (...args: unknown[]) => void, ...args: unknown[]) => {
    const process = current.getStore();
    if (process) setImmediate(() => process.deliver(() => act(...args)));
    else setImmediate(act, ...args);
  };
  const sleep = (ms: number, signal: AbortSignal | undefined) =>
    new Promise<void>((resolve, reject) => {
      const abort = () => {
        cancel();
        reject(signal?.reason);
      };
      const cancel = (current.getStore() ?? time).after(ms, () => {
        signal?.removeEventListener('abort', abort);
        resolve();
      });
      if (signal?.aborted) abort();
      else signal?.addEventListener('abort', abort, { once: true });
    });
  Object.assign(takenOver, {
    setImmediate: nextTurn,
    sleep,
    nextTurn: () => new Promise<void>((resolve) => nextTurn(() => resolve())),
  });
  return () => {
    delete takenOver.sleep;
    delete takenOver.nextTurn;
  };
}
