// Opens the store of a shard, which this node has claimed.
import type { Log } from '../../base/log.ts';
import type { PostgresTarget } from '../../store/postgres/connection-url.ts';
import { DatabaseSize } from '../../store/postgres/database-size.ts';
import { openPostgres } from '../../store/postgres/postgres.ts';
import { ShardLostError } from '../../store/postgres/store-lock.ts';
import { logMigration } from '../../store/schema-migration.ts';
import type { StoreLimits } from '../platform-options.ts';
import type { PostgresFailures } from '../postgres-store.ts';
import type { ShardStore } from './shard-opener.ts';

/**
 * Longest time of a statement, ms. A connection on which an answer is late ends 2 s after that: calls on a half-open one
 * must not wait longer than for the takeover of a dead node.
 */
const MAX_STATEMENT_MS = 8_000;
/** Longest time to connect, for the same reason, ms. */
const MAX_CONNECT_MS = 3_000;

export interface ShardStoreOptions {
  target: PostgresTarget;
  limits: StoreLimits;
  shard: number;
  failures: PostgresFailures;
  /** Whether the shard still belongs to this node, after its connection was lost. */
  isOwner: () => Promise<boolean>;
  onLost: () => void;
  log: Log;
}

/** Ends the session of an earlier owner. @throws the error of pg or the system */
export async function openShardStore(
  options: ShardStoreOptions,
): Promise<ShardStore & { size: DatabaseSize }> {
  const { failures, isOwner, limits, log, onLost, shard, target } = options;
  const schema = shard === 0 ? target.schema : `${target.schema}_${shard}`;
  const { driver, store } = await openPostgres({
    ...boundTimes(limits),
    ...{ target: { ...target, schema }, takeOver: true, mayReturn: isOwner },
    onFailure: failures.note,
    onMigrated: (migration) => logMigration(log.child({ shard }), migration),
    onReconnect: failures.end,
    onLost: (error) => {
      log.warn({ err: error, shard }, 'database of a shard lost');
      onLost();
    },
  });
  const abandon = () => driver.abandon(new ShardLostError(schema));
  return { store, abandon, size: new DatabaseSize(driver) };
}

/** The limits of the connections that a node needs to serve a shard. */
export function boundTimes(limits: StoreLimits) {
  const { connectTimeoutMs = MAX_CONNECT_MS, statementTimeoutMs = MAX_STATEMENT_MS } = limits;
  return {
    ...limits,
    connectTimeoutMs: Math.min(connectTimeoutMs, MAX_CONNECT_MS),
    statementTimeoutMs: Math.min(statementTimeoutMs, MAX_STATEMENT_MS),
  };
}
