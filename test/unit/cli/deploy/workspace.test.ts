// Projects whose packages no registry has are packed with them, and a worker can install and load the archive.
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { unpackArchive } from '../../../../src/archive/unpack.ts';
import {
  checkLoads,
  describePackage,
  packProject,
} from '../../../../src/cli/deploy/package-files.ts';
import { findProject } from '../../../../src/cli/deploy/project.ts';
import {
  installDependencies,
  linkOwnPackages,
} from '../../../../src/cli/worker/version-install.ts';

const runFile = promisify(execFile);
const loader = join(import.meta.dirname, '../../../support/load-handlers.ts');

let root: string;

beforeEach(async () => {
  root = await realpath(await mkdtemp(join(tmpdir(), 'millrace-workspace-')));
});

afterEach(() => rm(root, { recursive: true }));

async function write(files: Readonly<Record<string, unknown>>): Promise<void> {
  for (const [path, content] of Object.entries(files)) {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(
      join(root, path),
      typeof content === 'string' ? content : JSON.stringify(content),
    );
  }
}

/** As a package manager links the packages of a workspace. */
async function link(links: Readonly<Record<string, string>>): Promise<void> {
  for (const [place, folder] of Object.entries(links)) {
    await mkdir(dirname(join(root, place)), { recursive: true });
    await symlink(join(root, folder), join(root, place));
  }
}

const pack = (handler: string) => packProject(findProject([join(root, handler)], undefined));

/** Installs and loads the handler as a worker does, and calls it. */
async function runOnWorker(packed: Awaited<ReturnType<typeof pack>>): Promise<unknown> {
  const parent = join(root, '.worker');
  const folder = join(parent, 'files');
  await mkdir(parent);
  await unpackArchive(packed.bytes, folder);
  await linkOwnPackages(parent);
  const temporary = join(parent, 'temporary');
  const limits = { timeoutMs: 60_000, maxBytes: 10_000_000, scripts: 'ignore' } as const;
  expect(await installDependencies({ folder, temporary, ...limits })).toBe(true);
  const { stdout } = await runFile(process.execPath, [loader, join(folder, packed.layout.entry)]);
  return JSON.parse(stdout)[0];
}

const MONO = {
  'package.json': {
    name: 'mono',
    private: true,
    workspaces: ['packages/*'],
    devDependencies: { gone: '1.0.0' },
  },
  'packages/shared/package.json': {
    ...{ name: '@mono/shared', version: '1.0.0', type: 'module', exports: './dist/index.js' },
    devDependencies: { gone: '1.0.0' },
  },
  'packages/shared/.gitignore': 'dist\ntmp\n',
  'packages/shared/dist/index.js': 'export const seven = 7;',
  'packages/shared/tmp/large.txt': 'x',
  'packages/other/package.json': { name: '@mono/other', version: '1.0.0' },
  'packages/worker/package.json': {
    ...{ name: '@mono/worker', version: '1.0.0', type: 'module' },
    dependencies: { '@mono/shared': '*', millrace: 'file:../../vendor/none.tgz' },
    scripts: { prepare: 'exit 1' },
  },
  'packages/worker/src/handler.ts':
    "import { defineHandler } from 'millrace';\nimport { seven } from '@mono/shared';\nimport { eight } from '@/eight';\n" +
    'export default defineHandler({ run: () => seven + eight });',
  'packages/worker/src/eight.ts': 'export const eight: number = 8;',
  'packages/worker/tsconfig.json': { extends: '../../tsconfig.base.json' },
  'tsconfig.base.json': { compilerOptions: { paths: { '@/*': ['./packages/worker/src/*'] } } },
};

const LINKS = {
  'node_modules/@mono/shared': 'packages/shared',
  'node_modules/@mono/other': 'packages/other',
};

