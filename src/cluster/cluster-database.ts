// Prepares a database for nodes: its schema, and the rows of its shards.
import type { PostgresTarget } from '../store/postgres/connection-url.ts';
import { migrateLocked } from '../store/postgres/migrations.ts';
import { checkServer, UnfitDatabaseError } from '../store/postgres/server-check.ts';
import { Session } from '../store/postgres/session.ts';
import { number } from '../store/sql/rows.ts';
import type { ClusterRows } from './cluster-rows.ts';

const DEFAULT_SHARDS = 16;
/** A migration of a large table takes long. */
const STATEMENT_MS = 600_000;

export interface ClusterDatabaseOptions {
  target: PostgresTarget;
  rows: ClusterRows;
  /** Undefined: the number that the database has, or else the default. */
  shards: number | undefined;
  /** How long to wait for a platform that uses the schema while it is migrated, ms. */
  waitMs: number;
  connectTimeoutMs: number;
}

/** @throws UnfitDatabaseError, SchemaTooNewError, the error of pg or the system */
export async function prepareDatabase(options: ClusterDatabaseOptions): Promise<void> {
  const { connectTimeoutMs, rows, shards, target, waitMs } = options;
  const session = await Session.connect({
    ...{ target, connectTimeoutMs, statementTimeoutMs: STATEMENT_MS },
  });
  try {
    await checkServer(session);
    await migrateLocked(session, { target, waitMs });
    let found = await countShards(session, rows);
    if (found === 0) {
      await session.execute(rows.describeSetup(shards ?? DEFAULT_SHARDS));
      found = await countShards(session, rows);
    }
    if (shards === undefined || found === shards) return;
    throw new UnfitDatabaseError(
      `the database has ${found} shards, and this node is to use ${shards}; the number cannot change, so use ${found}`,
    );
  } finally {
    await session.end().catch(() => {});
  }
}

async function countShards(session: Session, rows: ClusterRows): Promise<number> {
  const [row = {}] = await session.query(rows.countShards());
  return number(row, 'n');
}
