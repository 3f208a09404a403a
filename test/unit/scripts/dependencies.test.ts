// What installing Millrace brings: few packages, at the versions that its tests ran with, without install scripts.
import { existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, it } from 'vitest';
import { BUNDLED_PACKAGES } from '../../../scripts/bundled-packages.ts';
import { type Lock, listNeeded } from '../../../scripts/release/bill-of-materials.ts';

const ROOT = resolve(import.meta.dirname, '../../..');
const read = (path: string) => JSON.parse(readFileSync(join(ROOT, path), 'utf8'));

const { dependencies } = read('package.json');
const template = read('src/cli/commands/init-template/_package.json');
const { packages }: Lock = read('package-lock.json');
/** npm installs no package for another system. */
const onLinux = (path: string) =>
  !/-(android|darwin|freebsd|win32|openharmony|aix|sunos|netbsd|openbsd)-/.test(path);

/** Bytes on disk; 0 for a package of another system. */
function measure(path: string): number {
  const folder = join(ROOT, path);
  if (!existsSync(folder)) return 0;
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  const files = entries.map(({ name, parentPath }) => lstatSync(join(parentPath, name)));
  return files.reduce((sum, { blocks }) => sum + blocks * 512, 0);
}

it('brings few packages, and lets npm choose the versions of few', () => {
  const all = listNeeded(Object.keys(dependencies), packages).filter(onLinux);
  expect(Object.values(dependencies).filter((range) => !/^\d/.test(`${range}`))).toEqual([]);
  expect(all.length).toBeLessThan(35);
});

it('gives a new project few packages, only Node’s install script, and at most 250 MB', () => {
  const names = [...Object.keys(template.dependencies), ...Object.keys(template.devDependencies)];
  const others = names.filter((name) => name !== 'millrace');
  const needed = listNeeded([...Object.keys(dependencies), ...others], packages).filter(onLinux);
  expect(needed.filter((path) => packages[path]?.hasInstallScript)).toEqual(['node_modules/node']);
  expect(needed.length).toBeLessThan(60);
  const small = needed.filter((path) => !/\/node(-bin-setup)?$/.test(path));
  // Node has 189 MB, Millrace itself 10 MB.
  expect(small.reduce((sum, path) => sum + measure(path), 0)).toBeLessThan(51 * 1_048_576);
});

it('bundles no dependency', () => {
  const needed = listNeeded(Object.keys(dependencies), packages);
  expect(BUNDLED_PACKAGES.filter((name) => needed.includes(`node_modules/${name}`))).toEqual([]);
});
