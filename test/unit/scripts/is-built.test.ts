// `npm run build` does nothing if `dist` was built from the present sources.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';

const SCRIPT = resolve('scripts/is-built.js');

it('builds after a change of a source, of the lock file and of dist, and not again', () => {
  const cwd = mkdtempSync(join(tmpdir(), 'millrace-built-'));
  onTestFinished(() => rmSync(cwd, { recursive: true }));
  mkdirSync(join(cwd, 'src/queue'), { recursive: true });
  const isBuilt = () => spawnSync(process.execPath, [SCRIPT], { cwd }).status === 0;
  const build = () => {
    expect(isBuilt()).toBe(false);
    rmSync(join(cwd, 'dist'), { recursive: true, force: true });
    renameSync(join(cwd, 'dist.new'), join(cwd, 'dist'));
    expect(isBuilt()).toBe(true);
  };
  build();
  for (const path of ['src/queue/new.ts', 'package-lock.json', 'src/moved.ts']) {
    writeFileSync(join(cwd, path), 'same');
    build();
  }
  renameSync(join(cwd, 'src/moved.ts'), join(cwd, 'src/elsewhere.ts'));
  build();
  rmSync(join(cwd, 'dist'), { recursive: true });
  build();
});
