// `millrace init`: what it writes, and what it refuses. That the project works is shown where there
// is a packed tarball: test/e2e/package.test.ts.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Workplace } from './command-run.ts';

const checkout = resolve(import.meta.dirname, '../../..');

let place: Workplace;
/** A tarball, so that init does not pack the checkout. */
const given = ['--from', 'millrace-1.2.3.tgz'];

beforeEach(() => {
  place = new Workplace();
  place.write('millrace-1.2.3.tgz', 'packed');
});

afterEach(() => place.close());

function readPackage(folder: string) {
  return JSON.parse(readFileSync(place.path(`${folder}/package.json`), 'utf8'));
}

it('writes a project named after its folder', async () => {
  const { code, stdout } = await place.run(['init', 'My Handler', ...given]);
  expect(code).toBe(0);
  expect(stdout).toContain('cd My Handler && npm install && npm test && npm start');
  expect(readdirSync(place.path('My Handler')).sort()).toEqual([
    '.dockerignore',
    '.gitignore',
    'AGENTS.md',
    'Dockerfile',
    'README.md',
    'handler.test.ts',
    'handler.ts',
    'package.json',
    'pnpm-workspace.yaml',
    'tsconfig.json',
    'vendor',
  ]);
  expect(readPackage('My Handler')).toMatchObject({
    name: 'my-handler',
    devDependencies: { node: expect.stringMatching(/^24\./) },
  });
});

it('allows the install script of Node to npm and to pnpm', async () => {
  await place.run(['init', 'app', ...given]);
  expect(readPackage('app').allowScripts).toEqual({ node: true });
  expect(place.read('app/pnpm-workspace.yaml')).toMatch(/^allowBuilds:\n {2}node: true\n$/m);
});

describe.each([
  ['typescript', [], {}],
  ['python', ['millrace_model.py', 'model.py'], {}],
  ['openai-proxy', ['lib/sse.ts'], { 'eventsource-parser': expect.stringMatching(/^\d/) }],
  ['image', [], { sharp: expect.stringMatching(/^\d/) }],
])('the template %s', (template, own, dependencies) => {
  it('writes its files, its packages, and fills every placeholder', async () => {
    const { code, stderr } = await place.run(['init', 'app', ...given, '--template', template]);
    expect(code, stderr).toBe(0);
    const entries = readdirSync(place.path('app'), { recursive: true, withFileTypes: true });
    const paths = entries
      .filter((entry) => entry.isFile() && !entry.parentPath.endsWith('vendor'))
      .map((entry) => relative(place.path('app'), join(entry.parentPath, entry.name)));
    expect(paths).toEqual(expect.arrayContaining(['handler.ts', 'handler.test.ts', ...own]));
    for (const path of paths) {
      expect(place.read(`app/${path}`), path).not.toMatch(/\{\{\w/);
    }
    expect(readPackage('app').dependencies).toMatchObject({
      ...{ millrace: expect.any(String), zod: expect.any(String) },
      ...dependencies,
    });
  });
});

it('refuses an unknown template with the names of those that exist and the closest one', async () => {
  const { code, stderr } = await place.run(['init', 'app', '--template', 'pyton']);
  expect(code).toBe(2);
  expect(stderr).toContain(
    '--template: pyton is none of typescript, python, openai-proxy, image; did you mean python?',
  );
  expect(existsSync(place.path('app'))).toBe(false);
});

it('packs the checkout in which it runs', async () => {
  await place.run(['init', 'app']);
  const { version } = JSON.parse(readFileSync(resolve(checkout, 'package.json'), 'utf8'));
  const tarball = `vendor/millrace-${version}.tgz`;
  expect(readPackage('app').dependencies.millrace).toBe(`file:${tarball}`);
  const listed = execFileSync('tar', ['-tzf', place.path(`app/${tarball}`)], { encoding: 'utf8' });
  expect(listed).toMatch(/^package\/dist\/index\.js$/m);
});

it('refuses a checkout that is not built', async () => {
  mkdirSync(place.path('clone'));
  place.write('clone/package.json', '{"name":"millrace","version":"0.1.0"}');
  const { code, stderr } = await place.run(['init', 'app', '--from', 'clone']);
  expect(code).toBe(1);
  expect(stderr).toContain('clone is not built; run `npm ci` there');
});

it('copies a tarball into the project', async () => {
  await place.run(['init', 'app', ...given]);
  expect(readPackage('app').dependencies.millrace).toBe('file:vendor/millrace-1.2.3.tgz');
  expect(readFileSync(place.path('app/vendor/millrace-1.2.3.tgz'), 'utf8')).toBe('packed');
});

it('writes into the current folder if it contains nothing but .git', async () => {
  mkdirSync(place.path('app'));
  const cwd = place.path('app');
  execFileSync('git', ['init', '--quiet'], { cwd });
  expect((await place.run(['init', '--from', '../millrace-1.2.3.tgz'], { cwd })).code).toBe(0);
  expect(readdirSync(cwd)).toContain('handler.ts');
});

it('explains why a folder cannot be created, without a stack', async () => {
  place.write('file', '');
  const { code, stderr } = await place.run(['init', 'file/app']);
  expect(code).toBe(1);
  expect(stderr).toMatch(/^millrace init: .*file\/app.*\n$/);
});

describe('a folder that is not empty', () => {
  beforeEach(() => {
    mkdirSync(place.path('app'));
    place.write('app/handler.ts', 'mine');
  });

  it('is refused with exit code 1 and unchanged', async () => {
    const { code, stderr } = await place.run(['init', 'app']);
    expect(code).toBe(1);
    expect(stderr).toContain('app is not empty');
    expect(readdirSync(place.path('app'))).toEqual(['handler.ts']);
    expect(readFileSync(place.path('app/handler.ts'), 'utf8')).toBe('mine');
  });

  it('is written into with --force', async () => {
    expect((await place.run(['init', 'app', ...given, '--force'])).code).toBe(0);
    expect(readFileSync(place.path('app/handler.ts'), 'utf8')).toContain('defineHandler');
  });
});

it.each([
  ['.', 'is not a folder of the package millrace'],
  ['file.zip', 'is neither a folder nor a .tgz'],
])('refuses --from %s', async (from, message) => {
  place.write('file.zip', '');
  const { code, stderr } = await place.run(['init', 'app', '--from', from]);
  expect(code).toBe(2);
  expect(stderr).toContain(message);
  expect(existsSync(place.path('app'))).toBe(false);
});