const LOCK = {
  lockfileVersion: 3,
  packages: {
    '': { name: 'mono', workspaces: ['packages/*'], devDependencies: { gone: '1.0.0' } },
    'node_modules/@mono/other': { resolved: 'packages/other', link: true },
    'node_modules/@mono/shared': { resolved: 'packages/shared', link: true },
    'node_modules/@mono/worker': { resolved: 'packages/worker', link: true },
    'node_modules/gone': { version: '1.0.0', dev: true },
    'node_modules/millrace': { version: '0.1.0' },
    'packages/other': { name: '@mono/other', version: '1.0.0' },
    'packages/other/node_modules/gone': { version: '2.0.0' },
    'packages/shared': { name: '@mono/shared', version: '1.0.0' },
    'packages/worker': { name: '@mono/worker', dependencies: { '@mono/shared': '*' } },
  },
};

describe('a workspace', () => {
  it('is packed by npm with what the handler uses and its lock file, and a worker runs it', async () => {
    await write({ ...MONO, 'package-lock.json': LOCK });
    await link(LINKS);
    const packed = await pack('packages/worker/src/handler.ts');
    expect(packed.files.map(({ path }) => path)).toEqual([
      ...['package-lock.json', 'package.json', 'packages/shared/.gitignore'],
      ...['packages/shared/dist/index.js', 'packages/shared/package.json'],
      ...['packages/worker/package.json', 'packages/worker/src/eight.ts'],
      ...['packages/worker/src/handler.ts', 'packages/worker/tsconfig.json', 'tsconfig.base.json'],
    ]);
    const text = describePackage(packed, { all: false });
    expect(text).toContain('handler packages/worker/src/handler.ts\n');
    expect(text).toContain('\n  with @mono/shared of ../shared\n');
    expect(text).toContain('left out (ignored): packages/shared/tmp/');
    const lock = JSON.parse(packed.layout.written.get('package-lock.json') ?? '');
    expect(Object.keys(lock.packages).toSorted()).toEqual([
      ...['', 'node_modules/@mono/shared', 'node_modules/@mono/worker', 'node_modules/gone'],
      ...['packages/shared', 'packages/worker'],
    ]);
    await checkLoads(packed);
    expect(await runOnWorker(packed)).toMatchObject({ answer: 15 });
  });

  it('is packed in a form that npm understands if it has the protocols of pnpm or yarn', async () => {
    await write({
      ...MONO,
      'package.json': { name: 'mono', private: true },
      'packages/worker/package.json': {
        ...{
          name: '@mono/worker',
          type: 'module',
          devDependencies: { '@mono/other': 'workspace:*' },
        },
        dependencies: { '@mono/shared': 'workspace:^' },
        optionalDependencies: { linked: 'portal:../linked' },
      },
      'packages/linked/package.json': {
        name: 'linked',
        version: '1.0.0',
        peerDependencies: { cat: 'catalog:' },
      },
      'packages/linked/node_modules/cat/package.json': { name: 'cat', version: '4.5.6' },
    });
    await link({ 'packages/worker/node_modules/@mono/shared': 'packages/shared' });
    const { layout } = await pack('packages/worker/src/handler.ts');
    const read = (path: string) => JSON.parse(layout.written.get(path) ?? '');
    expect(read('packages/worker/package.json')).toEqual({
      ...{
        name: '@mono/worker',
        type: 'module',
        dependencies: { '@mono/shared': 'file:../shared' },
      },
      optionalDependencies: { linked: 'file:../linked' },
    });
    expect(read('packages/linked/package.json').peerDependencies).toEqual({ cat: '4.5.6' });
    expect(read('package.json').dependencies).toEqual({
      ...{ '@mono/worker': 'file:packages/worker', '@mono/shared': 'file:packages/shared' },
      linked: 'file:packages/linked',
    });
  });

  it('is refused before anything is sent if its packages are not installed', async () => {
    await write({
      ...MONO,
      'packages/worker/package.json': { dependencies: { '@mono/shared': 'workspace:*' } },
    });
    await expect(pack('packages/worker/src/handler.ts')).rejects.toThrow(
      'package.json: @mono/shared is workspace:* and is not installed; run the install of your package manager first',
    );
    await write({
      'packages/worker/package.json': { dependencies: { '@mono/shared': 'file:../nowhere' } },
    });
    await expect(pack('packages/worker/src/handler.ts')).rejects.toThrow('nowhere does not exist');
  });
});

