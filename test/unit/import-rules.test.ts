// Import rules: every import of the sources is checked against the tables of ARCHITECTURE.md.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { parseSync } from 'oxc-parser';
import { describe, expect, it } from 'vitest';

const root = resolve(import.meta.dirname, '../..');
const architecture = readFileSync(join(root, 'ARCHITECTURE.md'), 'utf8');

const modules = readTable('module').map(([[name = ''] = [], owned = [], allowed = []]) => ({
  name,
  owned,
  allowed,
}));
const folders = readTable('folder').map(([[name = ''] = [], allowed = []]) => ({ name, allowed }));

/** Modules and single files that each module may import, and packages if it may use only some. */
const mayImport = new Map([...modules, ...folders].map(({ name, allowed }) => [name, allowed]));

/** Parts that the others do not load. `importers` may import values from them; all others, only types or with `import()`. */
const edges = readTable('edge').map(([, files = [], , importers = []]) => ({ files, importers }));

/** Rows of the table whose first column has this title; each cell is the list of its names in backquotes. */
function readTable(title: string): string[][][] {
  const lines = architecture.split('\n');
  const start = lines.findIndex((line) => line.startsWith(`| ${title} |`)) + 2;
  const end = lines.findIndex((line, index) => index > start && !line.startsWith('|'));
  return lines.slice(start, end).map((line) => line.split(' | ').map(listNames));
}

function listNames(cell: string): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name);
}

interface Import {
  /** Path of the importing file from `src`, or from the repository's root if it is not in `src`. */
  file: string;
  line: number;
  /** The same of the imported file; or the name of a package. */
  target: string;
  isPackage: boolean;
  /** Whether the import loads the file together with the importing one: not of types only, and not by `import()`. */
  isEager: boolean;
}

function listFiles(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => /(?<!\.config)\.tsx?$/.test(file) && !file.includes('node_modules'))
    .map((file) => join(folder, file));
}

