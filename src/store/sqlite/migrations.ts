// Applies the migrations that a database lacks.
import type { DatabaseSync } from 'node:sqlite';
import {
  type SchemaMigration,
  SchemaTooNewError,
  SchemaUnknownError,
} from '../schema-migration.ts';
import { MIGRATIONS } from './schema.ts';

/**
 * Migrates the database to the latest version: all migrations or, if one fails, none.
 * @returns undefined if the database was new or needed no migration
 * @throws SchemaTooNewError, SchemaUnknownError
 */
export function migrate(
  database: DatabaseSync,
  migrations: readonly string[] = MIGRATIONS,
): SchemaMigration | undefined {
  const beganAt = performance.now();
  // Lock first: if two processes open a new file at once, the second finds it migrated.
  database.exec('begin immediate');
  try {
    const found = readVersion(database);
    if (found > migrations.length) throw new SchemaTooNewError(found, migrations.length);
    if (found === 0 && hasTables(database)) throw new SchemaUnknownError();
    for (const migration of migrations.slice(found)) database.exec(migration);
    // Without a change nothing is written, so the platform can start on a full disk.
    if (found < migrations.length) database.exec(`pragma user_version = ${migrations.length}`);
    database.exec('commit');
    if (found === 0 || found === migrations.length) return undefined;
    return { from: found, to: migrations.length, durationMs: performance.now() - beganAt };
  } catch (error) {
    if (database.isTransaction) database.exec('rollback');
    throw error;
  }
}

function readVersion(database: DatabaseSync): number {
  return Number(database.prepare('pragma user_version').get()?.['user_version']);
}

function hasTables(database: DatabaseSync): boolean {
  return database.prepare('select 1 from sqlite_schema limit 1').get() !== undefined;
}
