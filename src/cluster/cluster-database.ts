// Prepares a database for nodes: its schema, which it migrates while nodes of an earlier version use it if the steps
// allow that, and the rows of its shards.
import { setTimeout as sleep } from 'node:timers/promises';
import type { PostgresTarget } from '../store/postgres/connection-url.ts';
import {
  checkServer,
  describeUse,
  releaseLock,
  takeLock,
  tryLock,
  UnfitDatabaseError,
} from '../store/postgres/database.ts';
import { codeOf } from '../store/postgres/postgres-errors.ts';
import {
  describeSteps,
  findOldest,
  isLatest,
  MIGRATION_MS,
  type Migration,
  migrate,
  readSchemaVersion,
  requireUsable,
  type SchemaVersion,
} from '../store/postgres/schema.ts';
import { Session, type SessionOptions } from '../store/postgres/session.ts';
import type { MigrationListener } from '../store/schema-migration.ts';
import { number } from '../store/sql/rows.ts';
import type { ClusterRows } from './cluster-rows.ts';
import { DEFAULT_SHARDS } from './plan-shards.ts';

interface ClusterDatabaseOptions {
  target: PostgresTarget;
  rows: ClusterRows;
  /** Those of the program. */
  migrations: readonly Migration[];
  /** Undefined: the number that the database has, or else the default. */
  shards: number | undefined;
  /** How long to wait for programs that use the schema and do not allow its migration, ms. */
  waitMs: number;
  connectTimeoutMs: number;
  /** Called if this node has migrated the schema of an existing database. */
  onMigrated: MigrationListener;
  /** As SessionOptions. */
  connect: SessionOptions['connect'];
}

/** @throws UnfitDatabaseError, SchemaTooNewError, the error of pg or the system */
export async function prepareDatabase(options: ClusterDatabaseOptions): Promise<void> {
  const { connect, connectTimeoutMs, rows, shards, target, waitMs } = options;
  const session = await Session.connect({
    target,
    connect,
    connectTimeoutMs,
    statementTimeoutMs: MIGRATION_MS,
  });
  try {
    await checkServer(session);
    await migrateShared(session, options);
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

const RETRY_MS = 200;
/** Commits of the leader queue behind a step that waits for a table, so the step may not wait for longer. */
const TABLE_WAIT = '2s';
const LOCK_NOT_AVAILABLE = '55P03';

/** @throws UnfitDatabaseError, SchemaTooNewError, the error of pg or the system */
async function migrateShared(session: Session, options: ClusterDatabaseOptions): Promise<void> {
  const { migrations, waitMs } = options;
  const end = performance.now() + waitMs;
  for (;;) {
    const found = await readSchemaVersion(session);
    requireUsable(found, migrations.length);
    if (isLatest(found, migrations)) return;
    const refusal = await tryToMigrate(session, found, options);
    if (!refusal) return;
    if (performance.now() > end) throw refusal;
    await sleep(RETRY_MS);
  }
}

/** @returns why it is not possible now */
async function tryToMigrate(
  session: Session,
  found: SchemaVersion,
  options: ClusterDatabaseOptions,
): Promise<Error | undefined> {
  const { migrations, rows, target } = options;
  const { schema } = target;
  if (found.version > 0 && (await readVersions(session, rows)).length > 0) {
    return migrateBeside(session, options);
  }
  // Without live nodes, a platform that is no node may use the schema.
  if (!(await tryLock(session, schema))) return describeUse(target);
  try {
    // Another node may have made the schema meanwhile, and the lock does not keep out a node that joins.
    const { version } = await readSchemaVersion(session);
    if (version > 0) return await migrateBeside(session, options);
    await migrate(session, schema, migrations);
    return undefined;
  } finally {
    await releaseLock(session, schema);
  }
}

/**
 * While `node` is locked, no node joins or renews its lease. So either this transaction sees a node of an earlier
 * version, or that node sees the new schema when it joins.
 */
async function migrateBeside(
  session: Session,
  { migrations, onMigrated, rows }: ClusterDatabaseOptions,
): Promise<Error | undefined> {
  const beganAt = performance.now();
  await session.execute(`begin; set local lock_timeout = '${TABLE_WAIT}'`);
  try {
    await session.execute('lock table node in share row exclusive mode');
    const found = await readSchemaVersion(session);
    const isDone = isLatest(found, migrations);
    const refusal = isDone ? undefined : refuseOlder(await readVersions(session, rows), migrations);
    if (!isDone && !refusal) await session.execute(describeSteps(found, migrations));
    await session.execute(refusal ? 'rollback' : 'commit');
    if (!isDone && !refusal) {
      const durationMs = performance.now() - beganAt;
      onMigrated({ from: found.version, to: migrations.length, durationMs });
    }
    return refusal;
  } catch (error) {
    // The connection may have ended.
    await session.execute('rollback').catch(() => {});
    if (error instanceof Error && codeOf(error) === LOCK_NOT_AVAILABLE) return error;
    throw error;
  }
}

function refuseOlder(
  versions: readonly number[],
  migrations: readonly Migration[],
): UnfitDatabaseError | undefined {
  const oldest = findOldest(migrations);
  const older = versions.filter((version) => version < oldest);
  if (older.length === 0) return undefined;
  return new UnfitDatabaseError(
    `this version changes the schema to version ${migrations.length}, which versions before ${oldest} cannot use, and ` +
      `running nodes have version ${[...new Set(older)].join(', ')}; stop these nodes, then start this version`,
  );
}

/** Of the schemas that live nodes have been built for. */
async function readVersions(session: Session, rows: ClusterRows): Promise<number[]> {
  return (await session.query(rows.liveVersions())).map((row) => number(row, 'version'));
}
