// Finds the project of a handler: its folder, the handler in it, and the name of its endpoint.
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { isPlainObject } from '../../wire/json.ts';
import { isDnsLabel } from '../../wire/routes/route.ts';
import { findHandlerFile, nameEndpoint } from '../dev/handler-files.ts';
import { UsageError } from '../options.ts';

const MANIFEST = 'package.json';

export interface Project {
  /** Absolute path. */
  folder: string;
  /** Path of the handler in the folder, with `/`. */
  entry: string;
  /** Absolute path of the handler. */
  handler: string;
}

/**
 * The folder is `root`, or that of the nearest package.json above the handler, or the handler's own.
 * @throws UsageError
 */
export function findProject(positionals: readonly string[], root: string | undefined): Project {
  const handler = findHandlerFile(positionals);
  const folder = root === undefined ? findManifestFolder(dirname(handler)) : readRoot(root);
  const entry = relative(folder ?? dirname(handler), handler)
    .split(sep)
    .join('/');
  if (entry.startsWith('../')) throw new UsageError(`--root: ${root} does not contain ${handler}`);
  return { folder: folder ?? dirname(handler), entry, handler };
}

/** The given name, or that of package.json, or that of the handler's file. @throws UsageError */
export function chooseName(given: string | undefined, { folder, handler }: Project): string {
  if (given !== undefined) return checkName('--name', given);
  const own = readPackageName(folder);
  if (own !== undefined) return checkName(`the name in ${MANIFEST}`, own);
  return checkName("the handler's file name", nameEndpoint(handler));
}

/** The name for a command that needs no handler: given, or that of package.json here. @throws UsageError */
export function needName(given: string | undefined): string {
  if (given !== undefined) return given;
  const folder = findManifestFolder(process.cwd());
  const own = folder === undefined ? undefined : readPackageName(folder);
  if (own !== undefined) return checkName(`the name in ${MANIFEST}`, own);
  throw new UsageError(`--name NAME is required, because no ${MANIFEST} here has a name`);
}

/** @throws UsageError if the name cannot stand in a URL */
function checkName(source: string, name: string): string {
  if (isDnsLabel(name)) return name;
  throw new UsageError(
    `${source}: ${JSON.stringify(name)} must be 1 to 63 lower-case letters, digits or "-", and start and ` +
      'end with a letter or digit; give another one with --name',
  );
}

/** Without the scope; undefined if there is none. */
function readPackageName(folder: string): string | undefined {
  const path = join(folder, MANIFEST);
  if (!existsSync(path)) return undefined;
  let manifest: unknown;
  try {
    manifest = JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new UsageError(`${path} is not JSON: ${error instanceof Error ? error.message : error}`);
  }
  const name = isPlainObject(manifest) ? manifest['name'] : undefined;
  return typeof name === 'string' && name !== '' ? name.replace(/^@[^/]*\//, '') : undefined;
}

function findManifestFolder(folder: string): string | undefined {
  if (existsSync(join(folder, MANIFEST))) return folder;
  const parent = dirname(folder);
  return parent === folder ? undefined : findManifestFolder(parent);
}

function readRoot(root: string): string {
  const folder = resolve(root);
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return folder;
  throw new UsageError(`--root: ${root} is not a folder`);
}
