// Opens the store of a shard, which this node has claimed.
import type { Log } from '../../base/log.ts';
import type { PostgresTarget } from '../../store/postgres/connection-url.ts';
import { DatabaseSize } from '../../store/postgres/database-size.ts';
import { openPostgres } from '../../store/postgres/postgres.ts';
import { ShardLostError } from '../../store/postgres/store-lock.ts';
import type { StoreLimits } from '../platform-options.ts';
import type { PostgresFailures } from '../postgres-store.ts';
import type { ShardStore } from './shard-opener.ts';

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
    ...limits,
    ...{ target: { ...target, schema }, takeOver: true, mayReturn: isOwner },
    onFailure: failures.note,
    onReconnect: failures.end,
    onLost: (error) => {
      log.warn({ err: error, shard }, 'database of a shard lost');
      onLost();
    },
  });
  const abandon = () => driver.abandon(new ShardLostError(schema));
  return { store, abandon, size: new DatabaseSize(driver) };
}
