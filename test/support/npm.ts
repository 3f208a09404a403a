// Runs npm as users outside of this checkout do, without the settings of the npm that runs the tests.
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import { promisify } from 'node:util';

const ROOT = resolve(import.meta.dirname, '../..');
const execute = promisify(execFile);

/** PATH without the folders that npm adds for our own scripts. */
export const outerPath = (process.env['PATH'] ?? '')
  .split(delimiter)
  .filter((entry) => !entry.includes('node_modules'))
  .join(delimiter);

/** Uses npm's cache first, then the registry. @throws Error with npm's output */
export async function npm(args: string[], cwd: string): Promise<void> {
  const inherited = Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name));
  const env = { ...Object.fromEntries(inherited), PATH: outerPath };
  const quiet = ['--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error'];
  await execute('npm', [...args, ...quiet], { cwd, env });
}

/** Packs the existing build of this checkout. @returns the path of the tarball */
export async function packInto(emptyFolder: string): Promise<string> {
  await npm(['pack', '--ignore-scripts', '--pack-destination', emptyFolder], ROOT);
  const [name = ''] = readdirSync(emptyFolder);
  return join(emptyFolder, name);
}
