// Applies the migrations that a database lacks, and decides which versions may use it.
import {
  type SchemaMigration,
  SchemaTooNewError,
  SchemaUnknownError,
} from '../schema-migration.ts';
import { MIGRATIONS, type Migration } from './schema.ts';
import type { Session } from './session.ts';

/** Longest time of a statement that migrates: tables may be large, ms. */
export const MIGRATION_MS = 600_000;

/** The schema as a database has it. */
export interface SchemaVersion {
  /** 0: the schema is empty. */
  version: number;
  /** The oldest version whose programs may use it. */
  oldest: number;
}

/**
 * Migrates the database to the latest version: all migrations or, if one fails, none. The session has the store's lock,
 * so no other program uses the tables meanwhile.
 * @returns undefined if the database was new or needed no migration
 * @throws SchemaTooNewError, SchemaUnknownError
 */
export async function migrate(
  session: Session,
  schema: string,
  migrations: readonly Migration[] = MIGRATIONS,
): Promise<SchemaMigration | undefined> {
  const found = await readSchemaVersion(session);
  requireUsable(found, migrations.length);
  if (isLatest(found, migrations)) return undefined;
  const beganAt = performance.now();
  const create = (await hasSchema(session)) ? [] : [`create schema ${schema}`];
  const steps = ['begin', ...create, describeSteps(found, migrations), 'commit'];
  try {
    await session.execute(steps.join(';\n'));
  } catch (error) {
    // The connection may have ended.
    await session.execute('rollback').catch(() => {});
    throw error;
  }
  if (found.version === 0) return undefined;
  return { from: found.version, to: migrations.length, durationMs: performance.now() - beganAt };
}

/** Whether no migration is left to apply. */
export function isLatest({ version }: SchemaVersion, migrations = MIGRATIONS): boolean {
  return version >= migrations.length;
}

/** `known`: version of the program. @throws SchemaTooNewError */
export function requireUsable({ oldest, version }: SchemaVersion, known = MIGRATIONS.length): void {
  if (oldest > known) throw new SchemaTooNewError(version, known);
}

/** For a program that must know all tables and columns: it copies them. @throws SchemaTooNewError */
export function requireKnown({ version }: SchemaVersion, known = MIGRATIONS.length): void {
  if (version > known) throw new SchemaTooNewError(version, known);
}

/** The statements from a version to the latest one, for a transaction. */
export function describeSteps(
  { version }: SchemaVersion,
  migrations: readonly Migration[] = MIGRATIONS,
): string {
  const steps = [
    ...migrations.slice(version).map(({ sql }) => sql),
    'delete from schema_version',
    `insert into schema_version (version, oldest) values (${migrations.length}, ${findOldest(migrations)})`,
  ];
  return steps.join(';\n');
}

/** The oldest version whose programs may use a database with all of the migrations. */
export function findOldest(migrations: readonly Migration[] = MIGRATIONS): number {
  return Math.max(...migrations.map(({ oldest }) => oldest));
}

async function hasSchema(session: Session): Promise<boolean> {
  const { rows } = await session.execute('select current_schema() as name');
  return rows[0]?.['name'] !== null;
}

/** @throws SchemaUnknownError */
export async function readSchemaVersion(session: Session): Promise<SchemaVersion> {
  const tables = await session.execute(
    `select to_regclass('schema_version') as version, to_regclass('job') as job`,
  );
  const [found = {}] = tables.rows;
  if (found['version'] === null) {
    if (found['job'] !== null) throw new SchemaUnknownError();
    return { version: 0, oldest: 0 };
  }
  const { rows } = await session.execute('select version, oldest from schema_version');
  const [row] = rows;
  if (!row) throw new SchemaUnknownError();
  return { version: Number(row['version']), oldest: Number(row['oldest']) };
}
