// Compiles power-loss.c.
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';

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

/** @returns the path of the library, in the folder */
export function compileLibrary(folder: string): string {
  const path = join(folder, 'power-loss.so');
  execFileSync('cc', ['-O2', '-Wall', '-Werror', '-shared', '-fPIC', '-o', path, SOURCE, '-ldl']);
  return path;
}
