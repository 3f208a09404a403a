// What installing Millrace brings: few packages, at the versions that its tests ran with, without install scripts.
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, it } from 'vitest';
import { BUNDLED_PACKAGES } from '../../../scripts/bundled-packages.ts';
import { type Lock, listNeeded } from '../../../scripts/release/bill-of-materials.ts';

const read = (path: string) =>
  JSON.parse(readFileSync(resolve(import.meta.dirname, '../../..', path), 'utf8'));

const { dependencies } = read('package.json');
const template = read('src/cli/commands/init-template/_package.json');
const { packages }: Lock = read('package-lock.json');
/** npm installs no package for another system. */
const onLinux = (path: string) =>
  !/-(android|darwin|freebsd|win32|openharmony|aix|sunos|netbsd|openbsd)-/.test(path);

it('few packages, and few with versions of their own choice', () => {
  const all = listNeeded(Object.keys(dependencies), packages).filter(onLinux);
  expect(Object.values(dependencies).filter((range) => !/^\d/.test(`${range}`))).toEqual([]);
  expect(all.length).toBeLessThan(35);
});

it('no install script but that of Node, in a new project', () => {
  const names = [...Object.keys(template.dependencies), ...Object.keys(template.devDependencies)];
  const others = names.filter((name) => name !== 'millrace');
  const needed = listNeeded([...Object.keys(dependencies), ...others], packages).filter(onLinux);
  expect(needed.filter((path) => packages[path]?.hasInstallScript)).toEqual(['node_modules/node']);
  expect(needed.length).toBeLessThan(60);
});

it('no package that is in the bundle', () => {
  const needed = listNeeded(Object.keys(dependencies), packages);
  expect(BUNDLED_PACKAGES.filter((name) => needed.includes(`node_modules/${name}`))).toEqual([]);
});
