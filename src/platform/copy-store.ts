// Copies the database of a platform that is stopped to another one: opens and locks both.
import { realpathSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { CopiedDatabase, CopyError, type CopyRole } from '../store/copy/copied-database.ts';
import { type CopiedTable, type CopyStep, copyDatabase } from '../store/copy/copy-database.ts';
import { readPostgresUrl, StoreUrlError } from '../store/postgres/connection-url.ts';
import { type DataLock, lockDatabaseFile, lockDataFolder } from './files/data-folder.ts';
import { PlatformOptionError } from './option-error.ts';

export type { CopiedTable, CopyStep };

export interface CopyStoreOptions {
  /** `sqlite:` and a data folder or a file, or a `postgres://` URL. */
  from: string;
  to: string;
  /** For Postgres, if the URL has none. */
  password?: string | undefined;
  /** Rows of one transaction at most. Default 1,000. */
  batchRows?: number | undefined;
  onProgress: (step: CopyStep) => void;
  /** Ends the copy after a batch; the same call continues it. */
  signal: AbortSignal;
}

type Closers = (() => unknown)[];

const OPTIONS = { source: 'from', target: 'to' } as const;
const FILE = 'millrace.db';
const BATCH_BYTES = 4 * 1_048_576;

/**
 * @returns the rows of each table; undefined if the signal ended the copy. @throws PlatformOptionError of `from` or
 * `to`
 */
export async function copyStore(options: CopyStoreOptions): Promise<CopiedTable[] | undefined> {
  const { batchRows = 1_000, from, onProgress, password, signal, to } = options;
  const closers: Closers = [];
  const names = { source: nameDatabase(from), target: nameDatabase(to) };
  try {
    if (names.source === names.target) throw invalid('target', 'is the same database as --from');
    const source = await open('source', { text: from, password }, closers);
    const target = await open('target', { text: to, password }, closers);
    const bounds = { rows: batchRows, bytes: BATCH_BYTES };
    return await copyDatabase({ source, target, names, bounds, onProgress, signal });
  } catch (error) {
    if (!(error instanceof CopyError)) throw error;
    throw new PlatformOptionError('unusable', OPTIONS[error.role], error.message);
  } finally {
    for (const close of closers.reverse()) {
      // All that counts is on disk by now, or has failed before.
      await Promise.resolve(close()).catch(() => {});
    }
  }
}

/** As the command line names it, without its password and with the whole path. */
export function nameDatabase(text: string): string {
  const path = readSqlitePath(text);
  if (path !== undefined) return `sqlite:${resolve(path)}`;
  if (!URL.canParse(text)) return text;
  const url = new URL(text);
  url.password = '';
  return url.href;
}

function readSqlitePath(text: string): string | undefined {
  return /^sqlite:(?:\/\/(?=\/))?(.+)$/s.exec(text)?.[1];
}

interface Address {
  text: string;
  password: string | undefined;
}

async function open(
  role: CopyRole,
  { password, text }: Address,
  closers: Closers,
): Promise<CopiedDatabase> {
  const path = readSqlitePath(text);
  const database =
    path === undefined
      ? await CopiedDatabase.openPostgres(role, readTarget(role, { password, text }))
      : openFile(role, resolve(path), closers);
  closers.push(() => database.close());
  return database;
}

/** @throws PlatformOptionError */
function readTarget(
  role: CopyRole,
  { password, text }: Address,
): ReturnType<typeof readPostgresUrl> {
  if (!/^postgres(?:ql)?:/.test(text)) {
    const problem = 'must be sqlite:DIR, sqlite:FILE or postgres://USER@HOST:5432/DATABASE';
    throw invalid(role, problem);
  }
  try {
    return readPostgresUrl(text, password);
  } catch (error) {
    throw error instanceof StoreUrlError ? invalid(role, error.message) : error;
  }
}

function openFile(role: CopyRole, path: string, closers: Closers): CopiedDatabase {
  const file = locateFile(role, path);
  const lock = lockFile(role, file);
  closers.push(() => lock.release());
  return CopiedDatabase.openSqlite(role, file);
}

/** @throws PlatformOptionError */
function locateFile(role: CopyRole, path: string): string {
  const found = statSync(path, { throwIfNoEntry: false });
  const isFolder = found?.isDirectory() ?? !path.endsWith('.db');
  const file = isFolder ? join(path, FILE) : path;
  const size = statSync(file, { throwIfNoEntry: false })?.size;
  if (role === 'source' && (size === undefined || size === 0)) {
    const problem = `${file} ${size === 0 ? 'is empty' : 'does not exist'}; name the data folder of a platform, or a database file`;
    throw new PlatformOptionError('unusable', OPTIONS[role], problem);
  }
  return size === undefined ? file : realpathSync(file);
}

/** No platform uses a file with another name, but another copy may. @throws PlatformOptionError */
function lockFile(role: CopyRole, file: string): DataLock {
  const isOfPlatform = basename(file) === FILE;
  try {
    return isOfPlatform ? lockDataFolder(dirname(file)) : lockDatabaseFile(file);
  } catch (error) {
    if (!(error instanceof PlatformOptionError)) throw error;
    const problem = `${error.problem}; ${isOfPlatform ? 'stop the platform first' : 'wait for the other copy'}`;
    throw new PlatformOptionError('unusable', OPTIONS[role], problem);
  }
}

function invalid(role: CopyRole, problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', OPTIONS[role], problem);
}
