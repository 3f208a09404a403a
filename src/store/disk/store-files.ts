// Describes and copies a store's files from outside, also while a platform uses them.
import { closeSync, fsyncSync, openSync, rmSync, statSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { holdPayloads, importPayloads } from './payload-backup.ts';
import { listFileParts } from './payload-rows.ts';

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
 * the payloads of files beside the database in its rows. If this fails, no file remains. @throws the error of SQLite or the
 * system
 */
export function backUpStore(path: string, target: string): void {
  closeSync(openSync(target, 'wx', OWNER_ONLY));
  try {
    const payloads = holdPayloads(path);
    try {
      read(path, (database) => database.prepare('vacuum into ?').run(target));
      const copy = new DatabaseSync(target);
      try {
        importPayloads(copy, payloads);
      } finally {
        copy.close();
      }
    } finally {
      payloads.release();
    }
    const file = openSync(target, 'r+');
    fsyncSync(file);
    closeSync(file);
  } catch (error) {
    rmSync(target, { force: true });
    throw error;
  }
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
