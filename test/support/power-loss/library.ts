// Compiles power-loss.c.
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';

/** A file system in memory, whose fsync takes no time: a check of a cut starts a platform that does not use the library. */
const MEMORY = '/dev/shm';
const SPACE_BYTES = 2 * 1_073_741_824;
const SOURCE = join(import.meta.dirname, 'power-loss.c');

/** Whether the test file is left out: without a C compiler on a laptop. In CI a missing one fails the run. */
export function leaveOutWithoutCompiler(file: string): boolean {
  try {
    execFileSync('cc', ['--version'], { stdio: 'ignore' });
    return false;
  } catch {
    if (process.env['CI']) return false;
    console.warn(`${file} is left out: no C compiler (cc) is installed`);
    return true;
  }
}

export interface PowerLossPlace {
  /** A folder of the test's own. */
  readonly folder: string;
  /** Path of the library. */
  readonly library: string;
}

/** Gives each test of the file or `describe` a folder with the library. */
export function usePowerLoss(): PowerLossPlace {
  const place = { folder: '', library: '' };
  beforeEach(() => {
    place.folder = mkdtempSync(join(hasSpace(MEMORY) ? MEMORY : tmpdir(), 'millrace-power-'));
    // Postgres runs as another user.
    chmodSync(place.folder, 0o755);
    place.library = compileLibrary(place.folder);
  });
  afterEach(() => rmSync(place.folder, { recursive: true, force: true }));
  return place;
}

/** @returns the path of the library, in the folder */
function compileLibrary(folder: string): string {
  const path = join(folder, 'power-loss.so');
  execFileSync('cc', ['-O2', '-Wall', '-Werror', '-shared', '-fPIC', '-o', path, SOURCE, '-ldl']);
  return path;
}

function hasSpace(path: string): boolean {
  if (!existsSync(path)) return false;
  const { bavail, bsize } = statfsSync(path);
  return bavail * bsize > SPACE_BYTES;
}
