// Makes the global timers replaceable by a simulated world. Some modules keep a reference to the globals
// when they load, so import this file before all others.
import { syncBuiltinESMExports } from 'node:module';
import timers from 'node:timers/promises';

const { setImmediate } = globalThis;
const { setTimeout: sleep, setImmediate: nextTurn } = timers;
const readTime = performance.now.bind(performance);

interface TakenOver {
  setImmediate?: (act: (...args: unknown[]) => void, ...args: unknown[]) => void;
  now?: () => number;
  /** Those of node:timers/promises. */
  sleep?: (ms: number, signal: AbortSignal | undefined) => Promise<void>;
  nextTurn?: () => Promise<void>;
}

interface TimerOptions {
  signal?: AbortSignal;
}

/** Replacements for the thread's own functions. */
export const takenOver: TakenOver = {};

define(globalThis, 'setImmediate', (act: (...args: unknown[]) => void, ...args: unknown[]) =>
  takenOver.setImmediate ? takenOver.setImmediate(act, ...args) : setImmediate(act, ...args),
);
define(performance, 'now', () => takenOver.now?.() ?? readTime());
define(timers, 'setTimeout', async (ms = 0, value?: unknown, options: TimerOptions = {}) => {
  if (!takenOver.sleep) return sleep(ms, value, options);
  await takenOver.sleep(ms, options.signal);
  return value;
});
define(timers, 'setImmediate', async (value?: unknown, options: TimerOptions = {}) => {
  if (!takenOver.nextTurn) return nextTurn(value, options);
  await takenOver.nextTurn();
  return value;
});
// The imports of these functions by name are those above from now on.
syncBuiltinESMExports();

function define(owner: object, name: string, value: unknown): void {
  Object.defineProperty(owner, name, { value, configurable: true, writable: true });
}
