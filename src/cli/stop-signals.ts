// Treats the first SIGINT, SIGTERM or SIGHUP as a request to end, and a second one as an order to.
import { EXIT } from './command.ts';

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
export type StopSignal = (typeof SIGNALS)[number];

/**
 * Ctrl-C may reach this process twice: from the terminal and through the launcher. Only a signal
 * later than this counts as a second one, ms.
 */
const SAME_REQUEST_MS = 1_000;

export interface StopSignals {
  /** Resolves with the first signal. */
  readonly first: Promise<StopSignal>;
  /** Resolves with the next signal that does not repeat the first. */
  readonly second: Promise<StopSignal>;
  /** Restores the default effect of the signals. */
  release(): void;
}

export function listenForStop(now: () => number = Date.now): StopSignals {
  const first = Promise.withResolvers<StopSignal>();
  const second = Promise.withResolvers<StopSignal>();
  let firstAt: number | undefined;
  const onSignal = (signal: StopSignal) => {
    if (firstAt === undefined) {
      firstAt = now();
      first.resolve(signal);
    } else if (now() - firstAt >= SAME_REQUEST_MS) second.resolve(signal);
  };
  for (const signal of SIGNALS) process.on(signal, onSignal);
  return {
    first: first.promise,
    second: second.promise,
    release: () => {
      for (const signal of SIGNALS) process.removeListener(signal, onSignal);
    },
  };
}

/** Ends the process at once on a second signal; `before` still runs. */
export function forceOnSecond(signals: StopSignals, before: () => void = () => {}): void {
  void signals.second.then((signal) => {
    before();
    process.exit(signal === 'SIGINT' ? EXIT.interrupted : EXIT.failed);
  });
}
