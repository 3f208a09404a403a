// Reads path aliases, which Node does not know: `paths` and `baseUrl` of a tsconfig.json and of the files that it extends.
import { readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, extname, join, resolve } from 'node:path';

const CONFIG_NAMES = ['tsconfig.json', 'jsconfig.json'];
/** Longest chain of `extends` and `references`. */
const MAX_DEPTH = 10;
/** Of all files together that one tsconfig.json extends or refers to, itself included. */
const MAX_FILES = 64;
const MAX_BYTES = 1_048_576;

export interface AliasRules {
  /** Path of the tsconfig.json. */
  readonly config: string;
  /** The tsconfig.json, and the files that it extends or refers to. */
  readonly files: readonly string[];
  /** Absolute targets by pattern; they may contain a `*`. */
  readonly paths: Readonly<Record<string, readonly string[]>>;
  /** Absolute path. */
  readonly baseUrl: string | undefined;
}

const rulesOfFolders = new Map<string, AliasRules | undefined>();

/** Reads the rules of the nearest tsconfig.json in the folder or above; undefined if it has none. */
export function readAliasRules(folder: string): AliasRules | undefined {
  if (!rulesOfFolders.has(folder)) rulesOfFolders.set(folder, findRules(folder));
  return rulesOfFolders.get(folder);
}

function findRules(folder: string): AliasRules | undefined {
  for (const name of CONFIG_NAMES) {
    const config = join(folder, name);
    const left = { files: MAX_FILES, bytes: MAX_BYTES };
    const rules = readRules(config, { configFolder: folder, depth: MAX_DEPTH, left });
    if (!rules) continue;
    const isEmpty = rules.baseUrl === undefined && Object.keys(rules.paths).length === 0;
    return isEmpty ? undefined : { config, ...rules };
  }
  const parent = dirname(folder);
  return parent === folder ? undefined : readAliasRules(parent);
}

type Rules = Omit<AliasRules, 'config'>;

interface Reading {
  /** Folder of the nearest tsconfig.json. */
  configFolder: string;
  depth: number;
  /** What may still be read; the files of one tsconfig.json share it. */
  left: { files: number; bytes: number };
}

/** Returns undefined if the file does not exist or is not JSON, or if nothing more may be read. */
function readRules(file: string, reading: Reading): Rules | undefined {
  const { configFolder, depth, left } = reading;
  if (depth === 0 || left.files === 0) return undefined;
  left.files -= 1;
  const config = readConfig(file, left);
  if (!config) return undefined;
  const folder = dirname(file);
  const locate = (path: string, base = folder) =>
    resolve(
      base,
      path.replace(/^\$\{configDir\}/, () => configFolder),
    );
  const read = (path: string | undefined) =>
    path === undefined ? undefined : readRules(path, { ...reading, depth: depth - 1 });
  const bases = [config['extends']]
    .flat()
    .slice(0, left.files)
    .filter(isText)
    .map((name) => findBase(name, file));
  const inherited = bases.map(read).filter((rules) => rules !== undefined);
  const { baseUrl: givenBase, paths: givenPaths } = asObject(config['compilerOptions']);
  const baseUrl = isText(givenBase) ? locate(givenBase) : inherited.at(-1)?.baseUrl;
  const own = isObject(givenPaths)
    ? Object.entries(givenPaths).map(([pattern, targets]) => {
        const texts = Array.isArray(targets) ? targets.filter(isText) : [];
        return [pattern, texts.map((target) => locate(target, baseUrl ?? folder))] as const;
      })
    : undefined;
  const files = [file, ...inherited.flatMap((rules) => rules.files)];
  if (own) return { files, baseUrl, paths: Object.fromEntries(own) };
  const paths = inherited.findLast((rules) => Object.keys(rules.paths).length > 0)?.paths;
  if (paths ?? baseUrl) return { files, baseUrl, paths: paths ?? {} };
  // A tsconfig.json that only names others, such as tsconfig.app.json.
  const referred = [config['references']]
    .flat()
    .slice(0, left.files)
    .map((reference) => {
      const path = asObject(reference)['path'];
      if (!isText(path)) return undefined;
      const place = locate(path);
      return read(extname(place) === '.json' ? place : join(place, 'tsconfig.json'));
    });
  const found = referred.find((rules) => rules && Object.keys(rules.paths).length > 0);
  return found ? { ...found, files: [...files, ...found.files] } : { files, baseUrl, paths: {} };
}

/** The file that `extends` names: a path, or a file of a package. */
function findBase(name: string, file: string): string | undefined {
  if (/^\.{0,2}\//.test(name)) {
    const path = resolve(dirname(file), name);
    return extname(path) === '.json' ? path : `${path}.json`;
  }
  for (const each of [name, `${name}/tsconfig.json`]) {
    try {
      return createRequire(file).resolve(each);
    } catch {
      // The next one may exist.
    }
  }
  return undefined;
}

/**
 * Both match strings too, so that a comment or comma within a string stays. A string or comment without an end
 * reaches to the end of the text: an attempt that could fail there would make them quadratic.
 */
const COMMENTS = /("(?:\\[\s\S]?|[^"\\])*"?)|\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)/g;
const TRAILING_COMMAS = /("(?:\\[\s\S]?|[^"\\])*"?)|,(?=\s*[}\]])/g;

function readConfig(file: string, left: Reading['left']): Record<string, unknown> | undefined {
  try {
    const { size } = statSync(file);
    if (size > left.bytes) return undefined;
    left.bytes -= size;
    const text = readFileSync(file, 'utf8').replace(/^\uFEFF/, '');
    const keepStrings = (_: string, string: string | undefined) => string ?? '';
    return asObject(
      JSON.parse(text.replace(COMMENTS, keepStrings).replace(TRAILING_COMMAS, keepStrings)),
    );
  } catch {
    return undefined;
  }
}

function asObject(value: unknown): Record<string, unknown> {
  return isObject(value) ? value : {};
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isText(value: unknown): value is string {
  return typeof value === 'string';
}
