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

function outerEnvironment(): NodeJS.ProcessEnv {
  const inherited = Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name));
  return { ...Object.fromEntries(inherited), PATH: outerPath };
}

/** Uses npm's cache first, then the registry. @throws Error with npm's output */
export async function npm(args: string[], cwd: string): Promise<void> {
  const quiet = ['--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error'];
  await execute('npm', [...args, ...quiet], { cwd, env: outerEnvironment() });
}

/** Packs the existing build of this checkout. @returns the path of the tarball */
export async function packInto(emptyFolder: string): Promise<string> {
  await execute(process.execPath, [join(ROOT, 'scripts/release/pack.ts'), emptyFolder], {
    ...{ cwd: ROOT, env: outerEnvironment(), maxBuffer: 2 ** 28 },
  });
  const [name = ''] = readdirSync(emptyFolder);
  return join(emptyFolder, name);
}
