// Changed modules are noticed, on a real file system.
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ManualClock, systemClock } from '../../../../src/base/clock.ts';
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

function start(watched = folder): void {
  watch = new FolderWatch({
    folders: [watched],
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
  await write('lib/deep/new.mjs');
  await waitFor('new.mjs');
  seen.clear();
  await write('lib/deep/new.mjs', '1');
  await waitFor('new.mjs');
});

it('follows a folder that is removed or replaced, and made again', async () => {
  await mkdir(join(folder, 'dist/handlers/lib'), { recursive: true });
  await write('dist/handlers/lib/one.mjs');
  await write('dist/handlers/a.mjs');
  start(join(folder, 'dist/handlers'));
  await rm(join(folder, 'dist'), { recursive: true });
  await waitFor('a.mjs', 'one.mjs');
  for (const [place, name] of [
    ['dist', 'b.mjs'],
    ['dist.new', 'c.mjs'],
  ] as const) {
    seen.clear();
    await mkdir(join(folder, place, 'handlers/lib'), { recursive: true });
    await write(`${place}/handlers/${name}`);
    if (place !== 'dist') {
      await rename(join(folder, 'dist'), join(folder, 'dist.old'));
      await rename(join(folder, place), join(folder, 'dist'));
    }
    await waitFor(name);
    seen.clear();
    await write('dist/handlers/lib/one.mjs', name);
    await waitFor('one.mjs');
  }
});

it('reports a JSON file only if a module imports it', async () => {
  await write('handler.ts', "import labels from './labels.json' with { type: 'json' };");
  await write('labels.json', '{}');
  start();
  await write('output.json', '{}');
  await write('labels.json', '{"a":1}');
  await write('last.ts');
  await waitFor('last.ts', 'labels.json');
  expect([...seen].sort()).toEqual(['labels.json', 'last.ts']);
});

it('compares a file that is never quiet after a second', async () => {
  const clock = new ManualClock();
  watch = new FolderWatch({
    ...{ folders: [folder], clock, onTrouble: () => {} },
    onChange: (paths) => {
      for (const path of paths) seen.add(basename(path));
      wake();
    },
  });
  // The first comparison, of what was changed before the watch began.
  await clock.advance(100);
  for (let size = 1; size < 200 && !seen.has('busy.ts'); size += 1) {
    await write('busy.ts', 'x'.repeat(size));
    // The events of a write arrive in a later turn.
    await turn();
    await clock.advance(50);
  }
  expect([...seen]).toEqual(['busy.ts']);
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