describe('a dependency with a path', () => {
  it('is packed if it is outside the project, with the lock file of the project', async () => {
    await write({
      'shared/package.json': {
        name: 'shared',
        version: '2.0.0',
        type: 'module',
        exports: './index.ts',
      },
      'shared/index.ts': 'export const six: number = 6;',
      'project/package.json': {
        name: 'project',
        type: 'module',
        dependencies: { shared: 'file:../shared' },
      },
      'project/handler.ts': "import { six } from 'shared';\nexport default () => six;",
      'project/package-lock.json': {
        lockfileVersion: 3,
        packages: {
          '': { name: 'project', dependencies: { shared: 'file:../shared' } },
          '../shared': { version: '2.0.0' },
          'node_modules/shared': { resolved: '../shared', link: true },
        },
      },
    });
    await link({ 'project/node_modules/shared': 'shared' });
    const packed = await pack('project/handler.ts');
    expect(packed.layout).toMatchObject({ root, entry: 'project/handler.ts' });
    await checkLoads(packed);
    expect(await runOnWorker(packed)).toMatchObject({ answer: 6 });
  });

  it('is loaded by the check from the archive, not from node_modules', async () => {
    await write({
      'shared/package.json': { name: 'shared', exports: './index.js' },
      'shared/.millraceignore': 'index.js',
      'shared/index.js': '',
      'project/package.json': { dependencies: { shared: 'file:../shared' } },
      'project/handler.mjs': "import 'shared';\nexport default () => 1;",
    });
    await link({ 'project/node_modules/shared': 'shared' });
    await expect(checkLoads(await pack('project/handler.mjs'))).rejects.toThrow(
      /handler\.mjs: imports shared, and its file \S+index\.js is not in the archive; shared\/index\.js is left out \(.*\.millraceignore\)/,
    );
  });
});

it('packs a project without such packages as it is', async () => {
  await write({
    'package.json': { type: 'module', dependencies: { vendored: 'file:./vendored' } },
    'vendored/package.json': { name: 'vendored' },
    'handler.ts': 'export default () => 1;',
    'package-lock.json': LOCK,
  });
  const { files, layout } = await pack('handler.ts');
  expect(layout).toMatchObject({ root, entry: 'handler.ts', packages: [], written: new Map() });
  const manifest = files.find(({ path }) => path === 'package.json');
  expect(manifest?.bytes).toBe((await readFile(join(root, 'package.json'))).length);
});

describe('files outside the project', () => {
  const APP = { 'app/handler.ts': 'export default () => 1;' };

  it.each([
    [
      'an alias',
      { 'app/tsconfig.json': { compilerOptions: { paths: { '@k/*': ['../.ssh/*'] } } } },
    ],
    [
      'extended settings',
      {
        'app/tsconfig.json': {
          ...{ extends: '../.docker/config.json', compilerOptions: { paths: { '@/*': ['./*'] } } },
        },
      },
    ],
    ['a dependency', { 'app/package.json': { dependencies: { leak: 'file:../.ssh/config' } } }],
  ])('are not sent from hidden places: %s', async (_, files) => {
    await write({
      'app/package.json': { type: 'module' },
      '.ssh/config': 'Host x',
      '.docker/config.json': { auths: {} },
      ...{ ...APP, ...files },
    });
    await expect(pack('app/handler.ts')).rejects.toThrow(/outside the project and hidden/);
  });

  it('are named', async () => {
    await write({
      ...APP,
      'app/package.json': { type: 'module' },
      'lib/one.ts': 'export const one = 1;',
      'app/tsconfig.json': { compilerOptions: { paths: { '@lib/*': ['../lib/*'] } } },
    });
    const packed = await pack('app/handler.ts');
    expect(describePackage(packed, { all: false })).toContain('  with ../lib\n');
  });
});
