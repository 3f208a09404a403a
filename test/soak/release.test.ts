// The release script on a clone of this repository, with the packages that are installed here.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';

const root = resolve(import.meta.dirname, '../..');

let folder: string;
let clone: string;
let head: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-release-'));
  clone = join(folder, 'clone');
  execFileSync('git', ['clone', '--quiet', root, clone]);
  symlinkSync(resolve(root, 'node_modules'), join(clone, 'node_modules'));
  head = execFileSync('git', ['rev-parse', 'HEAD'], { cwd: clone, encoding: 'utf8' }).trim();
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

function release(...args: string[]) {
  const command = ['scripts/release/release.ts', ...args];
  return spawnSync(process.execPath, command, { cwd: clone, encoding: 'utf8' });
}

function listTags(): string {
  return execFileSync('git', ['tag'], { cwd: clone, encoding: 'utf8' });
}

it('packs both packages with checksums and bills of materials, and makes no tag in a dry run', () => {
  const tags = listTags();
  const { status, stderr } = release(
    ...['--dry-run', '--installed', '--offline', '--tested', head],
  );
  expect(stderr).toContain('no tag was made');
  expect(status).toBe(0);
  const out = join(clone, 'release');
  const { version } = JSON.parse(readFileSync(join(clone, 'package.json'), 'utf8'));
  const ofPackage = (name: string) =>
    ['.cdx.json', '.files.txt', '.tgz'].map((end) => `${name}-${version}${end}`);
  expect(readdirSync(out).sort()).toEqual([
    ...['SHA256SUMS', ...ofPackage('millrace'), ...ofPackage('millrace-client'), 'release.json'],
  ]);
  execFileSync('sha256sum', ['--check', '--quiet', 'SHA256SUMS'], { cwd: out });
  const described = JSON.parse(readFileSync(join(out, 'release.json'), 'utf8'));
  expect(described).toMatchObject({ version, commit: head, signatures: 'not verified' });
  expect(listTags()).toBe(tags);
}, 600_000);

it('stops before it changes anything if the repository is not ready', () => {
  execFileSync('git', ['checkout', '--quiet', '-B', 'work'], { cwd: clone });
  const { status, stderr } = release('--offline', '--tested', head);
  expect(status).toBe(1);
  expect(stderr).toContain('the branch is work; release from main');
  expect(stderr).not.toContain('npm ci');
});
