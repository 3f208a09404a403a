// Loading a copy of a project in a process of its own: what a worker could not load is found.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { findLoadProblem } from '../../../../src/worker/loading/load-check.ts';

let root: string;
let project: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'millrace-load-check-'));
  project = join(root, 'project');
});

afterEach(() => rm(root, { recursive: true }));

type Files = Readonly<Record<string, string>>;

/** `local`: files of the project that are not in the archive. */
async function check(files: Files, local: Files = {}, timeoutMs?: number) {
  const copy = join(root, 'copy');
  for (const [folder, all] of [
    [copy, files],
    [project, { ...files, ...local }],
  ] as const) {
    for (const [path, content] of Object.entries(all)) {
      await mkdir(join(folder, dirname(path)), { recursive: true });
      await writeFile(join(folder, path), content);
    }
  }
  const env = { PATH: process.env['PATH'] };
  const timeout = timeoutMs === undefined ? {} : { timeoutMs };
  return findLoadProblem({ copy, project, entry: 'handler.ts', env, ...timeout });
}

const MODULE = '{"type":"module"}';
const DEPENDENT = '{"type":"module","dependencies":{"leaf":"1.0.0"}}';
const LEAF = {
  'node_modules/leaf/package.json':
    '{"name":"leaf","exports":{"import":"./m.mjs","require":"./c.cjs"}}',
  'node_modules/leaf/m.mjs': 'export const leaf = 1;',
  'node_modules/leaf/c.cjs': 'exports.leaf = 2;',
};

describe('a handler that loads', () => {
  it('may import its files, packages, modules of Node and millrace', async () => {
    const source = [
      "import fs from 'node:fs';",
      "import { join } from 'path';",
      "import { leaf } from 'leaf';",
      "import { twice } from './lib/twice.ts';",
      "import { common } from './common.cjs';",
      "import { defineHandler } from 'millrace';",
      'if (leaf !== 1 || common !== 2 || twice(2) !== 4) throw new Error("odd");',
      'setInterval(() => {}, 1_000);',
      'export default defineHandler({ run: () => [fs, join].length });',
    ].join('\n');
    const files = {
      'package.json': DEPENDENT,
      'handler.ts': source,
      'lib/twice.ts': 'export const twice = (n: number): number => 2 * n;',
      'common.cjs': "exports.common = require('leaf').leaf;",
    };
    const own = {
      'node_modules/millrace/package.json':
        '{"name":"millrace","type":"module","exports":"./i.js"}',
      'node_modules/millrace/i.js': 'export const defineHandler = (handler) => handler;',
    };
    expect(await check(files, { ...LEAF, ...own })).toBeUndefined();
  });

  it('runs no setup, and needs no package.json', async () => {
    const source = 'export function setup() { throw new Error("no"); }\nexport default () => 1;';
    expect(await check({ 'handler.ts': source })).toBeUndefined();
  });
});

describe('a handler that does not load', () => {
  it.each<[string, string, string]>([
    ['a syntax error', 'export default () => {', 'handler.ts:1: '],
    ['an error at load', 'throw new Error("no model");', 'no model'],
    ['no handler', 'export const x = 1;', 'no default export'],
    ['an exit', 'process.exit(3);', 'exited while it loaded the handler (code 3)'],
  ])('is found: %s', async (_, source, message) => {
    expect(await check({ 'package.json': MODULE, 'handler.ts': source })).toContain(message);
  });

  it('is found: a file that is not in the archive, with its path in the project', async () => {
    const source = "import './local.ts';\nexport default () => 1;";
    const files = { 'package.json': MODULE, 'handler.ts': source };
    expect(await check(files, { 'local.ts': '' })).toBe(
      `${join(project, 'handler.ts')}:1: cannot find '${join(project, 'local.ts')}'`,
    );
  });

  it('is found: a package that package.json does not list', async () => {
    const source = "import 'leaf';\nexport default () => 1;";
    const files = { 'package.json': MODULE, 'handler.ts': source };
    const problem = await check(files, LEAF);
    expect(problem).toContain('handler.ts: imports leaf, which the dependencies');
    expect(await check({ ...files, 'package.json': DEPENDENT })).toBeUndefined();
  });

  it('is found: a package that is not installed', async () => {
    const source = "import '@scope/none/part';\nexport default () => 1;";
    const problem = await check({ 'package.json': MODULE, 'handler.ts': source });
    expect(problem).toContain(
      "cannot find '@scope/none/part': package.json does not list @scope/none",
    );
  });

  it('is stopped if it does not end', async () => {
    const problem = await check({ 'handler.ts': 'for (;;);' }, {}, 2_000);
    expect(problem).toBe('the handler did not load within 2 s');
  });
});
