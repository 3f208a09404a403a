// The store's condition as the API shows it: whether it accepts writes, and if not, why.

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
