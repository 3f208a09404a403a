// Explains a failed import of a handler module to its author: file, line, remedy. For an error that Node reports
// without a place, it reads the imports of the handler's own modules from their texts. load.ts loads modules.

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { isPlainObject } from '../../wire/json.ts';
import { findAlias, findSource } from './path-aliases.ts';

const ERASABLE_REMEDIES: readonly (readonly [RegExp, string])[] = [
  [/enum/, 'use a const object (`const Color = { red: 0 } as const`)'],
  [/parameter property/, 'declare the field and assign it in the constructor'],
  [/import equals/, "write `import x from '…'`, or in a .cts file `const x = require('…')`"],
  [/export assignment/, 'write `export default …`, or in a .cts file `module.exports = …`'],
  [/namespace|module declaration/, 'use a separate module, or a plain object'],
];

const COMPILE = 'compile the handler to JavaScript (tsc, esbuild) and name the compiled file';

/** Lists of package.json whose packages the author has chosen. */
const LISTS = ['dependencies', 'optionalDependencies', 'peerDependencies', 'devDependencies'];

const IMPORT = /\b(?:from|import|require)\s*\(?\s*(['"])([^'"\n]+)\1/g;
const MODULE = /\.[cm]?[jt]s$/;
const MAX_MODULES = 1_000;
const MAX_MODULE_BYTES = 1_048_576;
const CHECK_TIMEOUT_MS = 10_000;

/** Returns a text for people; `path` is the handler's file, which may not be where the fault is. */
export function explainLoadError(error: unknown, path: string): string {
  if (!(error instanceof Error)) return `${path}: the module threw ${String(error)}`;
  const { message } = error;
  switch ('code' in error ? error.code : undefined) {
    case 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX':
      return explainUnsupportedSyntax(error, path);
    case 'ERR_MODULE_NOT_FOUND':
    case 'ERR_UNSUPPORTED_DIR_IMPORT':
    case 'ERR_INVALID_MODULE_SPECIFIER':
    case 'ERR_PACKAGE_IMPORT_NOT_DEFINED':
    case 'ERR_PACKAGE_PATH_NOT_EXPORTED':
      return explainNotFound(message, path);
    case 'MODULE_NOT_FOUND':
      return explainNotRequired(error, path);
    case 'ERR_IMPORT_ATTRIBUTE_MISSING':
      return explainAttribute(message, path);
    case 'ERR_UNKNOWN_FILE_EXTENSION':
      return explainExtension(message, path);
    case 'ERR_UNSUPPORTED_ESM_URL_SCHEME': {
      const found = findImport(path, ({ specifier }) =>
        /^(?!file:|node:|data:)\w\w+:/.test(specifier),
      );
      const what = found
        ? `${found.place}: cannot import '${found.specifier}'`
        : `${path}: ${message}`;
      return `${what}: Node imports only files, packages and its own modules`;
    }
    case 'ERR_UNSUPPORTED_NODE_MODULES_TYPE_STRIPPING':
      return (
        `${path}: ${message}. Node strips types only outside node_modules; ` +
        'compile that package to JavaScript, or import its compiled files'
      );
  }
  if (error instanceof SyntaxError) return explainSyntax(error, path);
  return `${path}: the module threw while it was loaded: ${error.stack ?? message}`;
}

function explainUnsupportedSyntax({ message, stack }: Error, path: string): string {
  const remedy = ERASABLE_REMEDIES.find(([pattern]) => pattern.test(message))?.[1];
  return (
    `${locate(stack) ?? path}: ${message}: use erasable syntax only, ` +
    `Node runs TypeScript by removing the types${remedy ? `; ${remedy}` : ''}`
  );
}

function explainSyntax({ message, stack }: Error, path: string): string {
  const shown = locate(stack) === undefined ? findSyntaxError(path, message) : stack;
  const what = `${locate(shown) ?? path}: ${message}`;
  if (/^Unexpected token 'export'|^Cannot use import statement/.test(message)) {
    return (
      `${what}: the nearest package.json says that its files are CommonJS; ` +
      'set its `"type"` to `"module"`: `npm pkg set type=module`'
    );
  }
  // Type stripping leaves decorators as they are, and V8 does not know them.
  if (/^.+\n[^'"`]*(?<!\w)@[A-Za-z_$]/.test(shown ?? '')) {
    return `${what}: Node does not run decorators; call the function yourself, or ${COMPILE}`;
  }
  const missing = /does not provide an export named '(.+)'/.exec(message)?.[1];
  if (missing === undefined) return what;
  return `${what}. If ${missing} is a type, write \`import type { ${missing} }\``;
}

function explainNotFound(message: string, path: string): string {
  const [, what = message, importer] = /^(.*) imported from (.+)$/s.exec(message) ?? [];
  const [, kind, target] = /(\w+)? ?["'](.+?)["']/.exec(what) ?? [];
  if (importer === undefined || target === undefined) return `${path}: ${message}`;
  if (/^Package subpath/.test(what)) {
    const subpath = target.slice(1);
    return `${locateImport(importer, (each) => each.endsWith(subpath)).place}: ${what}`;
  }
  if (
    kind === 'package' ||
    kind === 'specifier' ||
    (kind === 'module' && !/^[./]|^\w:/.test(target))
  ) {
    const isMeant = (each: string) => each === target || each.startsWith(`${target}/`);
    return explainPackage(locateImport(importer, isMeant, target), importer);
  }
  const { place } = locateImport(importer, (each) => basename(each) === basename(target));
  return explainFile({ place, target }, importer);
}

/** Node names the modules that have led to a call of `require`, the caller first. */
function explainNotRequired(error: Error, path: string): string {
  const specifier = /^Cannot find (?:module|package) '(.+?)'/.exec(error.message)?.[1];
  const stack: unknown = 'requireStack' in error ? error.requireStack : undefined;
  const importer: unknown = Array.isArray(stack) ? stack[0] : undefined;
  if (specifier === undefined || typeof importer !== 'string') return `${path}: ${error.message}`;
  const found = locateImport(importer, (each) => each === specifier, specifier);
  if (!/^\.{0,2}\//.test(specifier)) return explainPackage(found, importer);
  const target = join(dirname(importer), specifier);
  return explainFile({ place: found.place, target }, importer);
}

function explainFile(
  { place, target }: { place: string; target: string },
  importer: string,
): string {
  const source = findSource(target);
  if (source === undefined) return `${place}: cannot find '${target}'`;
  return `${place}: cannot find '${target}': import '${specify(importer, source)}' instead`;
}

/** Proposes no package to install that package.json does not list: anybody may own the name. */
function explainPackage(
  { place, specifier }: { place: string; specifier: string },
  importer: string,
): string {
  const problem = `${place}: cannot find '${specifier}'`;
  const name = readPackageName(specifier);
  const folder = findManifestFolder(dirname(importer));
  const list = folder === undefined ? undefined : findList(name, folder);
  if (list === 'devDependencies') {
    return `${problem}: ${name} is one of the devDependencies, which workers do not install; move it to the dependencies`;
  }
  if (list !== undefined) {
    return `${problem}: package.json lists ${name}, but it is not installed; run npm install, or that of your package manager`;
  }
  const source = findOwnSource(specifier, importer, folder);
  if (source !== undefined) return `${problem}: import '${specify(importer, source)}' instead`;
  const alias = findAlias(specifier, importer);
  if (alias?.targets.length) {
    return `${problem}: by ${alias.config} it is ${alias.targets.join(' or ')}, which does not exist`;
  }
  if (specifier.startsWith('#')) return `${problem}: define it in \`imports\` of package.json`;
  if (/^(~|@\/)/.test(specifier)) {
    return `${problem}: import the file by its path, or define the alias in \`paths\` of tsconfig.json`;
  }
  return `${problem}: package.json does not list ${name}; the path of a file begins with ./ or ../`;
}

/** The file of the project that the author may mean, below a folder between the importing file and package.json. */
function findOwnSource(
  specifier: string,
  importer: string,
  top: string | undefined,
): string | undefined {
  const path = specifier.replace(/^[@~#]\//, '');
  let folder = dirname(importer);
  for (;;) {
    const found = [join(folder, path), join(folder, 'src', path)]
      .map(findSource)
      .find((file) => file !== undefined && file !== importer);
    const parent = dirname(folder);
    if (found !== undefined || top === undefined || folder === top || parent === folder)
      return found;
    folder = parent;
  }
}

function explainAttribute(message: string, path: string): string {
  const url = /"(file:.+?)"/.exec(message)?.[1];
  const file = url === undefined ? undefined : fileURLToPath(url);
  const found = findImport(path, ({ target }) => target === file);
  if (!found) return `${path}: ${message}`;
  return `${found.place}: a JSON file needs an attribute: import … from '${found.specifier}' with { type: 'json' }`;
}

function explainExtension(message: string, path: string): string {
  const [, extension = '', file] = /file extension "(.*?)" for (.+)$/.exec(message) ?? [];
  const found = findImport(path, ({ target }) => target === file);
  const what = `${found?.place ?? path}: Node cannot run ${extension} files${found ? ` ('${found.specifier}')` : ''}`;
  if (/^\.[jt]sx$/.test(extension)) {
    return `${what}; rename it to .ts if it has no JSX, or ${COMPILE}`;
  }
  const name = basename(file ?? '');
  return `${what}; read it: \`readFileSync(new URL('./${name}', import.meta.url))\``;
}

function specify(importer: string, source: string): string {
  const path = relative(dirname(importer), source).replaceAll('\\', '/');
  return path.startsWith('.') ? path : `./${path}`;
}

/** The import that is meant; the file alone and the text given if its line is not found. */
function locateImport(
  importer: string,
  isMeant: (specifier: string) => boolean,
  specifier = '',
): { place: string; specifier: string } {
  const found = listImports(importer).find((each) => isMeant(each.specifier));
  return found ?? { place: importer, specifier };
}

function readPackageName(specifier: string): string {
  return specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
}

function findManifestFolder(folder: string): string | undefined {
  if (existsSync(join(folder, 'package.json'))) return folder;
  const parent = dirname(folder);
  return parent === folder ? undefined : findManifestFolder(parent);
}

/** The list of package.json that has the package. */
function findList(name: string, folder: string): string | undefined {
  try {
    const manifest: unknown = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    return LISTS.find((list) => {
      const packages = isPlainObject(manifest) ? manifest[list] : undefined;
      return isPlainObject(packages) && Object.hasOwn(packages, name);
    });
  } catch {
    return undefined;
  }
}

/**
 * Node puts the position of a syntax error on the first line of its stack: `file:///…/x.ts:12`. If
 * no package.json gives the module type, it is the bare path.
 */
function locate(stack: string | undefined): string | undefined {
  const [, place, line] = /^(file:\/\/\S+|\/.+|[A-Za-z]:\\.+):(\d+)\n/.exec(stack ?? '') ?? [];
  if (place === undefined) return undefined;
  return `${place.startsWith('file:') ? fileURLToPath(place) : place}:${line}`;
}

interface FoundImport {
  specifier: string;
  /** `file:line` */
  place: string;
  /** Absolute path; undefined for packages. */
  target: string | undefined;
}

export function listImports(file: string): FoundImport[] {
  const text = readText(file);
  return [...text.matchAll(IMPORT)].map(({ 2: specifier = '', index }) => {
    const line = text.slice(0, index).split('\n').length;
    return { specifier, place: `${file}:${line}`, target: locateTarget(specifier, file) };
  });
}

/** The first matching import of the handler's file or of a module that it imports. */
function findImport(
  entry: string,
  isMeant: (found: FoundImport) => boolean,
): FoundImport | undefined {
  for (const file of walkModules(entry)) {
    const found = listImports(file).find(isMeant);
    if (found) return found;
  }
  return undefined;
}

/** The handler's file and the modules that it imports, without those of packages. */
function* walkModules(entry: string): Generator<string> {
  const seen = new Set([entry]);
  // The loop also visits what it adds.
  for (const file of seen) {
    yield file;
    for (const { target } of listImports(file)) {
      if (seen.size >= MAX_MODULES) break;
      if (target !== undefined && MODULE.test(target)) seen.add(target);
    }
  }
}

function locateTarget(specifier: string, importer: string): string | undefined {
  if (specifier.startsWith('file:')) return fileURLToPath(specifier);
  if (/^\.{0,2}\//.test(specifier)) return resolve(dirname(importer), specifier);
  return findAlias(specifier, importer)?.file;
}

function readText(file: string): string {
  try {
    return statSync(file).size > MAX_MODULE_BYTES ? '' : readFileSync(file, 'utf8');
  } catch {
    return '';
  }
}

/** Compiles each module without running it; throws the error that has the message given first. */
const CHECK = `
  import { readFileSync } from 'node:fs';
  import { stripTypeScriptTypes } from 'node:module';
  import { SourceTextModule } from 'node:vm';
  const [message, ...files] = process.argv.slice(1);
  for (const file of files) {
    try {
      const text = readFileSync(file, 'utf8');
      new SourceTextModule(/ts$/.test(file) ? stripTypeScriptTypes(text) : text, { identifier: file });
    } catch (error) {
      if (error.message === message) throw error;
    }
  }`;

/**
 * Returns what Node prints for the first syntax error with this message: `file:line`, the line, a marker. Runs in a
 * process of its own, because Node adds the place only to uncaught errors.
 */
function findSyntaxError(entry: string, message: string): string | undefined {
  const options = ['--no-warnings', '--experimental-vm-modules', '--input-type=module'];
  const args = [...options, '--eval', CHECK, '--', message, ...walkModules(entry)];
  const { stderr } = spawnSync(process.execPath, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'ignore', 'pipe'],
    timeout: CHECK_TIMEOUT_MS,
    killSignal: 'SIGKILL',
  });
  return stderr || undefined;
}
