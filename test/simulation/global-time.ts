// Makes the global timers replaceable by a simulated world. Some modules keep a reference to the globals
// when they load, so import this file before all others.
const { setImmediate } = globalThis;
const readTime = performance.now.bind(performance);

interface TakenOver {
  setImmediate?: (act: (...args: unknown[]) => void, ...args: unknown[]) => void;
  now?: () => number;
}

/** Replacements for the thread's own functions. */
export const takenOver: TakenOver = {};

define(globalThis, 'setImmediate', (act: (...args: unknown[]) => void, ...args: unknown[]) =>
  takenOver.setImmediate ? takenOver.setImmediate(act, ...args) : setImmediate(act, ...args),
);
define(performance, 'now', () => takenOver.now?.() ?? readTime());

function define(owner: object, name: string, value: unknown): void {
  Object.defineProperty(owner, name, { value, configurable: true, writable: true });
}
