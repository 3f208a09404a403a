// The environment of a model process: the worker's, with its devices, and what the child needs.
import { existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The child's descriptor for frames; the standard ones belong to its libraries, which print. */
export const FRAME_DESCRIPTOR = 3;

/** Folder of millrace_model.py, last in the module search path: a copy of the author's own wins. */
const LIBRARY = fileURLToPath(new URL('./python', import.meta.url));

export type Environment = Readonly<Record<string, string | undefined>>;

/** Set by `millrace deploy --python`: the interpreter for commands without a path. */
export function choosePython(command: string, inherited: Environment): string {
  return /^python3?$/.test(command) ? inherited['MILLRACE_PYTHON'] || command : command;
}

/** The path of a program that is found on the PATH; the command itself if it is a path, or not found. */
export function locateProgram(command: string, path: string | undefined): string {
  if (command.includes('/')) return command;
  const places = (path ?? '').split(delimiter).map((folder) => join(folder, command));
  return places.find((place) => existsSync(place)) ?? command;
}

export function buildEnvironment(
  inherited: Environment,
  own: Environment,
): Record<string, string | undefined> {
  // Without it, Python holds back what is printed to a pipe.
  const merged = { PYTHONUNBUFFERED: '1', ...inherited, ...own };
  const { PYTHONPATH: path } = merged as Record<string, string | undefined>;
  return {
    ...merged,
    PYTHONPATH: path ? `${path}${delimiter}${LIBRARY}` : LIBRARY,
    MILLRACE_MODEL_FD: String(FRAME_DESCRIPTOR),
  };
}
