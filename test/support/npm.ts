// npm as people outside of this checkout call it: nothing of the npm that runs the tests steers it.
import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import { promisify } from 'node:util';

const ROOT = resolve(import.meta.dirname, '../..');
const execute = promisify(execFile);

/** PATH without what npm puts there for our own scripts. */
export const outerPath = (process.env['PATH'] ?? '')
  .split(delimiter)
  .filter((entry) => !entry.includes('node_modules'))
  .join(delimiter);

/** Takes what it can from npm's cache, the rest from the registry. @throws Error with what npm printed */
export async function npm(args: string[], cwd: string): Promise<void> {
  const inherited = Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name));
  const env = { ...Object.fromEntries(inherited), PATH: outerPath };
  const quiet = ['--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error'];
  await execute('npm', [...args, ...quiet], { cwd, env });
}

/** Packs this checkout as it was built: the tests of one run share one build. @returns the tarball */
export async function packInto(emptyFolder: string): Promise<string> {
  await npm(['pack', '--ignore-scripts', '--pack-destination', emptyFolder], ROOT);
  const [name = ''] = readdirSync(emptyFolder);
  return join(emptyFolder, name);
}
