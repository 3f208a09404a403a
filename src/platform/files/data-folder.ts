// A data folder: locks it, or a single database file, for one process, and keeps the names that were made with it.
// The lock is an operating system lock on a file, held through SQLite. It ends with the process, even if the process
// crashes.
import { randomBytes, randomUUID } from 'node:crypto';
import { accessSync, constants, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { makeFolder } from '../../base/make-folder.ts';
import { describeError, PlatformOptionError } from '../option-error.ts';
import { createFile, hasCode } from './durable-files.ts';

const SQLITE_BUSY = 5;
const OWNER_ONLY = 0o700;

export interface DataLock {
  release(): void;
}

/**
 * Refuses a path at which no data folder can be, before anything is created.
 * @throws PlatformOptionError that names the path
 */
export function checkDataFolder(folder: string): void {
  for (let at = folder; ; at = dirname(at)) {
    const stats = statSync(at, { throwIfNoEntry: false });
    if (!stats && dirname(at) !== at) continue;
    if (stats && !stats.isDirectory()) throw refuse(`${folder} cannot be used: ${at} is a file`);
    try {
      accessSync(at, constants.W_OK);
    } catch {
      throw refuse(`${folder} cannot be used: you may not write in ${at}`);
    }
    return;
  }
}

/**
 * PID of the process that has locked the folder; undefined if none has, or it could not note its PID.
 * @throws PlatformOptionError if the noted process is not the one that has the lock
 */
export function findHolder(folder: string): number | undefined {
  const lockFile = join(folder, 'lock.db');
  const database = openExclusive(lockFile);
  database?.close();
  const pid = database ? Number.NaN : Number(readPid(join(folder, 'lock.pid')));
  if (!Number.isSafeInteger(pid) || pid <= 0) return undefined;
  if (holdsLock(lockFile, pid)) return pid;
  // The lock may have been released between the two looks.
  const again = openExclusive(lockFile);
  again?.close();
  if (again) return undefined;
  const where = 'it may run in a container, or as another user: stop it there';
  throw refuse(`${folder} is in use, but not by pid ${pid}, which lock.pid names; ${where}`);
}

/**
 * Creates the folder, for its owner only, if it is missing. @throws PlatformOptionError that names
 * the process that has the lock
 */
export function lockDataFolder(folder: string): DataLock {
  try {
    // Inputs and outputs of jobs may be confidential.
    makeFolder(folder, OWNER_ONLY);
    return openLock(folder);
  } catch (error) {
    if (error instanceof PlatformOptionError) throw error;
    throw refuse(`${folder} cannot be used: ${describeError(error)}`);
  }
}

/**
 * Locks a database file outside of a data folder, with a file beside it that is removed afterwards. @throws
 * PlatformOptionError
 */
export function lockDatabaseFile(path: string): DataLock {
  const lockPath = `${path}.lock`;
  try {
    for (;;) {
      const before = findInode(lockPath);
      const database = openExclusive(lockPath);
      if (database === undefined) throw refuse(`${path} is in use by another process`);
      // Otherwise the lock may be on a file that its last holder has removed meanwhile.
      if (before !== undefined && findInode(lockPath) === before) {
        return { release: () => removeLock(lockPath, database) };
      }
      database.close();
    }
  } catch (error) {
    if (error instanceof PlatformOptionError) throw error;
    throw refuse(`${path} cannot be used: ${describeError(error)}`);
  }
}

function removeLock(lockPath: string, database: DatabaseSync): void {
  rmSync(lockPath, { force: true });
  database.close();
}

function findInode(path: string): bigint | undefined {
  return statSync(path, { bigint: true, throwIfNoEntry: false })?.ino;
}

function openLock(folder: string): DataLock {
  const holderFile = join(folder, 'lock.pid');
  const database = openExclusive(join(folder, 'lock.db'));
  if (database === undefined) throw refuse(`${folder} is in use by ${readHolder(holderFile)}`);
  noteHolder(holderFile);
  return { release: () => database.close() };
}

/** @returns undefined if another process has locked the file. @throws the error of SQLite */
function openExclusive(path: string): DatabaseSync | undefined {
  const database = new DatabaseSync(path, { timeout: 0 });
  try {
    // The file is never written, so it needs no journal, which would fail on a full disk.
    database.exec('pragma journal_mode = memory');
    database.exec('begin exclusive');
    return database;
  } catch (error) {
    database.close();
    if (isBusy(error)) return undefined;
    throw error;
  }
}

function refuse(problem: string): PlatformOptionError {
  return new PlatformOptionError('unusable', 'dataFolder', problem);
}

/** Only for the error message: the lock itself also works on a full disk. */
function noteHolder(holderFile: string): void {
  try {
    writeFileSync(holderFile, String(process.pid));
  } catch (error) {
    const isFull = error instanceof Error && 'code' in error && error.code === 'ENOSPC';
    if (!isFull) throw error;
  }
}

function isBusy(error: unknown): boolean {
  return error instanceof Error && 'errcode' in error && error.errcode === SQLITE_BUSY;
}

function readHolder(holderFile: string): string {
  const pid = readPid(holderFile);
  return pid === '' ? 'another process' : `another process (pid ${pid})`;
}

/** Empty if the file cannot be read. */
function readPid(holderFile: string): string {
  try {
    return readFileSync(holderFile, 'utf8').trim();
  } catch {
    return '';
  }
}

// Whether a process holds the lock on a file, before somebody signals it. The ID in a file beside the lock is not proof: it
// may be stale, forged by the owner of the folder, or of another PID namespace, such as a container's.

/** One line of /proc/locks: `1: POSIX  ADVISORY  WRITE 4242 fd:01:1311 0 EOF`. */
const LOCK_LINE = /^\d+: \w+ +\w+ +WRITE +(-?\d+) +[0-9a-f]+:[0-9a-f]+:(\d+) /;

/** PIDs of the processes that have a write lock on a file with this inode, by the text of /proc/locks. Pure. */
export function findLockOwners(locks: string, inode: bigint): number[] {
  return locks.split('\n').flatMap((line) => {
    const [, pid, ino = '0'] = LOCK_LINE.exec(line) ?? [];
    return pid !== undefined && BigInt(ino) === inode ? [Number(pid)] : [];
  });
}

/**
 * Whether the process holds a write lock on the file. If the system does not list its locks, or not this one, the
 * process must at least belong to the owner of the file, so that nobody can have root signal the process of another.
 */
function holdsLock(path: string, pid: number): boolean {
  const { ino, uid } = statSync(path, { bigint: true });
  const owners = findLockOwners(readLocks(), ino);
  if (owners.length > 0) return owners.includes(pid);
  const owner = statSync(`/proc/${pid}`, { bigint: true, throwIfNoEntry: false })?.uid;
  // Without /proc, the system itself refuses signals to the processes of others, except from root.
  return owner === undefined ? process.geteuid?.() !== 0 : owner === uid;
}

function readLocks(): string {
  try {
    return readFileSync('/proc/locks', 'utf8');
  } catch {
    return '';
  }
}

/** @throws PlatformOptionError if the file does not contain a name */
export function readEngineName(dataFolder: string): string {
  return storeName({
    dataFolder,
    file: 'engine-name',
    pattern: /^[a-z0-9]{4,32}$/,
    create: () => randomBytes(6).toString('hex'),
    requirement:
      "this platform's name on its engine, 4 to 32 lowercase letters and digits; " +
      'with another name the platform does not find its containers',
  });
}

const MAX_HOST = 48;

/** @throws PlatformOptionError if the file does not contain a name */
export function readNodeName(dataFolder: string): string {
  return storeName({
    dataFolder,
    file: 'node-name',
    pattern: /^[a-z0-9][a-z0-9-]{0,62}$/,
    create: () => createName(hostname()),
    requirement:
      'the name of this node, up to 63 lowercase letters, digits and hyphens; ' +
      'with another name the nodes do not find its pods',
  });
}

/** The ID of this run of a node contains the node's name, so that others know it when the node is gone. */
export function createNodeId(name: string): string {
  return name === '' ? `node_${randomUUID()}` : `node_${name}_${randomUUID()}`;
}

/** Null if the ID has none: the node has no engine. */
export function findNameInId(id: string): string | null {
  return /^node_([a-z0-9][a-z0-9.-]{0,252})_[0-9a-f-]{36}$/.exec(id)?.[1] ?? null;
}

/** Several nodes of one machine get different names. */
export function createName(host: string): string {
  const [first = ''] = host.toLowerCase().split('.');
  const readable = first.replace(/[^a-z0-9-]/g, '-').replace(/^-+|-+$/g, '');
  const suffix = randomBytes(3).toString('hex');
  return `${readable.slice(0, MAX_HOST) || 'node'}-${suffix}`;
}

interface StoredName {
  dataFolder: string;
  file: string;
  pattern: RegExp;
  create: () => string;
  /** What the file must contain, and why. */
  requirement: string;
}

/** @throws PlatformOptionError if the file does not contain a name */
function storeName({ create, dataFolder, file, pattern, requirement }: StoredName): string {
  const path = join(dataFolder, file);
  try {
    // If two processes create the file, the first wins.
    createFile(path, `${create()}\n`);
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  }
  const name = readFileSync(path, 'utf8').trim();
  if (pattern.test(name)) return name;
  throw new PlatformOptionError('unusable', 'dataFolder', `${path}: must contain ${requirement}`);
}
