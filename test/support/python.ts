// Tells whether Python and its packages are there for the tests of model processes.
import { spawnSync } from 'node:child_process';

/**
 * Whether the test file is left out: without Python or a module on a laptop. In CI that fails the run.
 */
export function leaveOutWithoutPython(file: string, module = 'sys'): boolean {
  if (process.env['CI']) return false;
  if (spawnSync('python3', ['-c', `import ${module}`]).status === 0) return false;
  const missing = module === 'sys' ? 'python3' : `the Python module ${module}`;
  console.warn(`${file} is left out: ${missing} is not installed`);
  return true;
}
