// Prepares a database for nodes: its schema, and the rows of its shards.
import type { PostgresTarget } from '../store/postgres/connection-url.ts';
import { MIGRATION_MS, type Migration } from '../store/postgres/schema.ts';
import { checkServer, UnfitDatabaseError } from '../store/postgres/server.ts';
import { Session, type SessionOptions } from '../store/postgres/session.ts';
import { releaseLock, takeLock } from '../store/postgres/store-lock.ts';
import type { MigrationListener } from '../store/schema-migration.ts';
import { number } from '../store/sql/rows.ts';
import type { ClusterRows } from './cluster-rows.ts';
import { DEFAULT_SHARDS } from './plan-shards.ts';
import { migrateShared } from './shared-migration.ts';

export interface ClusterDatabaseOptions {
  target: PostgresTarget;
  rows: ClusterRows;
  /** Those of the program. */
  migrations: readonly Migration[];
  /** Undefined: the number that the database has, or else the default. */
  shards: number | undefined;
  /** How long to wait for programs that use the schema and do not allow its migration, ms. */
  waitMs: number;
  connectTimeoutMs: number;
  onMigrated: MigrationListener;
  /** As SessionOptions. */
  connect: SessionOptions['connect'];
}

/** @throws UnfitDatabaseError, SchemaTooNewError, the error of pg or the system */
export async function prepareDatabase(options: ClusterDatabaseOptions): Promise<void> {
  const { connect, connectTimeoutMs, migrations, onMigrated, rows } = options;
  const { shards, target, waitMs } = options;
  const session = await Session.connect({
    ...{ target, connect, connectTimeoutMs, statementTimeoutMs: MIGRATION_MS },
  });
  try {
    await checkServer(session);
    await migrateShared(session, { target, rows, migrations, waitMs, onMigrated });
    let found = await countShards(session, rows);
    if (found === 0) {
      // A platform without nodes would not learn that the database is shared from now on.
      await takeLock(session, { target, waitMs });
      await session.execute(rows.describeSetup(shards ?? DEFAULT_SHARDS));
      await releaseLock(session, target.schema);
      found = await countShards(session, rows);
    }
    if (shards === undefined || found === shards) return;
    throw new UnfitDatabaseError(
      `the database has ${found} shards, and this node is to use ${shards}; the number cannot change, so use ${found}`,
    );
  } finally {
    await session.end();
  }
}

async function countShards(session: Session, rows: ClusterRows): Promise<number> {
  const [row = {}] = await session.query(rows.countShards());
  return number(row, 'n');
}
