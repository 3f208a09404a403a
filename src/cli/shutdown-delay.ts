// The time between the signal that ends a platform and its stop, in which its clients leave. Another signal ends it.
import { setTimeout as sleep } from 'node:timers/promises';
import { exitOn, type StopSignal, type StopSignals } from './stop-signals.ts';

export class ShutdownDelay {
  #waiting: AbortController | undefined;

  /** A second signal ends the wait or, outside it, the process; a third one ends the process. */
  constructor(signals: StopSignals, exit: (signal: StopSignal) => void = exitOn) {
    void signals.second.then((signal) => {
      if (this.#waiting) this.#waiting.abort();
      else exit(signal);
    });
    void signals.third.then(exit);
  }

  /** Resolves after this time, or with the second signal. */
  async wait(ms: number): Promise<void> {
    const waiting = new AbortController();
    this.#waiting = waiting;
    await sleep(ms, undefined, { signal: waiting.signal }).catch(() => {});
    this.#waiting = undefined;
  }
}
