// How long the model processes of a thread have taken to start. A handler's own copy of this package reports to the listener
// of the worker's copy.

const LISTENER = Symbol.for('millrace.model-starts');

/** Parts of a start, ms, one after the other. A program that does not tell them has only `setupMs`. */
export interface ModelStart {
  interpreterMs?: number | undefined;
  importMs?: number | undefined;
  setupMs: number;
}

/** Of this thread; another one takes its place. */
export function onModelStart(listener: (start: ModelStart) => void): void {
  Object.defineProperty(globalThis, LISTENER, { value: listener, configurable: true });
}

/** A model process is ready. */
export function noteModelStart(start: ModelStart): void {
  const listener: unknown = Reflect.get(globalThis, LISTENER);
  if (typeof listener === 'function') listener(start);
}
