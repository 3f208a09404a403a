// Describes and copies a store's files from outside, also while a platform uses them.
import { closeSync, fsyncSync, openSync, rmSync, statSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { holdPayloads, importPayloads } from './payload-backup.ts';
import { locatePayloads, PayloadFolder } from './payload-files.ts';
import { type FilePart, findLostParts, listFileParts } from './payload-rows.ts';

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
