// The project of a handler: its folder, its name, and what the packed files are said to be.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { NotLoadedError } from '../../../../src/cli/command.ts';
import {
  checkLoads,
  describePackage,
  packProject,
} from '../../../../src/cli/deploy/package-files.ts';
import { chooseName, findProject } from '../../../../src/cli/deploy/project.ts';

let root: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'millrace-deploy-test-'));
});

afterEach(() => rm(root, { recursive: true }));

async function write(files: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, content] of Object.entries(files)) {
    await mkdir(join(root, dirname(path)), { recursive: true });
    await writeFile(join(root, path), content);
  }
}

const find = (path: string, folder?: string) =>
  findProject([join(root, path)], folder === undefined ? undefined : join(root, folder));

describe('findProject', () => {
  it('takes the folder of the nearest package.json, or the given one, or that of the handler', async () => {
    await write({ 'a/package.json': '{}', 'a/src/deep/handler.ts': '', 'b/handler.ts': '' });
    expect(find('a/src/deep/handler.ts')).toEqual({
      folder: join(root, 'a'),
      entry: 'src/deep/handler.ts',
      handler: join(root, 'a/src/deep/handler.ts'),
    });
    expect(find('a/src/deep/handler.ts', 'a/src')).toMatchObject({ entry: 'deep/handler.ts' });
    expect(find('b/handler.ts')).toMatchObject({ folder: join(root, 'b'), entry: 'handler.ts' });
  });

  it('refuses a folder that does not contain the handler, or does not exist', async () => {
    await write({ 'a/handler.ts': '', 'b/x': '' });
    expect(() => find('a/handler.ts', 'b')).toThrow('does not contain');
    expect(() => find('a/handler.ts', 'none')).toThrow('is not a folder');
    expect(() => find('a/none.ts')).toThrow('file not found');
  });
});

describe('chooseName', () => {
  it.each([
    ['given', '{"name":"pack"}', 'given'],
    [undefined, '{"name":"@scope/pack"}', 'pack'],
    [undefined, '{}', 'handler'],
  ])('%s with %s is %s', async (given, manifest, name) => {
    await write({ 'package.json': manifest, 'handler.ts': '' });
    expect(chooseName(given, find('handler.ts'))).toBe(name);
  });

  it('refuses names that cannot stand in a URL, and says where they come from', async () => {
    await write({ 'package.json': '{"name":"my_pack"}', 'handler.ts': '', 'c/Own_File.ts': '' });
    const project = find('handler.ts');
    expect(() => chooseName('No!', project)).toThrow('--name: "No!" must be 1 to 63');
    expect(() => chooseName(undefined, project)).toThrow('the name in package.json: "my_pack"');
    await write({ 'package.json': '{' });
    expect(() => chooseName(undefined, project)).toThrow('is not JSON');
  });
});

describe('packProject', () => {
  it('packs the files, and describes them with what is left out', async () => {
    await write({
      'package.json': '{"type":"module"}',
      'handler.ts': 'export default () => 1;',
      'model.bin': 'x'.repeat(5_000),
      '.env': '',
      '.gitignore': 'out\n',
      'out/x.js': '',
      'node_modules/a/x.js': '',
    });
    const project = find('handler.ts');
    const packed = await packProject(project);
    const text = describePackage(packed, { all: false });
    expect(text).toMatch(/: 4 files, 4\.9 KB, \S+ (bytes|KB) packed, handler handler\.ts\n/);
    expect(text).toContain(
      '  largest: model.bin 4.9 KB, handler.ts 23 bytes, package.json 17 bytes',
    );
    expect(text).toContain('  left out (ignored): out/');
    expect(text).toContain('  left out (perhaps secret): .env');
    expect(describePackage(packed, { all: true })).toContain('\n  .gitignore  4 bytes\n');
    await expect(checkLoads(packed)).resolves.toBeUndefined();
  });

  it('names the files that it packs although they are probably secret, and a token of npm', async () => {
    const registry = '//npm.example.com/:_authToken';
    await write({
      'package.json': '{"type":"module"}',
      'handler.ts': 'export default () => 1;',
      'ca.pem': '',
      '.env': '',
      '.npmrc': `registry=https://npm.example.com\n${registry}=npm_token\n`,
      '.millraceignore': '!.npmrc\n!ca.pem\n',
    });
    const describe = async () => {
      const project = find('handler.ts');
      return describePackage(await packProject(project), { all: false });
    };
    const text = await describe();
    expect(text).toContain('\n  sent (perhaps secret): .npmrc, ca.pem\n');
    expect(text).toContain('\n  left out (perhaps secret): .env\n');
    expect(text).toContain('\n  .npmrc has a token. ');
    expect(text).not.toContain('npm_token');
    const variable = `\${NPM_TOKEN}`;
    for (const token of [variable, `"${variable}"`]) {
      await write({ '.npmrc': `${registry}=${token}\n# ${registry}=old\n` });
      expect(await describe()).not.toContain('has a token');
    }
  });

  it('refuses a handler that is left out', async () => {
    await write({ 'package.json': '{}', '.gitignore': 'dist\n', 'dist/handler.js': '' });
    await expect(packProject(find('dist/handler.js'))).rejects.toThrow(
      'dist/handler.js is left out of the archive by .gitignore',
    );
  });
});

it('does not name folders that are left out in an error of a package', async () => {
  await write({
    'package.json': '{"type":"module","dependencies":{"broken":"1.0.0"}}',
    'handler.ts': "import 'broken';\nexport default () => 1;",
    'node_modules/broken/package.json': '{"name":"broken","version":"1.0.0","main":"index.js"}',
    'node_modules/broken/index.js': "throw new Error('no GPU here');",
  });
  const checking = checkLoads(await packProject(find('handler.ts')));
  await expect(checking).rejects.toThrow('no GPU here');
  await expect(checking).rejects.not.toThrow('is left out');
});

it('fails to load a handler that imports a file that is left out', async () => {
  await write({
    'package.json': '{"type":"module"}',
    'handler.ts': "import './made/local.ts';\nexport default () => 1;",
    '.gitignore': 'made\n',
    'made/local.ts': '',
  });
  const project = find('handler.ts');
  const checking = checkLoads(await packProject(project));
  await expect(checking).rejects.toThrow('made/ is left out (.gitignore)');
  await expect(checking).rejects.toMatchObject({ exitCode: 5 });
  await expect(checking).rejects.toBeInstanceOf(NotLoadedError);
});
