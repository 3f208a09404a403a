// Breaks one promise in a copy of the sources, and expects a run of the copy to notice.
import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { WorldKind } from '../simulation/seed-thread.ts';
import type { Break } from './breaks.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

export interface Guards {
  name: string;
  breaks: readonly Break[];
  /** Runs the copy in this folder. @returns what it has noticed */
  play: (copy: string) => Promise<string>;
}

/** Plays seeds of the simulation. */
export function playSeeds(kind: WorldKind, seeds: number): Guards['play'] {
  return async (copy) => {
    const file = join(copy, 'test/simulation/seed-process.ts');
    const args = [file, String(seeds), kind];
    const { stdout } = await promisify(execFile)(process.execPath, args);
    return stdout.trim();
  };
}

export function describeGuards({ breaks, name, play }: Guards): void {
  describe(name, () => {
    let copy = '';

    beforeAll(async () => {
      copy = await mkdtemp(join(tmpdir(), 'millrace-broken-'));
      for (const folder of ['src', 'test/conformance', 'test/simulation', 'test/support']) {
        await cp(join(ROOT, folder), join(copy, folder), { recursive: true });
      }
      await cp(join(ROOT, 'package.json'), join(copy, 'package.json'));
      await symlink(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
    });
    afterAll(() => rm(copy, { recursive: true, force: true }));

    it('reports no fault of the unchanged sources', async () => {
      expect(await play(copy)).toBe('');
    });

    it.each(breaks)('reports the broken promise: $promise', async ({ file, from, to, seen }) => {
      const path = join(copy, file);
      const source = await readFile(path, 'utf8');
      expect(source.split(from)).toHaveLength(2);
      await writeFile(
        path,
        source.replace(from, () => to),
      );
      try {
        expect(await play(copy)).toMatch(seen);
      } finally {
        await writeFile(path, source);
      }
    });
  });
}
