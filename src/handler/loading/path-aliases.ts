// Resolves path aliases of the tsconfig.json that is nearest to the importing file. An alias counts only if Node itself does
// not find the import.
import { statSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { type AliasRules, readAliasRules } from '../../base/alias-rules.ts';

/** TypeScript sources that authors commonly mean by a specifier with this extension. */
const SOURCE_EXTENSIONS: Readonly<Record<string, readonly string[]>> = {
  '.js': ['.ts', '.tsx'],
  '.mjs': ['.mts'],
  '.cjs': ['.cts'],
  '': ['.ts', '.mts', '.js', '.mjs', '.tsx'],
};

interface Alias {
  config: string;
  /** Absolute paths of the alias; they lack an extension if the specifier does. */
  targets: string[];
  /** The first target that exists. */
  file: string | undefined;
}

let isFollowing = false;

/** Lets later imports in this thread use the aliases of the handler's tsconfig.json, if it has any. */
export function followAliases(handlerFile: string): void {
  if (isFollowing || !readAliasRules(dirname(handlerFile))) return;
  isFollowing = true;
  registerHooks({
    resolve(specifier, context, next) {
      try {
        return next(specifier, context);
      } catch (error) {
        const { parentURL } = context;
        if (!parentURL?.startsWith('file:') || parentURL.includes('/node_modules/')) throw error;
        const file = findAlias(specifier, fileURLToPath(parentURL))?.file;
        if (file === undefined) throw error;
        return { url: pathToFileURL(file).href, shortCircuit: true };
      }
    },
  });
}

/** Returns undefined if no tsconfig.json has an alias for the specifier. */
export function findAlias(specifier: string, importer: string): Alias | undefined {
  if (/^\.{0,2}\/|^\.{1,2}$|^\w\w+:/.test(specifier)) return undefined;
  const rules = readAliasRules(dirname(importer));
  const targets = rules && listTargets(specifier, rules);
  if (!rules || !targets) return undefined;
  return { config: rules.config, targets, file: targets.map(findSource).find(Boolean) };
}

/** Chooses as TypeScript does: an exact pattern, else the longest text before a `*`, else `baseUrl`. */
function listTargets(specifier: string, { baseUrl, paths }: AliasRules): string[] | undefined {
  if (Object.hasOwn(paths, specifier)) return [...(paths[specifier] ?? [])];
  const [pattern] = Object.keys(paths)
    .filter((each) => matchPattern(specifier, each) !== undefined)
    .toSorted((one, other) => other.indexOf('*') - one.indexOf('*'));
  if (pattern !== undefined) {
    const matched = matchPattern(specifier, pattern) ?? '';
    return (paths[pattern] ?? []).map((target) => target.replace('*', () => matched));
  }
  return baseUrl === undefined ? undefined : [join(baseUrl, specifier)];
}

/** Returns the text that the `*` matches. */
function matchPattern(specifier: string, pattern: string): string | undefined {
  const [before = '', after] = pattern.split('*', 2);
  if (after === undefined || specifier.length < before.length + after.length) return undefined;
  if (!specifier.startsWith(before) || !specifier.endsWith(after)) return undefined;
  return specifier.slice(before.length, specifier.length - after.length);
}

/** The file that TypeScript means by a path, whose extension may be wrong or missing. */
export function findSource(target: string): string | undefined {
  const extension = extname(target);
  const stem = target.slice(0, target.length - extension.length);
  const candidates = [
    target,
    ...(SOURCE_EXTENSIONS[extension] ?? []).map((source) => stem + source),
    ...(SOURCE_EXTENSIONS[''] ?? []).map((source) => target + source),
    join(target, 'index.ts'),
    join(target, 'index.js'),
  ];
  return candidates.find((path) => statSync(path, { throwIfNoEntry: false })?.isFile());
}
