// Checks whether a server can serve as a store.
import type { Session } from './session.ts';

/** The database cannot serve as a store, and another attempt would not help: its version, its mode, its use. */
export class UnfitDatabaseError extends Error {
  override readonly name = 'UnfitDatabaseError';
}

const OLDEST_VERSION = 15;

/** @throws UnfitDatabaseError */
export async function checkServer(session: Session): Promise<void> {
  const { rows } = await session.execute(
    `select current_setting('server_version_num')::int as version, pg_is_in_recovery() as standby,
      current_setting('transaction_read_only') as read_only,
      current_setting('synchronous_commit') as synchronous, current_setting('fsync') as fsync`,
  );
  const [server = {}] = rows;
  const version = Math.floor(Number(server['version']) / 10_000);
  if (version < OLDEST_VERSION) {
    throw new UnfitDatabaseError(
      `the server is Postgres ${version}; use Postgres ${OLDEST_VERSION} or later`,
    );
  }
  if (server['standby'] === true || server['read_only'] === 'on') {
    throw new UnfitDatabaseError(
      'the database is read-only; use the primary server, not a standby',
    );
  }
  // What is acknowledged is on disk.
  if (server['synchronous'] === 'off') await session.execute('set synchronous_commit = on');
}