/** Imports in any form: of values, types and effects, exported again, and `import()`. */
function listImports(file: string, text: string): Import[] {
  const { dynamicImports, staticExports, staticImports } = parseSync(file, text).module;
  const requests = [
    ...staticImports.map(({ entries, moduleRequest }) => ({
      ...moduleRequest,
      isEager: entries.length === 0 || entries.some(({ isType }) => !isType),
    })),
    ...staticExports.flatMap(({ entries }) =>
      entries.flatMap(({ isType, moduleRequest }) =>
        moduleRequest ? { ...moduleRequest, isEager: !isType } : [],
      ),
    ),
    ...dynamicImports.map(({ moduleRequest }) => ({ ...moduleRequest, isEager: false })),
  ];
  return requests.flatMap(({ end, isEager, start }) => {
    const [, specifier] = /^['"](.*)['"]$/.exec(text.slice(start, end)) ?? [];
    if (specifier === undefined) return [];
    const isPackage = !specifier.startsWith('.');
    const target = isPackage ? specifier : fromSources(join(dirname(file), specifier));
    const line = text.slice(0, start).split('\n').length;
    return [{ file: fromSources(file), line, target, isPackage, isEager }];
  });
}

function fromSources(path: string): string {
  return path.replace(/^src\//, '');
}

/** Why the import is refused; undefined if it is allowed. */
function refuse(found: Import): string | undefined {
  return refuseOfModule(found) ?? (isOfModule(found.file) ? refuseOfEdge(found) : undefined);
}

function isOfModule(file: string): boolean {
  return modules.some(({ name }) => isBelow(file, name));
}

function refuseOfEdge({ file, isEager, target }: Import): string | undefined {
  const isOne = (path: string, names: readonly string[]) =>
    names.some((name) => isBelow(path, name));
  const edge = edges.find(({ files }) => isOne(target, files));
  if (!edge || !isEager || isOne(file, [...edge.files, ...edge.importers])) return undefined;
  return `only ${edge.importers.join(', ') || 'its own files'} may import this edge; use import()`;
}

function refuseOfModule({ file, isPackage, target }: Import): string | undefined {
  const [module = ''] = file.split('/');
  // Entry points export from every module. The templates of `millrace init` become projects of users.
  if (module === file || isBelow(file, 'cli/commands/init-template')) return undefined;
  const allowed = mayImport.get(module);
  if (!allowed) return `ARCHITECTURE.md does not list ${module}`;
  if (!isPackage) {
    const isAllowed = [module, ...allowed].some((name) => isBelow(target, name));
    return isAllowed ? undefined : `${module} may import ${allowed.join(', ') || 'nothing'}`;
  }
  if (isBelow(target, 'millrace') && isOfModule(file)) {
    return 'modules import each other by path';
  }
  const packages = allowed.filter((name) => !isOurs(name));
  const isAllowed = packages.length === 0 || packages.some((name) => isBelow(target, name));
  return isAllowed ? undefined : `of packages, ${module} may use ${packages.join(', ')}`;
}

function isOurs(name: string): boolean {
  return mayImport.has(name.split('/')[0] ?? '') || /\.ts$|^test$/.test(name);
}

function isBelow(path: string, folder: string): boolean {
  return path === folder || path.startsWith(`${folder}/`) || path.startsWith(`${folder}:`);
}

function listRefused(imports: readonly Import[]): string[] {
  return imports.flatMap((found) => {
    const reason = refuse(found);
    return reason === undefined
      ? []
      : `${found.file}:${found.line} imports ${found.target}: ${reason}`;
  });
}

describe('import rules', () => {
  it('allow every import of the sources', () => {
    const files = ['src', ...folders.map(({ name }) => name)].flatMap(listFiles);
    const imports = files.flatMap((file) =>
      listImports(file, readFileSync(join(root, file), 'utf8')),
    );
    expect(listRefused(imports)).toEqual([]);
    expect(imports.length).toBeGreaterThan(2000);
  });

  it('name only files and modules that exist', () => {
    const named = [
      ...mayImport.values(),
      ...edges.flatMap(({ files, importers }) => [files, importers]),
      ...modules.map(({ name, owned }) =>
        owned.filter((part) => /\/$|\.ts$/.test(part)).map((part) => join(name, part)),
      ),
    ];
    const ours = named.flat().filter(isOurs);
    const missing = ours.filter((name) => !existsSync(join(root, 'src', name)));
    expect(missing.filter((name) => !existsSync(join(root, name)))).toEqual([]);
  });

  it.each([
    ['a type', "import type { Queue } from '../queue/queue.ts';"],
    ['a value', "import { Queue } from '../queue/queue.ts';"],
    ['an effect', "import '../queue/queue.ts';"],
    ['a lazy value', "const load = () => import('../queue/queue.ts');"],
    ['a value that is exported again', "export { Queue } from '../queue/queue.ts';"],
    ['everything that is exported again', "export * from '../queue/queue.ts';"],
  ])('refuse %s of another module', (_, text) => {
    expect(listRefused(listImports('src/worker/worker.ts', `\n${text}`))).toEqual([
      'worker/worker.ts:2 imports queue/queue.ts: worker may import handler, wire, base',
    ]);
  });

  it.each([
    ['control/pods/pods.ts', '../../store/sqlite/sqlite.ts', 'control may import store/store.ts'],
    ['base/clock.ts', '../wire/job/job.ts', 'base may import nothing'],
    ['unlisted/new.ts', '../base/clock.ts', 'ARCHITECTURE.md does not list unlisted'],
    ['unlisted/deep/new.ts', '../../base/clock.ts', 'ARCHITECTURE.md does not list unlisted'],
    ['queue/queue.ts', 'millrace/client', 'modules import each other by path'],
    ['wire/job/job.ts', 'pino', 'of packages, wire may use zod, node'],
    ['control/pods/pods.ts', '../../engine/docker/docker-engine.ts', 'control may import'],
    [
      'platform/machine.ts',
      '../engine/docker/docker-engine.ts',
      'only its own files may import this edge',
    ],
    [
      'api/assembly.ts',
      './runpod/runpod.ts',
      'only api/adapters.ts, api/openai, cli/worker/runpod.ts may',
    ],
    ['store/sqlite/sqlite.ts', 'pg', 'only cluster, platform/nodes may'],
    ['../console/src/main.tsx', 'node:fs', 'of packages, console may use preact, uplot'],
  ])('refuse in %s an import of %s, and say why', (file, specifier, reason) => {
    expect(listRefused(listImports(join('src', file), `import '${specifier}';`))).toEqual([
      expect.stringContaining(reason),
    ]);
  });

  it.each([
    ['control/pods/pods.ts', '../../store/store.ts'],
    ['wire/job/job.ts', 'zod/v4'],
    ['wire/job/job.ts', 'node:crypto'],
    ['client.ts', './queue/queue.ts'],
    ['api/adapters.ts', './runpod/runpod.ts'],
    ['api/runpod/runpod.ts', './worker-routes.ts'],
  ])('allow in %s an import of %s', (file, specifier) => {
    expect(listRefused(listImports(join('src', file), `import '${specifier}';`))).toEqual([]);
  });

  it.each([
    "const load = () => import('../engine/docker/docker-engine.ts');",
    "import type { DockerEngine } from '../engine/docker/docker-engine.ts';",
  ])('allow every file of the module to write: %s', (text) => {
    expect(listRefused(listImports('src/platform/machine.ts', text))).toEqual([]);
  });

  it.each(['handlers/echo.ts', 'examples/hello/handler.ts', 'bench/bench.ts'])(
    'let %s import the package by its name only',
    (file) => {
      const up = '../'.repeat(file.split('/').length - 1);
      const listed = (specifier: string) =>
        listRefused(listImports(file, `import '${specifier}';`));
      expect(listed(`${up}src/index.ts`)).toHaveLength(1);
      expect(listed(`${up}dist/index.js`)).toHaveLength(1);
      expect([...listed('millrace/testing'), ...listed('sharp')]).toEqual([]);
    },
  );
});
