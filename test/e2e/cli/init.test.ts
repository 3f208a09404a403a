// `millrace init`: what it writes, and what it refuses. That the project works is shown where there
// is a packed tarball: test/e2e/package.test.ts.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Workplace } from './command-run.ts';

const checkout = resolve(import.meta.dirname, '../../..');

let place: Workplace;

beforeEach(() => {
  place = new Workplace();
});

afterEach(() => place.close());

function readPackage(folder: string) {
  return JSON.parse(readFileSync(place.path(`${folder}/package.json`), 'utf8'));
}

it('writes a project named after its folder', async () => {
  const { code, stdout } = await place.run(['init', 'My Handler']);
  expect(code).toBe(0);
  expect(stdout).toContain('cd My Handler && npm install && npm test && npm start');
  expect(readdirSync(place.path('My Handler')).sort()).toEqual([
    '.dockerignore',
    '.gitignore',
    'Dockerfile',
    'README.md',
    'handler.test.ts',
    'handler.ts',
    'package.json',
    'tsconfig.json',
  ]);
  expect(readPackage('My Handler')).toMatchObject({
    name: 'my-handler',
    allowScripts: { node: true },
    devDependencies: { node: expect.stringMatching(/^24\./) },
  });
});

it('fills every placeholder of the template', async () => {
  await place.run(['init', 'app']);
  for (const name of readdirSync(place.path('app'))) {
    expect(readFileSync(place.path(`app/${name}`), 'utf8')).not.toMatch(/\{\{/);
  }
});

it('writes a project with a model in Python, which has no placeholders left', async () => {
  const { code } = await place.run(['init', 'app', '--template', 'python']);
  expect(code).toBe(0);
  const names = readdirSync(place.path('app'));
  expect(names).toEqual(expect.arrayContaining(['handler.ts', 'millrace_model.py', 'model.py']));
  expect(names).not.toContain('python');
  for (const name of names) {
    expect(readFileSync(place.path(`app/${name}`), 'utf8')).not.toMatch(/\{\{\w/);
  }
});

it('refuses an unknown template with the names of those that exist', async () => {
  const { code, stderr } = await place.run(['init', 'app', '--template', 'rust']);
  expect(code).toBe(2);
  expect(stderr).toContain('--template: rust is none of typescript, python');
  expect(existsSync(place.path('app'))).toBe(false);
});

it('makes the project depend on the checkout in which it runs', async () => {
  await place.run(['init', 'app']);
  const dependency: string = readPackage('app').dependencies.millrace;
  expect(dependency).toMatch(/^file:/);
  expect(resolve(place.path('app'), dependency.slice('file:'.length))).toBe(checkout);
});

it('copies a tarball into the project', async () => {
  place.write('millrace-1.2.3.tgz', 'packed');
  await place.run(['init', 'app', '--from', 'millrace-1.2.3.tgz']);
  expect(readPackage('app').dependencies.millrace).toBe('file:vendor/millrace-1.2.3.tgz');
  expect(readFileSync(place.path('app/vendor/millrace-1.2.3.tgz'), 'utf8')).toBe('packed');
});

it('writes into the current folder if it contains nothing but .git', async () => {
  execFileSync('git', ['init', '--quiet'], { cwd: place.folder });
  expect((await place.run(['init'])).code).toBe(0);
  expect(readdirSync(place.folder)).toContain('handler.ts');
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
    expect((await place.run(['init', 'app', '--force'])).code).toBe(0);
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
