// What may be a handler module, and what its author is told when his is none.
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { HandlerLoadError, readHandler } from '../../../../src/handler/loading/load.ts';

const runFile = promisify(execFile);
const loader = join(import.meta.dirname, '../../../support/load-handlers.ts');

interface Loaded {
  answer?: unknown;
  hasInput?: boolean;
  config?: unknown;
  error?: string;
}

const files: Record<string, string> = {
  'package.json': '{ "type": "module" }',
  'exports.ts': `
    export const config = { concurrency: 3 };
    export const input = { '~standard': { version: 1, vendor: 'x', validate: (value: unknown) => ({ value }) } };
    export default async (job: { input: number }): Promise<number> => job.input + 1;`,
  'definition.ts': 'export default { run: (job: { input: number }) => job.input + 2, config: {} };',
  'common.cjs': 'module.exports = (job) => job.input + 3;',
  'compiled.cjs':
    "Object.defineProperty(exports, '__esModule', { value: true }); exports.default = (job) => job.input + 4;",
  'x.ts': 'export const x: number = 1;\nexport type T = number;',
  'folder/index.ts': 'export const x = 1;',
  'node_modules/typed/package.json': '{ "name": "typed", "type": "module", "main": "index.ts" }',
  'node_modules/typed/index.ts': 'export const x: number = 1;',
  'enum.ts': 'const one = 1;\nenum Color { Red }\nexport default () => Color.Red + one;',
  'property.ts':
    'class A {\n  constructor(private x: number) {}\n}\nexport default () => new A(1);',
  'namespace.ts': '\n\nnamespace N { export const a = 1; }\nexport default () => N.a;',
  'js-specifier.ts': "// A comment.\nimport { x } from './x.js';\nexport default () => x;",
  'no-extension.ts': "import { x } from './x';\nexport default () => x;",
  'directory.ts': "import { x } from './folder';\nexport default () => x;",
  'missing-import.ts': "import { x } from './nowhere.ts';\nexport default () => x;",
  'missing-package.ts': "\nimport x from 'no-such-package-here';\nexport default () => x;",
  'typed-package.ts': "import { x } from 'typed';\nexport default () => x;",
  'type-import.ts': "import { T } from './x.ts';\nexport default (): T => 1;",
  'syntax.ts': 'export default () => {\n  let = ;\n};',
  'throws.ts': "throw new Error('no licence');",
  'common/package.json': '{ "type": "commonjs" }',
  'common/export.ts': '\nexport default () => 1;',
  'common/import.ts': "import { x } from '../x.ts';\nexport default () => x;",
  'bare/package.json': '{}',
  'bare/handler.ts': "import { Color } from './color.ts';\nexport default () => Color.Red;",
  'bare/color.ts': '\nexport enum Color { Red }',
  'lists/package.json':
    '{ "type": "module", "dependencies": { "@own/here": "1" }, "devDependencies": { "own-dev": "1" } }',
  'lists/listed.ts': "import x from '@own/here/part';\nexport default () => x;",
  'lists/listed-dev.ts': "import x from 'own-dev';\nexport default () => x;",
  'lists/src/own.ts': 'export const x = 1;',
  'lists/no-alias.ts': "import { x } from '@/own';\nexport default () => x;",
  'lists/no-tilde.ts': "import { x } from '~/none';\nexport default () => x;",
  'lists/no-base.ts': "import { x } from 'src/own';\nexport default () => x;",
  'lists/no-hash.ts': "import { x } from '#none';\nexport default () => x;",
  'lists/subpath.ts': "\nimport { x } from 'closed/none';\nexport default () => x;",
  'lists/node_modules/closed/package.json': '{ "name": "closed", "exports": "./index.js" }',
  'aliased/tsconfig.json':
    '{\n  // The base has the paths.\n  "extends": "./tsconfig.base", "include": ["src/**/*.ts",],\n}',
  'aliased/tsconfig.base.json':
    '{ "compilerOptions": { "baseUrl": ".", "paths": { "@/*": ["./none/*", "./src/*"], "~lib": ["./src/lib.ts"] } } }',
  'aliased/src/lib.ts': "export { deep } from '@/deep/index.js';",
  'aliased/src/deep/index.ts': 'export const deep: number = 41;',
  'aliased/star.ts': "import { deep } from '@/lib';\nexport default () => deep + 1;",
  'aliased/exact.ts': "import { deep } from '~lib';\nexport default () => deep + 2;",
  'aliased/base.ts': "import { deep } from 'src/lib';\nexport default () => deep + 3;",
  'aliased/required.cjs': "module.exports = () => require('@/deep').deep + 4;",
  'aliased/gone.ts': "import { deep } from '@/gone';\nexport default () => deep;",
  'aliased/broken.ts': "import { deep } from '@/broken';\nexport default () => deep;",
  'aliased/src/broken.ts': '\nclass A { @bound run() {} }\nexport const deep = A;',
  'decorator.ts': "import './x.ts';\nclass A {\n  @bound run() {}\n}\nexport default () => A;",
  'syntax-js.ts': "import './broken.js';\nexport default () => 1;",
  'broken.js': '\n\nconst a = ;',
  'json.ts': "import './imports-json.ts';\nexport default () => 1;",
  'imports-json.ts': "\nimport data from './data.json';\nexport default () => data;",
  'data.json': '{}',
  'jsx.tsx': 'export default () => <div />;',
  'style.ts': "import './style.css';\nexport default () => 1;",
  'style.css': '',
  'url.ts': "import 'https://example.test/x.js';\nexport default () => 1;",
  'export-equals.cts': 'export = () => 1;',
  'import-equals.ts': "import fs = require('node:fs');\nexport default () => fs;",
  'requires.cjs': "\nmodule.exports = require('no-such-package-here');",
  'class.ts': 'export default class Resize { run() {} }',
  'instance.ts': 'export default new (class { #count = 6; run() { return this.#count; } })();',
  'no-default.ts': 'export const run = () => 1;',
  'not-function.ts': "export default 'hello';",
};

