// Applies the migrations that a database lacks. The session has the store's lock, so nothing else does it meanwhile.
import { SchemaTooNewError } from '../schema-too-new.ts';
import { MIGRATIONS } from './schema-versions.ts';
import type { Session } from './session.ts';
import { type LockOptions, releaseLock, takeLock } from './store-lock.ts';

/**
 * Migrates the database to the latest version: all migrations or, if one fails, none.
 * @throws SchemaTooNewError
 */
export async function migrate(
  session: Session,
  schema: string,
  migrations: readonly string[] = MIGRATIONS,
): Promise<void> {
  const found = await readVersion(session);
  if (found > migrations.length) throw new SchemaTooNewError(found, migrations.length);
  if (found === migrations.length) return;
  const steps = [
    'begin',
    ...((await hasSchema(session)) ? [] : [`create schema ${schema}`]),
    'create table if not exists schema_version (version bigint not null)',
    ...migrations.slice(found),
    'delete from schema_version',
    `insert into schema_version (version) values (${migrations.length})`,
    'commit',
  ];
  try {
    await session.execute(steps.join(';\n'));
  } catch (error) {
    // The connection may have ended.
    await session.execute('rollback').catch(() => {});
    throw error;
  }
}

/** Migrates a database that other programs may open meanwhile. @throws SchemaTooNewError, UnfitDatabaseError */
export async function migrateLocked(session: Session, options: LockOptions): Promise<void> {
  const { schema } = options.target;
  const found = await readVersion(session);
  if (found > MIGRATIONS.length) throw new SchemaTooNewError(found, MIGRATIONS.length);
  if (found === MIGRATIONS.length) return;
  await takeLock(session, options);
  try {
    await migrate(session, schema);
  } finally {
    await releaseLock(session, schema);
  }
}

async function hasSchema(session: Session): Promise<boolean> {
  const { rows } = await session.execute('select current_schema() as name');
  return rows[0]?.['name'] !== null;
}

/** 0: the schema is empty. */
async function readVersion(session: Session): Promise<number> {
  const table = await session.execute(`select to_regclass('schema_version') as name`);
  if (table.rows[0]?.['name'] === null) return 0;
  const { rows } = await session.execute('select max(version) as version from schema_version');
  return Number(rows[0]?.['version'] ?? 0);
}
