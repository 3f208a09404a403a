// Reads path aliases, which Node does not know: `paths` and `baseUrl` of a tsconfig.json and of the files that it extends.
import { readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, extname, join, resolve } from 'node:path';

const CONFIG_NAMES = ['tsconfig.json', 'jsconfig.json'];
/** Longest chain of `extends` and `references`. */
const MAX_DEPTH = 10;
const MAX_CONFIG_BYTES = 1_048_576;

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
    const rules = readRules(config, folder, MAX_DEPTH);
    if (!rules) continue;
    const isEmpty = rules.baseUrl === undefined && Object.keys(rules.paths).length === 0;
    return isEmpty ? undefined : { config, ...rules };
  }
  const parent = dirname(folder);
  return parent === folder ? undefined : readAliasRules(parent);
}

type Rules = Omit<AliasRules, 'config'>;

/** Returns undefined if the file does not exist or is not JSON. `configFolder`: folder of the nearest tsconfig.json. */
function readRules(file: string, configFolder: string, depth: number): Rules | undefined {
  const config = depth > 0 ? readConfig(file) : undefined;
  if (!config) return undefined;
  const folder = dirname(file);
  const locate = (path: string, base = folder) =>
    resolve(
      base,
      path.replace(/^\$\{configDir\}/, () => configFolder),
    );
  const read = (path: string | undefined) =>
    path === undefined ? undefined : readRules(path, configFolder, depth - 1);
  const bases = [config['extends']]
    .flat()
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
  const referred = [config['references']].flat().map((reference) => {
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

/** Both match strings too, so that a comment or comma within a string stays. */
const COMMENTS = /("(?:\\.|[^"\\])*")|\/\/[^\n]*|\/\*[\s\S]*?\*\//g;
const TRAILING_COMMAS = /("(?:\\.|[^"\\])*")|,(?=\s*[}\]])/g;

function readConfig(file: string): Record<string, unknown> | undefined {
  try {
    if (statSync(file).size > MAX_CONFIG_BYTES) return undefined;
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
