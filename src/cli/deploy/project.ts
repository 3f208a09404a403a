// Finds the project of a handler: its folder, the handler in it, the name of its endpoint, and packages beside it.
import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { dirname, join, relative, resolve, sep } from 'node:path';
import { isPlainObject } from '../../wire/json.ts';
import { isDnsLabel } from '../../wire/routes/route.ts';
import { CommandError } from '../command.ts';
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

const OWN_NAME = 'millrace';
/** Lists of packages that workers install. */
const LISTS = ['dependencies', 'optionalDependencies', 'peerDependencies'];
/** Specifications that npm does not understand. */
const NOT_OF_NPM = /^(?:workspace|catalog|link|portal):/;

export interface LocalPackage {
  /** Absolute path without symbolic links. */
  folder: string;
  /** Parsed package.json; undefined without one. */
  manifest: Record<string, unknown> | undefined;
  /** Folders of the local packages that it depends on. */
  uses: string[];
  /** Tarballs that it depends on. */
  tarballs: string[];
  /** The lists of package.json in a form that npm understands, without millrace. */
  lists: Record<string, Record<string, string>>;
  /** npm understands the lists of its package.json unchanged. */
  isForNpm: boolean;
}

/** @throws CommandError for a dependency that cannot be found */
export function readLocalPackage(folder: string): LocalPackage {
  const manifest = readJsonFile(join(folder, MANIFEST));
  const found: LocalPackage = {
    folder,
    manifest,
    uses: [],
    tarballs: [],
    lists: {},
    isForNpm: true,
  };
  for (const list of LISTS) {
    const given = manifest?.[list];
    if (!isPlainObject(given)) continue;
    const specs = Object.entries(given).flatMap(([name, spec]) =>
      name === OWN_NAME || typeof spec !== 'string' ? [] : [[name, translate(found, name, spec)]],
    );
    found.lists[list] = Object.fromEntries(specs);
  }
  return found;
}

/** @returns the specification for npm; notes the package in `found` if it is a local one */
function translate(found: LocalPackage, name: string, spec: string): string {
  const { folder } = found;
  const isForeign = NOT_OF_NPM.test(spec);
  if (isForeign) found.isForNpm = false;
  const place = locate(name, spec, folder);
  if (place !== undefined && statSync(place).isFile()) {
    found.tarballs.push(place);
    return nameFile(folder, place);
  }
  const isInstalled = place?.split(sep).includes('node_modules') ?? false;
  if (place !== undefined && !isInstalled) {
    found.uses.push(place);
    return nameFile(folder, place);
  }
  if (!isForeign) return spec;
  // From the catalog of a pnpm workspace: npm gets the installed version.
  const version =
    place === undefined ? undefined : readJsonFile(join(place, MANIFEST))?.['version'];
  if (typeof version === 'string') return version;
  throw new CommandError(
    `${join(folder, MANIFEST)}: ${name} is ${spec} and is not installed; run the install of your package manager first`,
  );
}

/** Where a path leads, or where the package is installed; undefined if it is not. @throws CommandError */
function locate(name: string, spec: string, folder: string): string | undefined {
  const path = /^(?:file|link|portal):(.*)$/.exec(spec)?.[1] ?? /^\.{1,2}\/.*$/.exec(spec)?.[0];
  if (path === undefined) return findInstalled(name, folder);
  const place = resolve(folder, path);
  if (existsSync(place)) return realpathSync(place);
  throw new CommandError(
    `${join(folder, MANIFEST)}: ${name} is ${spec}, and ${place} does not exist`,
  );
}

function findInstalled(name: string, folder: string): string | undefined {
  const place = join(folder, 'node_modules', name);
  if (existsSync(join(place, MANIFEST))) return realpathSync(place);
  const parent = dirname(folder);
  return parent === folder ? undefined : findInstalled(name, parent);
}

/** Returns a specifier with a relative path for package.json. */
export function nameFile(from: string, place: string): string {
  return `file:${toPath(from, place)}`;
}

/** Relative, with `/`; "." for the folder itself. */
export function toPath(from: string, place: string): string {
  return relative(from, place).split(sep).join('/') || '.';
}

export function isInside(path: string, folder: string): boolean {
  return path === folder || path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

/** The package.json for npm on a worker, which installs no development packages and runs no scripts. */
export function writeManifest({ lists, manifest }: LocalPackage): Record<string, unknown> {
  const {
    devDependencies: _dev,
    scripts: _scripts,
    workspaces: _workspaces,
    ...kept
  } = manifest ?? {};
  return { ...kept, ...lists };
}

/**
 * First parts of the paths that package.json names as the package's content. They belong to it even if .gitignore names
 * them, as compiled files.
 */
export function listContent({ manifest }: LocalPackage): string[] {
  const { exports, files, main, module } = manifest ?? {};
  const paths = [exports, files, main, module].flatMap(collectTexts);
  const first = paths.map((path) => path.replace(/^\.?\//, '').split('/')[0] ?? '');
  return [...new Set(first)].filter((part) => /^[^!*?[{.]/.test(part));
}

function collectTexts(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  const isParent = Array.isArray(value) || isPlainObject(value);
  return isParent ? Object.values(value).flatMap(collectTexts) : [];
}

/** Returns undefined if the file does not exist. @throws CommandError if it is no JSON object */
export function readJsonFile(path: string): Record<string, unknown> | undefined {
  if (!existsSync(path)) return undefined;
  try {
    const value: unknown = JSON.parse(readFileSync(path, 'utf8'));
    if (isPlainObject(value)) return value;
  } catch (error) {
    throw new CommandError(`${path}: ${error instanceof Error ? error.message : String(error)}`);
  }
  throw new CommandError(`${path} is not a JSON object`);
}
