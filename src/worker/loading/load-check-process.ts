// The process of load-check.ts. Packages that the copy imports come from the project's installed ones;
// files come from the copy alone.

import { readFileSync } from 'node:fs';
import { createRequire, isBuiltin, registerHooks } from 'node:module';
import { join, relative, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { loadHandler } from '../../handler/loading/load.ts';
import { isPlainObject } from '../../wire/json.ts';
import type { LoadReport, UndeclaredImport } from './load-check.ts';

/** Every worker has these, even if the project does not. */
const PROVIDED = ['millrace', 'zod'];
const LISTS = ['dependencies', 'optionalDependencies', 'peerDependencies'];

const [copy = '', project = '', entry = ''] = process.argv.slice(2);
const undeclared: UndeclaredImport[] = [];
const manifest = readManifest();
const declared = new Set(LISTS.flatMap((list) => Object.keys(readObject(manifest[list]))));

registerHooks({
  resolve(specifier, context, next) {
    const file = context.parentURL === undefined ? undefined : locateInCopy(context.parentURL);
    const packageName = readPackageName(specifier);
    if (file === undefined || packageName === undefined || packageName === manifest['name']) {
      return next(specifier, context);
    }
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
      if (!declared.has(packageName)) undeclared.push({ file, packageName });
      return resolved;
    }
    try {
      return resolveFrom(join(project, file));
    } catch {
      return resolveFrom(fileURLToPath(import.meta.url));
    }
  },
});

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

function readManifest(): Record<string, unknown> {
  try {
    return readObject(JSON.parse(readFileSync(join(copy, 'package.json'), 'utf8')));
  } catch {
    return {};
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
    return { problem: error instanceof Error ? error.message : String(error) };
  }
}

process.send?.(await check());
