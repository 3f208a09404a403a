// Treats the first SIGINT, SIGTERM or SIGHUP as a request to end, and later ones as orders to.
import { EXIT } from './command.ts';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
export type StopSignal = (typeof SIGNALS)[number];

/**
 * Ctrl-C may reach this process twice: from the terminal and through the launcher. Only a signal
 * later than this counts as another one, ms.
 */
const SAME_REQUEST_MS = 1_000;

export interface StopSignals {
  /** Resolves with the first signal. */
  readonly first: Promise<StopSignal>;
  /** Resolves with the next signal that does not repeat the first. */
  readonly second: Promise<StopSignal>;
  /** Resolves with the next signal that does not repeat the second. */
  readonly third: Promise<StopSignal>;
  /** Restores the default effect of the signals. */
  release(): void;
}

export function listenForStop(now: () => number = Date.now): StopSignals {
  const first = Promise.withResolvers<StopSignal>();
  const second = Promise.withResolvers<StopSignal>();
  const third = Promise.withResolvers<StopSignal>();
  const waiting = [first, second, third];
  let lastAt = -Infinity;
  const onSignal = (signal: StopSignal) => {
    if (now() - lastAt < SAME_REQUEST_MS) return;
    lastAt = now();
    waiting.shift()?.resolve(signal);
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  return {
    first: first.promise,
    second: second.promise,
    third: third.promise,
    release: () => {
      for (const signal of SIGNALS) process.removeListener(signal, onSignal);
    },
  };
}

/** Ends the process at once on a second signal; `before` still runs. */
export function forceOnSecond(signals: StopSignals, before: () => void = () => {}): void {
  void signals.second.then((signal) => {
    before();
    exitOn(signal);
  });
}

/** Ends the process at once. */
export function exitOn(signal: StopSignal): never {
  process.exit(signal === 'SIGINT' ? EXIT.interrupted : EXIT.failed);
}
