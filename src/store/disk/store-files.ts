// A store's files from outside, also while a platform uses them: describes and copies them, and checks them for damaged
// pages and lost payloads.
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import {
  closeSync,
  copyFileSync,
  constants as fileConstants,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
} from 'node:fs';
import { constants, setPriority } from 'node:os';
import { extname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { fileURLToPath } from 'node:url';
import { iterateLines } from '../../base/text/line-reader.ts';
import { isPlainObject } from '../../wire/json.ts';
import {
  type FilePart,
  findLostParts,
  listFileParts,
  locatePayloads,
  PayloadFolder,
} from './payload-files.ts';

const OWNER_ONLY = 0o600;

export interface StoreFiles {
  databaseBytes: number;
  walBytes: number;
  reserveBytes: number;
  /** Large inputs and outputs, which are in files beside the database. */
  payloadBytes: number;
  schemaVersion: number;
  pageBytes: number;
  pages: number;
  freePages: number;
  /** Rows by table. */
  rows: Record<string, number>;
  /** Jobs by status. */
  jobs: Record<string, number>;
}

const COUNTED = ['endpoint', 'job', 'delivery', 'worker', 'api_key', 'resource'];

/** @throws SQLite's error */
export function describeStore(path: string): StoreFiles {
  const sizeOf = (file: string) => statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  return read(path, (database) => {
    const pragma = (name: string) =>
      Number(Object.values(ask(database, `pragma ${name}`)[0] ?? {})[0]);
    const tables = new Set(ask(database, 'select name from sqlite_schema').map(({ name }) => name));
    const counted = COUNTED.filter((table) => tables.has(table));
    const count = (table: string) =>
      Number(ask(database, `select count(*) as n from ${table}`)[0]?.['n']);
    const byStatus = tables.has('job')
      ? ask(database, 'select status, count(*) as n from job group by status')
      : [];
    return {
      databaseBytes: sizeOf(path),
      walBytes: sizeOf(`${path}-wal`),
      reserveBytes: sizeOf(`${path}.reserve`),
      payloadBytes: listFileParts(database).reduce((sum, { bytes }) => sum + bytes, 0),
      schemaVersion: pragma('user_version'),
      pageBytes: pragma('page_size'),
      pages: pragma('page_count'),
      freePages: pragma('freelist_count'),
      rows: Object.fromEntries(counted.map((table) => [table, count(table)])),
      jobs: Object.fromEntries(byStatus.map(({ n, status }) => [String(status), Number(n)])),
    };
  });
}

/**
 * Writes a consistent copy of the database, without deleted data, to a new file that only its owner may read. The copy has
 * the payloads of files beside the database in its rows. If this fails, no file remains. @returns the problems of files that
 * were lost before, and that the copy lacks. @throws the error of SQLite or the system, and Error if a job was submitted
 * right before the copy began and removed before it ended
 */
export function backUpStore(path: string, target: string): string[] {
  closeSync(openSync(target, 'wx', OWNER_ONLY));
  try {
    const missing = copyWhole(path, target);
    const lost =
      missing.length === 0 ? [] : read(path, (database) => judge(database, path, missing));
    const file = openSync(target, 'r+');
    fsyncSync(file);
    closeSync(file);
    return lost;
  } catch (error) {
    rmSync(target, { force: true });
    throw error;
  }
}

/** @returns the parts of files that the copy lacks */
function copyWhole(path: string, target: string): FilePart[] {
  const payloads = holdPayloads(path);
  try {
    read(path, (database) => database.prepare('vacuum into ?').run(target));
    const copy = new DatabaseSync(target);
    try {
      return importPayloads(copy, payloads);
    } finally {
      copy.close();
    }
  } finally {
    payloads.release();
  }
}

/** @returns the problems of the missing files. @throws Error if the database no longer has a job of theirs */
function judge(database: DatabaseSync, path: string, missing: readonly FilePart[]): string[] {
  const files = new PayloadFolder({ folder: locatePayloads(path) });
  const named = new Set(listFileParts(database).map(({ payload }) => files.locate(payload)));
  const removed = missing.find(({ payload }) => !named.has(files.locate(payload)));
  if (removed) {
    const { id, kind } = removed.payload;
    throw new Error(
      `The ${kind} of job ${id} was removed while the backup began; run the backup again`,
    );
  }
  return findLostParts(database, files);
}

function ask(database: DatabaseSync, sql: string) {
  return database.prepare(sql).all();
}

function read<T>(path: string, act: (database: DatabaseSync) => T): T {
  const database = new DatabaseSync(path, { readOnly: true, timeout: 5_000 });
  try {
    return act(database);
  } finally {
    database.close();
  }
}

const OWNER_ONLY_FOLDER = 0o700;
const LINKS = /^backup-[\da-f-]{36}$/;
/** Links this old are those of a backup that was killed, ms. */
const STALE_MS = 86_400_000;

export interface HeldPayloads extends Pick<PayloadFolder, 'readPartSync'> {
  release(): void;
}

/** Links every file in the folder of the database's payloads. @throws the system's error */
export function holdPayloads(databasePath: string): HeldPayloads {
  const folder = locatePayloads(databasePath);
  const live = new PayloadFolder({ folder });
  if (!statSync(folder, { throwIfNoEntry: false })) {
    return { readPartSync: (...part) => live.readPartSync(...part), release: () => {} };
  }
  removeStale(folder);
  const links = join(folder, `backup-${randomUUID()}`);
  mkdirSync(links, { mode: OWNER_ONLY_FOLDER });
  const release = () => rmSync(links, { recursive: true, force: true });
  try {
    linkNew(folder, links);
    // The first pass over many files takes a while.
    linkNew(folder, links);
  } catch (error) {
    release();
    throw error;
  }
  const held = new PayloadFolder({ folder: links });
  // A file that was written after the links were made is only in the folder itself.
  const readPartSync: HeldPayloads['readPartSync'] = (...part) =>
    held.readPartSync(...part) ?? live.readPartSync(...part);
  return { readPartSync, release };
}

function linkNew(folder: string, links: string): void {
  const linked = new Set(readdirSync(links));
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (!entry.isFile() || linked.has(entry.name)) continue;
    keep(join(folder, entry.name), join(links, entry.name));
  }
}

