// The platform's database: a Postgres server, a guarded file in the data folder, or memory.
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { SOUND_STORE, type StoreStatus } from '../api/metrics/store-status.ts';
import type { Clock } from '../base/clock.ts';
import { UnfinishedCopyError } from '../store/copy/copy-state.ts';
import { explainFailure, nameStorageFailure } from '../store/disk/store-failures.ts';
import { StoreGuard } from '../store/disk/store-guard.ts';
import { SchemaTooNewError } from '../store/schema-migration.ts';
import { openSqliteStore } from '../store/sqlite/sqlite.ts';
import { LoneLogError } from '../store/sqlite/sqlite-connection.ts';
import { type Store, StoreUnavailableError } from '../store/store.ts';
import { describeError, PlatformOptionError } from './option-error.ts';
import type { CompleteOptions } from './platform-options.ts';

export interface DataStore {
  store: Store;
  status: StoreStatus;
  close(): Promise<void>;
}

/** @throws PlatformOptionError */
export async function openDataStore(options: CompleteOptions, clock: Clock): Promise<DataStore> {
  const { dataFolder: folder, log, onStoreLost: onLost, storage } = options;
  if (options.store !== undefined) {
    // Only here, because the driver takes time to load.
    const { openPostgresData } = await import('./postgres-store.ts');
    const { store: url, storeLimits: limits = {}, storePassword: password } = options;
    const { status, store } = await openPostgresData({ url, password, limits, log, onLost });
    return { store, status, close: () => store.close() };
  }
  if (folder === undefined) {
    const store = openSqliteStore({ path: ':memory:' });
    return { store, status: SOUND_STORE, close: () => store.close() };
  }
  const path = join(folder, 'millrace.db');
  try {
    // The database holds secrets and payloads. SQLite would make it readable for everybody; its
    // other files get the mode of this one.
    closeSync(openSync(path, 'a', 0o600));
    const guard = await StoreGuard.open({ ...storage, path, clock, log, onLost });
    return { store: guard.store, status: guard, close: () => guard.close() };
  } catch (error) {
    throw refuse(explainOpening(error, folder));
  }
}

/** Explains a failure of the store during the platform's start. */
export function explainStoreError(
  error: unknown,
  { dataFolder: folder, store }: Pick<CompleteOptions, 'dataFolder' | 'store'>,
): unknown {
  if (!(error instanceof StoreUnavailableError)) return error;
  if (store !== undefined) return new PlatformOptionError('unusable', 'store', error.message);
  return refuse(`${folder} cannot be used: ${explainFailure(error.code ?? '')}`);
}

function explainOpening(error: unknown, folder: string): string {
  const reason = describeError(error);
  const isExplained =
    error instanceof SchemaTooNewError ||
    error instanceof LoneLogError ||
    error instanceof UnfinishedCopyError;
  if (isExplained) return reason;
  const code = nameStorageFailure(error);
  const advice = code === undefined ? '' : `; ${explainFailure(code)}`;
  return `${folder} cannot be used: ${reason}${advice}`;
}

function refuse(problem: string): PlatformOptionError {
  return new PlatformOptionError('unusable', 'dataFolder', problem);
}
