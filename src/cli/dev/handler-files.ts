// Finds handler files: the one that a command names, or all in a folder.
import { readdirSync, statSync } from 'node:fs';
import { basename, extname, join, resolve } from 'node:path';
import { UsageError } from '../options.ts';

const EXTENSIONS = ['.ts', '.mts', '.js', '.mjs'];

export interface HandlerFile {
  /** Absolute path. */
  path: string;
  endpointId: string;
}

/** Returns the absolute path of the handler that the arguments name. @throws UsageError */
export function findHandlerFile(positionals: readonly string[]): string {
  const [path, ...rest] = positionals;
  if (path === undefined) throw new UsageError('<handler> is missing; name the handler module');
  if (rest.length > 0) throw new UsageError(`${rest[0]}: unexpected argument; name one <handler>`);
  const file = resolve(path);
  const stats = statSync(file, { throwIfNoEntry: false });
  if (!stats) throw new UsageError(`${path}: file not found`);
  if (!stats.isFile()) throw new UsageError(`${path} is a folder; name the handler module in it`);
  return file;
}

/**
 * Returns the handlers of files and folders, in their order. Of a folder, only modules directly in
 * it count. An endpoint's name is its file's name without the extension. @throws UsageError
 */
export function findHandlers(
  paths: readonly string[],
  { missing = 'refused' }: { missing?: 'refused' | 'skipped' } = {},
): HandlerFile[] {
  const found = new Map<string, HandlerFile>();
  for (const file of new Set(paths.flatMap((path) => listModules(path, missing)))) {
    const endpointId = nameEndpoint(file);
    const other = found.get(endpointId);
    if (other) {
      throw new UsageError(`${other.path} and ${file} are both named "${endpointId}"; rename one`);
    }
    found.set(endpointId, { path: file, endpointId });
  }
  return [...found.values()];
}

export function nameEndpoint(file: string): string {
  return basename(file, extname(file));
}

/** Whether a file directly in a folder of handlers is a handler. */
function isHandlerName(name: string): boolean {
  if (!EXTENSIONS.includes(extname(name)) || name.startsWith('.')) return false;
  return !/\.(test|spec|d|config)\.[a-z]+$/.test(name);
}

function listModules(path: string, missing: 'refused' | 'skipped'): string[] {
  const absolute = resolve(path);
  const stats = statSync(absolute, { throwIfNoEntry: false });
  if (!stats) {
    if (missing === 'skipped') return [];
    throw new UsageError(`${path}: file or folder not found`);
  }
  if (!stats.isDirectory()) return [absolute];
  return readdirSync(absolute, { withFileTypes: true })
    .filter((entry) => !entry.isDirectory() && isHandlerName(entry.name))
    .map((entry) => join(absolute, entry.name))
    .sort();
}