/** Those that another user made stay. */
function removeStale(folder: string): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    if (!entry.isDirectory() || !LINKS.test(entry.name)) continue;
    const path = join(folder, entry.name);
    try {
      if (Date.now() - statSync(path).mtimeMs > STALE_MS) rmSync(path, { recursive: true });
    } catch {
      // The backup does not need its space.
    }
  }
}

/** Does nothing if the platform has removed the file meanwhile. */
function keep(file: string, link: string): void {
  try {
    linkSync(file, link);
  } catch {
    // A file system without links, or a file of another user.
    if (!statSync(file, { throwIfNoEntry: false })) return;
    copyFileSync(file, link, fileConstants.COPYFILE_FICLONE);
  }
}

/**
 * Replaces each part of a file that a row of the copy names by its bytes. @returns the parts whose files lack them: the rows
 * of the copy still name these files
 */
export function importPayloads(
  copy: DatabaseSync,
  files: Pick<HeldPayloads, 'readPartSync'>,
): FilePart[] {
  const missing: FilePart[] = [];
  copy.exec('pragma journal_mode = off; pragma synchronous = off; begin');
  for (const part of listFileParts(copy)) {
    const { at, payload, table } = part;
    const content = files.readPartSync(payload, part.offset, part.bytes);
    if (!content) {
      missing.push(part);
      continue;
    }
    copy
      .prepare(
        `update ${table} set bytes = ?, file_bytes = null where endpoint_id = ? and job_id = ? and at = ?`,
      )
      .run(content, payload.endpointId, payload.id, at);
  }
  copy.exec('commit');
  return missing;
}

const entry = fileURLToPath(
  new URL(`./integrity-process${extname(import.meta.url)}`, import.meta.url),
);

const PROGRESS_EVERY_MS = 1_000;

export interface IntegrityOptions {
  path: string;
  /** `quick`: pages and rows; `full`: also whether each index has the rows of its table. */
  depth: 'quick' | 'full';
  /** Aborts the check. */
  signal: AbortSignal;
  /** Called every second with the bytes read and the total; only on Linux. */
  onProgress?: (readBytes: number, totalBytes: number) => void;
}

export interface IntegrityResult {
  /** Damage that SQLite found, and lost files: at most about a hundred lines of each. */
  problems: string[];
  /** False if the check was aborted. */
  isComplete: boolean;
}

/**
 * Checks the database and the files of its payloads in a separate process, because a check cannot be interrupted.
 * @throws Error with the reason why the file cannot be checked
 */
export async function checkIntegrity(options: IntegrityOptions): Promise<IntegrityResult> {
  const { depth, onProgress, path, signal } = options;
  if (signal.aborted) return { problems: [], isComplete: false };
  const child = spawn(process.execPath, [entry, path, depth], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const ended = once(child, 'close');
  // The spawn error may arrive before anybody awaits the end.
  ended.catch(() => {});
  const kill = () => child.kill('SIGKILL');
  signal.addEventListener('abort', kill, { once: true });
  const progress = setInterval(() => {
    const bytes = readBytesRead(child.pid);
    if (bytes !== undefined) onProgress?.(bytes, measure(path));
  }, PROGRESS_EVERY_MS);
  try {
    yieldTo(child.pid);
    if (child.pid === undefined) await ended;
    const problems: string[] = [];
    for await (const line of iterateLines(child.stdout)) {
      const found: unknown = JSON.parse(line);
      if (isPlainObject(found)) throw new Error(String(found['failure']));
      problems.push(String(found));
    }
    const [code] = await ended;
    return { problems, isComplete: code === 0 };
  } finally {
    clearInterval(progress);
    signal.removeEventListener('abort', kill);
    kill();
  }
}

/** The platform's own work has priority. */
function yieldTo(pid: number | undefined): void {
  try {
    if (pid !== undefined) setPriority(pid, constants.priority.PRIORITY_LOW);
  } catch {
    // The process has ended, or this user may not set priorities: the check then runs at normal
    // priority.
  }
}

function measure(path: string): number {
  return [path, `${path}-wal`]
    .map((file) => statSync(file, { throwIfNoEntry: false })?.size ?? 0)
    .reduce((sum, size) => sum + size, 0);
}

function readBytesRead(pid: number | undefined): number | undefined {
  try {
    const found = /^rchar: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'));
    return found ? Number(found[1]) : undefined;
  } catch {
    return undefined;
  }
}
