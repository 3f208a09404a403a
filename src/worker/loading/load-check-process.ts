// The process of load-check.ts. Packages that the copy imports come from the project's installed ones;
// files, also those of local packages, come from the copy alone.

import { existsSync, readFileSync } from 'node:fs';
import { createRequire, isBuiltin, registerHooks } from 'node:module';
import { dirname, join, relative, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { loadHandler } from '../../handler/loading/load.ts';
import { isPlainObject } from '../../wire/json.ts';
import type { LoadReport, UndeclaredImport } from './load-check.ts';

/** Every worker has these, even if the project does not. */
const PROVIDED = ['millrace', 'zod'];
const LISTS = ['dependencies', 'optionalDependencies', 'peerDependencies'];
const DEVELOPMENT = 'devDependencies';

const [copy = '', project = '', entry = ''] = process.argv.slice(2);
const undeclared: UndeclaredImport[] = [];
/** Says which file of a local package is not in the copy. */
let left: string | undefined;
const manifests = new Map<string, Manifest | undefined>();

registerHooks({
  resolve(specifier, context, next) {
    const file = context.parentURL === undefined ? undefined : locateInCopy(context.parentURL);
    const packageName = readPackageName(specifier);
    if (file === undefined || packageName === undefined) return next(specifier, context);
    const manifest = findManifest(dirname(file));
    if (packageName === manifest?.name) return next(specifier, context);
    const isImport = context.conditions.includes('import');
    const resolveFrom = (parent: string) => {
      const parentURL = pathToFileURL(parent).href;
      if (isImport) return next(specifier, { ...context, parentURL });
      // The next hook resolves calls of `require` from the file that makes them.
      const found = createRequire(parentURL).resolve(specifier);
      return { url: pathToFileURL(found).href, shortCircuit: true };
    };
    if (!PROVIDED.includes(packageName)) {
      const resolved = resolveFrom(join(project, file));
      const list = manifest?.lists.get(packageName);
      if (list !== undefined && list !== DEVELOPMENT)
        return moveIntoCopy(resolved, file, packageName);
      const version = readVersion(resolved.url, packageName);
      undeclared.push({ file, packageName, version, isDevelopment: list === DEVELOPMENT });
      return resolved;
    }
    try {
      return resolveFrom(join(project, file));
    } catch {
      return resolveFrom(fileURLToPath(import.meta.url));
    }
  },
});

/** A local package is in the copy; an installed one, with `node_modules` in its path, is not. */
function moveIntoCopy<T extends { url: string }>(found: T, file: string, packageName: string): T {
  if (!found.url.startsWith('file:')) return found;
  const path = fileURLToPath(found.url);
  if (path.split(sep).includes('node_modules')) return found;
  const place = relative(project, path);
  const moved = join(copy, place);
  if (!place.startsWith('..') && existsSync(moved)) {
    return { ...found, url: pathToFileURL(moved).href };
  }
  left = `${file}: imports ${packageName}, and its file ${path} is not in the archive`;
  throw new Error(left);
}

/** Path of a file of the copy in it; undefined for files elsewhere. */
function locateInCopy(url: string): string | undefined {
  if (!url.startsWith('file:')) return undefined;
  const path = relative(copy, fileURLToPath(url));
  return path.startsWith('..') ? undefined : path.split(sep).join('/');
}

/** Undefined for files, URLs and modules of Node. */
function readPackageName(specifier: string): string | undefined {
  if (isBuiltin(specifier) || /^[./#]|^[a-z]+:/i.test(specifier)) return undefined;
  return specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
}

interface Manifest {
  name: unknown;
  /** Name of the list that has a package, by the package's name. */
  lists: ReadonlyMap<string, string>;
}

/** The nearest package.json in the copy; of its archive, `folder` is a path in it. */
function findManifest(folder: string): Manifest | undefined {
  if (!manifests.has(folder)) {
    const found = readManifest(join(copy, folder));
    const isTop = folder === '.';
    manifests.set(folder, found ?? (isTop ? undefined : findManifest(dirname(folder))));
  }
  return manifests.get(folder);
}

function readManifest(folder: string): Manifest | undefined {
  const found = readJson(join(folder, 'package.json'));
  if (!found) return undefined;
  // A package may be in several lists; the first one that workers install counts.
  const entries = [DEVELOPMENT, ...LISTS].flatMap((list) =>
    Object.keys(readObject(found[list])).map((name) => [name, list] as const),
  );
  return { name: found['name'], lists: new Map(entries) };
}

function readVersion(url: string, packageName: string): string | undefined {
  if (!url.startsWith('file:')) return undefined;
  let folder = dirname(fileURLToPath(url));
  while (folder !== dirname(folder)) {
    const found = readJson(join(folder, 'package.json'));
    const version = found?.['name'] === packageName ? found['version'] : undefined;
    if (typeof version === 'string') return version;
    folder = dirname(folder);
  }
  return undefined;
}

function readJson(path: string): Record<string, unknown> | undefined {
  try {
    return readObject(JSON.parse(readFileSync(path, 'utf8')));
  } catch {
    return undefined;
  }
}

function readObject(value: unknown): Record<string, unknown> {
  return isPlainObject(value) ? value : {};
}

async function check(): Promise<LoadReport> {
  try {
    await loadHandler(join(copy, entry));
    return { undeclared };
  } catch (error) {
    return { problem: left ?? (error instanceof Error ? error.message : String(error)) };
  }
}

process.send?.(await check());
