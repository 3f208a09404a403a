// Notes the file of the handler that this thread has loaded. A handler's own copy of this package finds it too, and with
// it the packages of the handler's project.

const FILE = Symbol.for('millrace.handlerFile');

export function noteHandlerFile(file: string): void {
  Object.defineProperty(globalThis, FILE, { value: file, configurable: true });
}

/** Undefined before a handler has been loaded from a file. */
export function readHandlerFile(): string | undefined {
  const file: unknown = Reflect.get(globalThis, FILE);
  return typeof file === 'string' ? file : undefined;
}
