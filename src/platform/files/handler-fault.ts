// Whether a handler that a template names by its path is on this machine.
import { statSync } from 'node:fs';

/** `path`: absolute. The handler itself is loaded by workers only. */
export function findHandlerFault(path: string): string | undefined {
  const found = statSync(path, { throwIfNoEntry: false });
  if (!found) return `handler: no file ${path} on the platform's machine`;
  return found.isFile() ? undefined : `handler: ${path} is not a file`;
}