let folder = '';
const loaded = new Map<string, Loaded>();

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-load-'));
  for (const [name, source] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), source);
  }
  const names = [
    ...Object.keys(files).filter((name) =>
      /^((bare|common|lists|aliased)\/)?[^/]+\.([cm]?tsx?|cjs)$/.test(name),
    ),
    'gone.ts',
  ];
  const paths = names.map((name) => join(folder, name));
  const { stdout } = await runFile(process.execPath, [loader, ...paths]);
  const results: Loaded[] = JSON.parse(stdout);
  for (const [index, name] of names.entries()) loaded.set(name, results[index] ?? {});
});

afterAll(() => rm(folder, { recursive: true, force: true }));

describe('loadHandler', () => {
  it('loads a function with named exports from TypeScript', () => {
    const expected = { answer: 2, hasInput: true, config: { concurrency: 3 } };
    expect(loaded.get('exports.ts')).toEqual(expected);
  });

  it('loads a definition as one value', () => {
    expect(loaded.get('definition.ts')).toMatchObject({ answer: 3 });
  });

  it('loads CommonJS, also when it was compiled from a default export', () => {
    expect(loaded.get('common.cjs')).toMatchObject({ answer: 4 });
    expect(loaded.get('compiled.cjs')).toMatchObject({ answer: 5 });
  });

  it('resolves the paths and the baseUrl of tsconfig.json', () => {
    expect(loaded.get('aliased/star.ts')).toMatchObject({ answer: 42 });
    expect(loaded.get('aliased/exact.ts')).toMatchObject({ answer: 43 });
    expect(loaded.get('aliased/base.ts')).toMatchObject({ answer: 44 });
    expect(loaded.get('aliased/required.cjs')).toMatchObject({ answer: 45 });
  });

  it('lets the methods of a definition use `this`', () => {
    expect(loaded.get('instance.ts')).toMatchObject({ answer: 6 });
  });

  it('proposes to install no package that package.json does not list', () => {
    const errors = [...loaded].filter(([name]) => !name.startsWith('lists/listed'));
    for (const [, { error }] of errors) expect(error ?? '').not.toContain('npm install');
  });

  it.each([
    ['gone.ts', /gone\.ts: file not found/],
    ['no-default.ts', /no-default\.ts: no default export; write `export default/],
    ['not-function.ts', /not-function\.ts: the default export must be a function.*a string/],
    ['enum.ts', /enum\.ts:2: TypeScript enum.*erasable syntax.*const object/],
    ['bare/handler.ts', /bare\/color\.ts:2: TypeScript enum.*erasable syntax/],
    ['property.ts', /property\.ts:2: TypeScript parameter property.*erasable syntax.*constructor/],
    ['namespace.ts', /namespace\.ts:3: TypeScript namespace.*erasable syntax/],
    ['js-specifier.ts', /js-specifier\.ts:2: cannot find '.*x\.js': import '\.\/x\.ts' instead/],
    ['no-extension.ts', /no-extension\.ts:1: .*import '\.\/x\.ts' instead/],
    ['directory.ts', /directory\.ts:1: .*import '\.\/folder\/index\.ts' instead/],
    ['missing-import.ts', /missing-import\.ts:1: cannot find '.*nowhere\.ts'$/],
    ['missing-package.ts', /missing-package\.ts:2: .*package\.json does not list no-such-package-/],
    [
      'lists/listed.ts',
      /listed\.ts:1: .*'@own\/here\/part': package\.json lists @own\/here.*npm install/,
    ],
    ['lists/listed-dev.ts', /listed-dev\.ts:1: .*own-dev is one of the devDependencies.*move it/],
    [
      'lists/no-alias.ts',
      /no-alias\.ts:1: cannot find '@\/own': import '\.\/src\/own\.ts' instead/,
    ],
    ['lists/no-tilde.ts', /no-tilde\.ts:1: cannot find '~\/none': .*`paths` of tsconfig\.json/],
    [
      'lists/no-base.ts',
      /no-base\.ts:1: cannot find 'src\/own': import '\.\/src\/own\.ts' instead/,
    ],
    ['lists/no-hash.ts', /no-hash\.ts:1: cannot find '#none': define it in `imports`/],
    ['lists/subpath.ts', /subpath\.ts:2: Package subpath '\.\/none' is not defined/],
    [
      'aliased/gone.ts',
      /gone\.ts:1: cannot find '@\/gone': by \S+tsconfig\.json it is .*src\/gone, which/,
    ],
    [
      'aliased/broken.ts',
      /src\/broken\.ts:2: Invalid or unexpected token: Node does not run decorators/,
    ],
    ['decorator.ts', /decorator\.ts:3: Invalid or unexpected token: Node does not run decorators/],
    ['syntax-js.ts', /broken\.js:3: Unexpected token ';'$/],
    ['json.ts', /imports-json\.ts:2: .*from '\.\/data\.json' with \{ type: 'json' \}$/],
    ['jsx.tsx', /jsx\.tsx: Node cannot run \.tsx files; rename it to \.ts/],
    [
      'style.ts',
      /style\.ts:1: Node cannot run \.css files .*readFileSync\(new URL\('\.\/style\.css'/,
    ],
    ['url.ts', /url\.ts:1: cannot import 'https:.*Node imports only files/],
    ['export-equals.cts', /export-equals\.cts:1: .*`module\.exports = …`/],
    ['import-equals.ts', /import-equals\.ts:1: .*`import x from '…'`/],
    ['requires.cjs', /requires\.cjs:2: cannot find 'no-such-package-here': package\.json does not/],
    [
      'class.ts',
      /class\.ts: the handler is a class.*new Resize\(\); export default \(job, ctx\) =>/,
    ],
    ['common/export.ts', /export\.ts:2: Unexpected token 'export': .*npm pkg set type=module/],
    ['common/import.ts', /import\.ts:1: Cannot use import .*npm pkg set type=module/],
    ['typed-package.ts', /typed-package\.ts: .*node_modules\/typed.*compile that package/],
    ['type-import.ts', /type-import\.ts:1: .*import type \{ T \}/],
    ['syntax.ts', /syntax\.ts:2: Expression expected/],
    ['throws.ts', /throws\.ts: the module threw while it was loaded: Error: no licence/],
  ])('names the problem of %s, its place and a remedy', (name, message) => {
    expect(loaded.get(name)?.error).toMatch(/^HandlerLoadError: /);
    expect(loaded.get(name)?.error).toMatch(message);
  });
});

describe('readHandler', () => {
  it('accepts a function alone', () => {
    expect(readHandler(() => 1, 'inline').config).toEqual({});
  });

  it.each<[unknown, RegExp]>([
    [{ default: () => 1, config: { timeout: 1 } }, /h\.ts: config\.timeout is unknown.*timeoutMs/],
    [
      { default: () => 1, config: { concurrency: 0 } },
      /config\.concurrency must be.*from 1.*got 0/,
    ],
    [{ default: () => 1, config: { timeoutMs: '5' } }, /config\.timeoutMs.*got a string/],
    [{ default: () => 1, config: { refreshWorker: 1 } }, /config\.refreshWorker must be true or/],
    [
      { default: () => 1, config: { isolation: 'jobs' } },
      /config\.isolation must be 'thread' or 'job'.*jobs/,
    ],
    [
      { default: () => 1, config: { isolation: 'job', concurrency: 2 } },
      /config\.concurrency must be 1/,
    ],
    [{ default: () => 1, config: 5 }, /'config' must be an object, got a number/],
    [{ default: () => 1, input: { parse: () => 1 } }, /'input' must be a Standard Schema/],
    [{ default: () => 1, setup: 'x' }, /'setup' must be a function/],
    [
      { default: { run: () => 1, inputs: {} } },
      /unknown members of the handler: inputs; use run, input/,
    ],
    [{ default: { input: {} } }, /'run' must be a function, got missing/],
    [null, /h\.ts: must be a handler, got null/],
  ])('refuses %o and names the problem', (exported, message) => {
    expect(() => readHandler(exported, 'h.ts')).toThrow(message);
    expect(() => readHandler(exported, 'h.ts')).toThrow(HandlerLoadError);
  });
});
