// Redirects console.* calls of a handler to the log of the job that made them.
import { AsyncLocalStorage } from 'node:async_hooks';
import util from 'node:util';
import type { LogLevel, LogLines } from './log-lines.ts';

const { formatWithOptions, inspect } = util;

/** The job or thread that a console call belongs to. */
export interface ConsoleOwner {
  /** Number of the attempt among those of this thread; undefined outside of attempts. */
  readonly attemptNumber: number | undefined;
  readonly lines: LogLines;
}

/** The attempt in whose asynchronous context the code runs. */
export const currentOwner = new AsyncLocalStorage<ConsoleOwner>();

const METHODS = {
  debug: 'debug',
  log: 'info',
  info: 'info',
  warn: 'warn',
  error: 'error',
} as const satisfies Record<string, LogLevel>;
const METHOD_NAMES = ['debug', 'log', 'info', 'warn', 'error'] as const;

let isCaptured = false;

/**
 * Patches the console of this thread, once. The other methods (table, trace, assert, count, time)
 * use the patched ones. Outside of attempts `outside` is the owner; without one the console works
 * as usual.
 */
export function captureConsole(outside?: ConsoleOwner): void {
  if (isCaptured) return;
  isCaptured = true;
  for (const name of METHOD_NAMES) {
    // biome-ignore lint/suspicious/noConsole: it is what is replaced here.
    const original = console[name].bind(console);
    console[name] = (...values: unknown[]) => {
      const owner = currentOwner.getStore() ?? outside;
      if (!owner) return original(...values);
      owner.lines.writeText(METHODS[name], formatWithOptions({ colors: false }, ...values));
    };
  }
  // biome-ignore lint/suspicious/noConsole: it is what is replaced here.
  const originalDir = console.dir.bind(console);
  console.dir = (value, options) => {
    const owner = currentOwner.getStore() ?? outside;
    if (!owner) return originalDir(value, options);
    owner.lines.writeText('info', inspect(value, { customInspect: false, ...options }));
  };
}
