import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { chooseCompileCaches } from '../../../../src/cli/worker/compile-caches.ts';

function openFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-caches-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

describe('the caches of compilers', () => {
  it('are in the state folder, for this user alone', () => {
    const folder = openFolder();
    const chosen = chooseCompileCaches(folder, () => undefined);
    expect(chosen).toEqual({
      TORCHINDUCTOR_CACHE_DIR: join(folder, '.caches/inductor'),
      TRITON_CACHE_DIR: join(folder, '.caches/triton'),
      NUMBA_CACHE_DIR: join(folder, '.caches/numba'),
      CUDA_CACHE_PATH: join(folder, '.caches/cuda'),
    });
    const modes = Object.values(chosen).map((path) => statSync(path).mode & 0o777);
    expect(modes).toEqual(Array(4).fill(0o700));
  });

  it('stay where the author has put them', () => {
    const set = (name: string) => (name === 'TRITON_CACHE_DIR' ? '/own' : undefined);
    expect(chooseCompileCaches(openFolder(), set)).not.toHaveProperty('TRITON_CACHE_DIR');
  });

  it('are those of the libraries without a state folder, or with one that cannot be written', () => {
    const file = join(openFolder(), 'file');
    writeFileSync(file, '');
    expect(chooseCompileCaches(undefined, () => undefined)).toEqual({});
    expect(chooseCompileCaches(file, () => undefined)).toEqual({});
  });
});
