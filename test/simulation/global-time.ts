// Puts a switch in front of the globals that a simulated world takes over. Modules that keep the globals
// as they were when they loaded then follow the switch too, so this file is imported before all others.
const { setImmediate } = globalThis;
const readTime = performance.now.bind(performance);

interface TakenOver {
  setImmediate?: (act: (...args: unknown[]) => void, ...args: unknown[]) => void;
  now?: () => number;
}

/** What is set here is used in the place of the thread's own. */
export const takenOver: TakenOver = {};

define(globalThis, 'setImmediate', (act: (...args: unknown[]) => void, ...args: unknown[]) =>
  takenOver.setImmediate ? takenOver.setImmediate(act, ...args) : setImmediate(act, ...args),
);
define(performance, 'now', () => takenOver.now?.() ?? readTime());

function define(owner: object, name: string, value: unknown): void {
  Object.defineProperty(owner, name, { value, configurable: true, writable: true });
}
