// Changed modules are noticed, on a real file system.
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import { FolderWatch } from '../../../../src/cli/dev/folder-watch.ts';

let folder: string;
let watch: FolderWatch | undefined;
let seen: Set<string>;
let wake: () => void = () => {};

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-watch-'));
  seen = new Set();
});

afterEach(async () => {
  watch?.close();
  await rm(folder, { recursive: true });
});

function start(): void {
  watch = new FolderWatch({
    folders: [folder],
    clock: systemClock,
    onChange: (paths) => {
      for (const path of paths) seen.add(basename(path));
      wake();
    },
    onTrouble: (_, error) => {
      throw error;
    },
  });
}

/** The test's own timeout is the limit. */
async function waitFor(...names: string[]): Promise<void> {
  while (!names.every((name) => seen.has(name))) {
    await new Promise<void>((resolve) => {
      wake = resolve;
    });
  }
}

function write(name: string, content = ''): Promise<void> {
  return writeFile(join(folder, name), content);
}

it('reports files that are written, replaced, added or removed', async () => {
  await write('written.ts');
  await write('replaced.ts');
  await write('removed.ts');
  start();
  await write('written.ts', 'new');
  await write('.tmp', 'new');
  await rename(join(folder, '.tmp'), join(folder, 'replaced.ts'));
  await rm(join(folder, 'removed.ts'));
  await write('added.mjs');
  await waitFor('written.ts', 'replaced.ts', 'removed.ts', 'added.mjs');
  expect([...seen].sort()).toEqual(['added.mjs', 'removed.ts', 'replaced.ts', 'written.ts']);
});

it('reports a file in a new folder', async () => {
  start();
  await mkdir(join(folder, 'lib/deep'), { recursive: true });
  await write('lib/deep/new.json');
  await waitFor('new.json');
  seen.clear();
  await write('lib/deep/new.json', '{}');
  await waitFor('new.json');
});

it('reports Python files, except those of a virtual environment', async () => {
  await mkdir(join(folder, 'venv/lib'), { recursive: true });
  await write('venv/pyvenv.cfg');
  await write('venv/lib/package.py', 'old');
  start();
  await write('venv/lib/package.py', 'new');
  await write('venv/added.py');
  await write('model.py');
  await waitFor('model.py');
  expect([...seen]).toEqual(['model.py']);
});

it('ignores hidden files, installed packages and files that a handler cannot import', async () => {
  await mkdir(join(folder, 'node_modules'));
  start();
  await write('output.png');
  await write('.hidden.ts');
  await write('node_modules/index.js');
  await write('last.ts');
  await waitFor('last.ts');
  expect([...seen]).toEqual(['last.ts']);
});
