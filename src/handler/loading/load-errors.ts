// Explains a failed import of a handler module to its author: file, line, remedy. load.ts loads
// modules.
import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, extname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const ERASABLE_REMEDIES: readonly (readonly [RegExp, string])[] = [
  [/enum/, 'use a const object (`const Color = { red: 0 } as const`)'],
  [/parameter property/, 'declare the field and assign it in the constructor'],
  [/namespace|module declaration/, 'use a separate module, or a plain object'],
  [/import.*=|export.*=/, 'use `import … from` and `export`'],
];

/** TypeScript sources that authors commonly mean by a specifier with this extension. */
const SOURCE_EXTENSIONS: Readonly<Record<string, readonly string[]>> = {
  '.js': ['.ts', '.tsx'],
  '.mjs': ['.mts'],
  '.cjs': ['.cts'],
  '': ['.ts', '.mts', '.js', '.mjs'],
};

/** Returns a text for people; `path` is the handler's file, which may not be where the fault is. */
export function explainLoadError(error: unknown, path: string): string {
  if (!(error instanceof Error)) return `${path}: the module threw ${String(error)}`;
  const code = 'code' in error ? error.code : undefined;
  switch (code) {
    case 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX':
      return explainUnsupportedSyntax(error, path);
    case 'ERR_MODULE_NOT_FOUND':
    case 'ERR_UNSUPPORTED_DIR_IMPORT':
      return explainNotFound(error, path);
    case 'ERR_UNSUPPORTED_NODE_MODULES_TYPE_STRIPPING':
      return (
        `${path}: ${error.message}. Node strips types only outside node_modules; ` +
        'compile that package to JavaScript, or import its compiled files'
      );
  }
  if (error instanceof SyntaxError) return explainSyntax(error, path);
  return `${path}: the module threw while it was loaded: ${error.stack ?? error.message}`;
}

function explainUnsupportedSyntax(error: Error, path: string): string {
  const remedy = ERASABLE_REMEDIES.find(([pattern]) => pattern.test(error.message))?.[1];
  return (
    `${locate(error) ?? path}: ${error.message}: use erasable syntax only, ` +
    `Node runs TypeScript by removing the types${remedy ? `; ${remedy}` : ''}`
  );
}

function explainSyntax(error: Error, path: string): string {
  const place = locate(error) ?? path;
  if (/^Unexpected token 'export'|^Cannot use import statement/.test(error.message)) {
    return (
      `${place}: ${error.message}: the nearest package.json says that its files are CommonJS; ` +
      'set its `"type"` to `"module"`: `npm pkg set type=module`'
    );
  }
  const missing = /does not provide an export named '(.+)'/.exec(error.message)?.[1];
  if (missing === undefined) return `${place}: ${error.message}`;
  return `${place}: ${error.message}. If ${missing} is a type, write \`import type { ${missing} }\``;
}

function explainNotFound(error: Error, path: string): string {
  const match =
    /^(?:Cannot find|Directory import) (module|package)? ?'(.+?)'.* imported from (.+)$/s;
  const [, kind, target, importer] = match.exec(error.message) ?? [];
  if (target === undefined || importer === undefined) return `${path}: ${error.message}`;
  if (kind === 'package') {
    const place = locateImport(importer, (specifier) => specifier.startsWith(target));
    return `${place}: cannot find package '${target}': npm install ${target}`;
  }
  const place = locateImport(importer, (specifier) => basename(specifier) === basename(target));
  const source = findSource(target);
  if (source === undefined) return `${place}: cannot find '${target}'`;
  return `${place}: cannot find '${target}': import '${specify(importer, source)}' instead`;
}

/** The intended file, if only the extension is wrong or missing. */
function findSource(target: string): string | undefined {
  const extension = extname(target);
  const stem = target.slice(0, target.length - extension.length);
  const candidates = [
    ...(SOURCE_EXTENSIONS[extension] ?? []).map((source) => stem + source),
    ...(SOURCE_EXTENSIONS[''] ?? []).map((source) => target + source),
    join(target, 'index.ts'),
    join(target, 'index.js'),
  ];
  return candidates.find((candidate) => existsSync(candidate));
}

function specify(importer: string, source: string): string {
  const path = relative(dirname(importer), source).replaceAll('\\', '/');
  return path.startsWith('.') ? path : `./${path}`;
}

/** `file:line` of the import; only the file if the line is not found. */
function locateImport(importer: string, isMeant: (specifier: string) => boolean): string {
  const lines = existsSync(importer) ? readFileSync(importer, 'utf8').split('\n') : [];
  const index = lines.findIndex((line) =>
    [...line.matchAll(/['"]([^'"]+)['"]/g)].some(([, specifier]) => isMeant(specifier ?? '')),
  );
  return index === -1 ? importer : `${importer}:${index + 1}`;
}

/**
 * Node puts the position of a syntax error on the first line of its stack: `file:///…/x.ts:12`. If
 * no package.json gives the module type, it is the bare path.
 */
function locate(error: Error): string | undefined {
  const found = /^(file:\/\/\S+|\/.+|[A-Za-z]:\\.+):(\d+)\n/.exec(error.stack ?? '');
  const [, place, line] = found ?? [];
  if (place === undefined) return undefined;
  return `${place.startsWith('file:') ? fileURLToPath(place) : place}:${line}`;
}
