// Time and randomness of one simulated world. The clock moves only when it is advanced; iterations of the event loop,
// random numbers and the performance timer are replaced too, so that a seed always plays the same.
import type { Clock } from '../../src/base/clock.ts';
import { takenOver } from './global-time.ts';

interface Timer {
  at: number;
  order: number;
  act: (() => void) | undefined;
}

/** More rounds of work at one instant mean a loop that never waits. */
const MAX_ROUNDS = 100_000;

export class VirtualTime implements Clock {
  #now = Date.UTC(2026, 0, 1);
  #order = 0;
  /** A binary heap: the earliest timer first, then the one set first. */
  readonly #timers: Timer[] = [];
  #turns: (() => void)[] = [];

  now = (): number => this.#now;

  after(ms: number, act: () => void): () => void {
    const timer: Timer = { at: this.#now + Math.max(0, ms), order: this.#order++, act };
    this.#push(timer);
    return () => {
      timer.act = undefined;
    };
  }

  /** Replaces the time and randomness of this thread until the returned function is called. */
  takeOver(random: () => number): () => void {
    const setImmediate = (act: (...args: unknown[]) => void, ...args: unknown[]) => {
      this.#turns.push(() => act(...args));
    };
    Object.assign(takenOver, { setImmediate, now: this.now });
    const giveBack = replace(Math, 'random', random);
    return () => {
      delete takenOver.setImmediate;
      delete takenOver.now;
      giveBack();
    };
  }

  /** Advances time by `ms`; the work started by a timer runs to its end before the next timer. */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    await this.#settle();
    for (let timer = this.#takeDue(until); timer; timer = this.#takeDue(until)) {
      this.#now = Math.max(this.#now, timer.at);
      timer.act?.();
      await this.#settle();
    }
    this.#now = until;
  }

  /** Waits for an operation that must end without time passing. */
  async finish<T>(work: Promise<T>): Promise<T> {
    let isDone = false;
    const done = () => {
      isDone = true;
    };
    work.then(done, done);
    await this.#settle();
    if (!isDone) throw new Error('the operation waits for time to pass');
    return work;
  }

  /** Runs all work that is due at this instant. */
  async #settle(): Promise<void> {
    await settlePromises();
    for (let round = 0; this.#turns.length > 0; round++) {
      if (round > MAX_ROUNDS) throw new Error('a loop calls setImmediate without ever waiting');
      const turns = this.#turns;
      this.#turns = [];
      for (const turn of turns) {
        turn();
        await settlePromises();
      }
    }
  }

  #takeDue(until: number): Timer | undefined {
    for (;;) {
      const first = this.#timers[0];
      if (!first || (first.act && first.at > until)) return undefined;
      this.#pop();
      if (first.act) return first;
    }
  }

  #push(timer: Timer): void {
    const heap = this.#timers;
    let at = heap.length;
    heap.push(timer);
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = heap[above];
      if (!parent || isBefore(parent, timer)) break;
      heap[at] = parent;
      at = above;
    }
    heap[at] = timer;
  }

  #pop(): void {
    const heap = this.#timers;
    const last = heap.pop();
    if (!last || heap.length === 0) return;
    let at = 0;
    for (;;) {
      const left = heap[2 * at + 1];
      if (!left) break;
      const right = heap[2 * at + 2];
      const [child, place] =
        right && isBefore(right, left) ? [right, 2 * at + 2] : [left, 2 * at + 1];
      if (isBefore(last, child)) break;
      heap[at] = child;
      at = place;
    }
    heap[at] = last;
  }
}

function isBefore(a: Timer, b: Timer): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}

/** The `nextTick` queue runs after the promise queue is empty. */
function settlePromises(): Promise<void> {
  return new Promise((resolve) => process.nextTick(resolve));
}

function replace(owner: object, name: string, value: unknown): () => void {
  const before = Object.getOwnPropertyDescriptor(owner, name);
  Object.defineProperty(owner, name, { value, configurable: true, writable: true });
  return () => {
    if (before) Object.defineProperty(owner, name, before);
    else Reflect.deleteProperty(owner, name);
  };
}
