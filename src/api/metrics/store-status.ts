// The store's condition as the API shows it: whether it accepts writes, and if not, why; and its metrics for
// Prometheus.
import type { Registry } from 'prom-client';
import { createMeters } from '../../base/process-metrics.ts';

export interface StoreStatus {
  /** Why new data cannot be stored; undefined if it can. Tests a real write. */
  findFault(): Promise<string | undefined>;
  /** Problems that need attention although the store works. */
  readonly warnings: readonly string[];
  /** Storage failures by SQLite code, system error code or SQLSTATE, since the start. */
  readonly failures: ReadonlyMap<string, number>;
  measure(): StoreSizes | Promise<StoreSizes>;
  /** Undefined: the platform is no node. */
  readonly shards?: ShardCounts | undefined;
}

/** Numbers of shards of a node. */
export interface ShardCounts {
  /** It serves them. */
  open: number;
  /** It owns them, could not open them, and tries again. */
  failing: number;
  /** It could not open them, and has left them to other nodes. */
  givenUp: number;
}

/**
 * Bytes of the database, of its write-ahead log, of the files of large payloads and of the free space on their disk;
 * undefined where they are not known.
 */
export interface StoreSizes {
  database: number | undefined;
  wal: number | undefined;
  payloads?: number | undefined;
  free?: number | undefined;
}

/** For a platform whose store has no file. */
export const SOUND_STORE: StoreStatus = {
  findFault: async () => undefined,
  warnings: [],
  failures: new Map(),
  measure: () => ({ database: undefined, wal: undefined }),
};

/** Returns a function that updates these metrics from the store. */
export function registerStoreMetrics(registry: Registry, store: StoreStatus): () => Promise<void> {
  const { counter, gauge } = createMeters(registry);
  const failures = counter(
    'millrace_store_failures_total',
    'Failures of the disk or the database since the start of the platform, by SQLite code, system error code or SQLSTATE.',
    ['code'],
  );
  const writable = gauge('millrace_store_writable', 'Whether new jobs can be stored: 1 or 0.');
  const bytes = gauge(
    'millrace_store_bytes',
    'Size of the database and, on SQLite, of its write-ahead log and of the files of large payloads.',
    ['file'],
  );

  const free = gauge(
    'millrace_store_free_bytes',
    'Free space on the disk of the data folder, for a database on SQLite.',
    ['file'],
  );
  const shards =
    store.shards &&
    gauge(
      'millrace_shards',
      'Shards of this node: those it serves, those it cannot open, and those it has left to other nodes for that reason.',
      ['state'],
    );

  return async () => {
    const fault = await store.findFault();
    const sizes: StoreSizes = await store.measure();
    // No await from here on: a second scrape must not add to half-set counters.
    failures.reset();
    for (const [code, count] of store.failures) failures.inc({ code }, count);
    writable.set(fault === undefined ? 1 : 0);
    bytes.reset();
    for (const file of ['database', 'wal', 'payloads'] as const) {
      const size = sizes[file];
      if (size !== undefined) bytes.set({ file }, size);
    }
    free.reset();
    if (sizes.free !== undefined) free.set({ file: 'database' }, sizes.free);
    if (!store.shards) return;
    const { failing, givenUp, open } = store.shards;
    shards?.set({ state: 'open' }, open);
    shards?.set({ state: 'failing' }, failing);
    shards?.set({ state: 'given_up' }, givenUp);
  };
}
