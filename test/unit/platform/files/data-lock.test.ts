// The lock on a data folder, within one process; test/e2e/cli/serve.test.ts has it between processes.
import { readdirSync, statSync, writeFileSync } from 'node:fs';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  findLockOwners,
  lockDatabaseFile,
  lockDataFolder,
} from '../../../../src/platform/files/data-lock.ts';
import { PlatformOptionError } from '../../../../src/platform/option-error.ts';

function unusable(named: string) {
  return expect.objectContaining({
    ...{ name: PlatformOptionError.name, fault: 'unusable', option: 'dataFolder' },
    message: expect.stringContaining(named),
  });
}

let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-lock-'));
});

afterEach(async () => {
  await chmod(folder, 0o700);
  await rm(folder, { recursive: true });
});

it('creates the folder and its parents', () => {
  const lock = lockDataFolder(join(folder, 'a/b'));
  lock.release();
});

it('creates the folder for its owner only', () => {
  const made = join(folder, 'data');
  lockDataFolder(made).release();
  expect(statSync(made).mode & 0o777).toBe(0o700);
});

it('is refused while another process has it, naming the process', () => {
  const lock = lockDataFolder(folder);
  expect(() => lockDataFolder(folder)).toThrow(unusable(`pid ${process.pid}`));
  lock.release();
});

it('is free again after its release', () => {
  lockDataFolder(folder).release();
  lockDataFolder(folder).release();
});

it('does not trust the file with the process ID', async () => {
  await writeFile(join(folder, 'lock.pid'), '1');
  const lock = lockDataFolder(folder);
  expect(await readFile(join(folder, 'lock.pid'), 'utf8')).toBe(String(process.pid));
  lock.release();
});

it('of a database file is removed with its file', () => {
  const path = join(folder, 'copy.db');
  const lock = lockDatabaseFile(path);
  expect(() => lockDatabaseFile(path)).toThrow(unusable(`${path} is in use by another process`));
  lock.release();
  expect(readdirSync(folder)).toEqual([]);
  lockDatabaseFile(path).release();
});

it('of a database file is taken again after its holder was killed', () => {
  const path = join(folder, 'copy.db');
  writeFileSync(`${path}.lock`, '');
  lockDatabaseFile(path).release();
});

it('names a folder that cannot be used', async () => {
  await writeFile(join(folder, 'file'), '');
  expect(() => lockDataFolder(join(folder, 'file'))).toThrow(unusable(join(folder, 'file')));
});

it.skipIf(process.platform !== 'linux')(
  'is refused at once in /proc, where no folder can be created',
  () => {
    expect(() => lockDataFolder('/proc/none/data')).toThrow(unusable('/proc/none/data'));
  },
);

const LOCKS = `1: POSIX  ADVISORY  READ 14725 fe:00:4270136 128 128
2: POSIX  ADVISORY  WRITE 14725 fe:00:4270133 1073741824 1073742335
2: -> POSIX  ADVISORY  WRITE 99 fe:00:4270133 1073741824 1073742335
3: FLOCK  ADVISORY  WRITE 7 00:1a:4270133 0 EOF
4: POSIX  ADVISORY  WRITE 14663 fe:00:42701 0 EOF
`;

describe('the owners of a lock', () => {
  it('have a write lock on the inode; who waits for one has none', () => {
    expect(findLockOwners(LOCKS, 4270133n)).toEqual([14725, 7]);
    expect(findLockOwners(LOCKS, 4270136n)).toEqual([]);
    expect(findLockOwners('', 1n)).toEqual([]);
  });
});
