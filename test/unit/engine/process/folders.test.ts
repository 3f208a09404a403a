// The folders and files of pods.
import { spawnSync } from 'node:child_process';
import {
  appendFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { mkdtemp, rm, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { cutLog, readLogEnd } from '../../../../src/engine/process/container-watch.ts';
import { findRun, noteOutOfMemory, type SeenRun } from '../../../../src/engine/process/runs.ts';

describe('a folder of pods', () => {
  const SOURCE = fileURLToPath(
    new URL('../../../../src/engine/process/pod-user.ts', import.meta.url),
  );
  /** Root may empty every folder, so that nobody tells more. */
  const NOBODY = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

  function runAsNobody(
    args: readonly string[],
    input = '',
  ): { status: number | null; said: string } {
    const options = { ...NOBODY, input, cwd: '/', env: {}, encoding: 'utf8' } as const;
    const { status, stderr, stdout } = spawnSync(process.execPath, args, options);
    return { status, said: `${stdout}${stderr}` };
  }

  /** What the parts of the checkout's path let through. */
  const canRun =
    runAsNobody(['--version']).status === 0 && runAsNobody(['-e', read()]).status === 0;

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
});

describe('a log file', () => {
  let folder: string;
  let path: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'millrace-log-'));
    path = join(folder, 'log');
  });

  afterEach(() => rmSync(folder, { recursive: true }));

  async function readText(maxBytes: number): Promise<string> {
    return Buffer.from(await readLogEnd(path, maxBytes)).toString();
  }

  describe('a log', () => {
    it('is empty if it is missing', async () => {
      await cutLog(path);
      expect(await readText(100)).toBe('');
    });

    it('is read from its end', async () => {
      writeFileSync(path, 'one\ntwo\n');
      expect(await readText(4)).toBe('two\n');
      expect(await readText(100)).toBe('one\ntwo\n');
      expect(await readText(0)).toBe('');
    });

    it('is unchanged while it is short', async () => {
      writeFileSync(path, '12345');
      await cutLog(path, 5);
      expect(readFileSync(path, 'utf8')).toBe('12345');
    });

    it('restarts empty if it is too long, with its end in another file', async () => {
      writeFileSync(path, '123456789');
      await cutLog(path, 5);
      expect(statSync(path).size).toBe(0);
      appendFileSync(path, 'ab');
      expect(await readText(100)).toBe('56789ab');
      expect(await readText(4)).toBe('89ab');
    });

    it('keeps one earlier part', async () => {
      for (const text of ['111111', '222222', '333333']) {
        appendFileSync(path, text);
        await cutLog(path, 5);
      }
      expect(await readText(100)).toBe('33333');
    });
  });
});

describe('a run file', () => {
  it('is not read if it is a large exit file', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'runs-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    await writeFile(join(folder, 'run-1'), 'no record\n7\n');
    expect(await findRun(folder)).toMatchObject({ number: 1 });
    await truncate(join(folder, 'run-1'), 200_000);
    expect(await findRun(folder)).toMatchObject({
      number: 1,
      record: undefined,
      end: { code: 137 },
    });
  });

  it('keeps the time of the end when memory is noted', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'runs-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const file = join(folder, 'run-1');
    await writeFile(file, 'no record\n137\n');
    await utimes(file, 1_700_000_000.123, 1_700_000_000.123);
    const run: SeenRun = { number: 1, file, record: undefined, outOfMemory: false, end: undefined };
    await noteOutOfMemory(run);
    const end = { code: 137, at: 1_700_000_000_123 };
    expect(await findRun(folder)).toMatchObject({ outOfMemory: true, end });
  });
});
