import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const SOURCE = fileURLToPath(new URL('../../../../src/engine/process/folders.ts', import.meta.url));
/** Root may empty every folder, so that nobody tells more. */
const NOBODY = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

function runAsNobody(args: readonly string[], input = ''): { status: number | null; said: string } {
  const options = { ...NOBODY, input, cwd: '/', env: {}, encoding: 'utf8' } as const;
  const { status, stderr, stdout } = spawnSync(process.execPath, args, options);
  return { status, said: `${stdout}${stderr}` };
}

/** What the parts of the checkout's path let through. */
const canRun = runAsNobody(['--version']).status === 0 && runAsNobody(['-e', read()]).status === 0;

function read(): string {
  return `fs.readFileSync(${JSON.stringify(SOURCE)})`;
}

it.skipIf(!canRun)('removes read-only folders, but not the targets of links', () => {
  const { said } = runAsNobody(
    ['--input-type=module'],
    `
    import { chmodSync, mkdirSync, mkdtempSync, existsSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
    import { removeTree } from ${JSON.stringify(SOURCE)};
    const home = mkdtempSync('/tmp/millrace-tree-');
    mkdirSync(home + '/disk/cache/deep', { recursive: true });
    mkdirSync(home + '/shared');
    writeFileSync(home + '/disk/cache/deep/file', 'x');
    symlinkSync(home + '/shared', home + '/disk/cache/link');
    chmodSync(home + '/shared', 0o555);
    for (const name of ['/disk/cache/deep', '/disk/cache', '/disk']) chmodSync(home + name, 0o500);
    await removeTree(home + '/disk');
    await removeTree(home + '/disk');
    console.log(existsSync(home + '/disk'), (statSync(home + '/shared').mode & 0o777).toString(8));
    rmSync(home, { recursive: true });`,
  );
  expect(said).toBe('false 555\n');
});
