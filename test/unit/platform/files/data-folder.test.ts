// The lock on a data folder, within one process; test/e2e/cli/serve.test.ts has it between processes.
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import {
  createName,
  createNodeId,
  findLockOwners,
  findNameInId,
  lockDatabaseFile,
  lockDataFolder,
  readEngineName,
  readNodeName,
} from '../../../../src/platform/files/data-folder.ts';
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

it('removes the lock of a database file with its file', () => {
  const path = join(folder, 'copy.db');
  const lock = lockDatabaseFile(path);
  expect(() => lockDatabaseFile(path)).toThrow(unusable(`${path} is in use by another process`));
  lock.release();
  expect(readdirSync(folder)).toEqual([]);
  lockDatabaseFile(path).release();
});

it('takes the lock of a database file after its holder was killed', () => {
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

function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-name-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

it('keeps the name of the first start', () => {
  const folder = makeFolder();
  const name = readEngineName(folder);
  expect(name).toMatch(/^[a-z0-9]{12}$/);
  expect(readEngineName(folder)).toBe(name);
  expect(readFileSync(join(folder, 'engine-name'), 'utf8')).toBe(`${name}\n`);
});

it('gives two platforms different names', () => {
  expect(readEngineName(makeFolder())).not.toBe(readEngineName(makeFolder()));
});

it('refuses a file without a name, and leaves it unchanged', () => {
  const folder = makeFolder();
  const path = join(folder, 'engine-name');
  writeFileSync(path, '');
  expect(() => readEngineName(folder)).toThrow(
    expect.objectContaining({ fault: 'unusable', option: 'dataFolder' }),
  );
  expect(readFileSync(path, 'utf8')).toBe('');
});

function createFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-name-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

it.each([
  ['GPU-Box_1.example.com', /^gpu-box-1-[0-9a-f]{6}$/],
  ['', /^node-[0-9a-f]{6}$/],
  ['--', /^node-[0-9a-f]{6}$/],
  ['x'.repeat(200), /^x{48}-[0-9a-f]{6}$/],
])('begins with the name of the machine: %j', (host, expected) => {
  expect(createName(host)).toMatch(expected);
  expect(createName(host)).not.toBe(createName(host));
});

it('stays the same in a data folder, and differs between two', () => {
  const folder = createFolder();
  const name = readNodeName(folder);
  expect(readNodeName(folder)).toBe(name);
  expect(readNodeName(createFolder())).not.toBe(name);
});

it('is found in the ID of a node, which is another one at each start', () => {
  const id = createNodeId('gpu-1-a3f9c2');
  expect(createNodeId('gpu-1-a3f9c2')).not.toBe(id);
  expect(findNameInId(id)).toBe('gpu-1-a3f9c2');
  expect(findNameInId(createNodeId(''))).toBeNull();
  expect(findNameInId('node_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d70')).toBeNull();
});

it('is refused if the file has something else, with the path', () => {
  const folder = createFolder();
  writeFileSync(join(folder, 'node-name'), 'No Name\n');
  expect(() => readNodeName(folder)).toThrow(/^dataFolder: \S+node-name: must contain the name/);
});
