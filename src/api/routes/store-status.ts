// What the API says about the store: whether it can be written, and why not.

export interface StoreStatus {
  /** Why new data cannot be stored; undefined if it can. Tests a real write. */
  findFault(): Promise<string | undefined>;
  /** What needs attention although the store works. */
  readonly warnings: readonly string[];
  /** Storage failures by SQLite code, since the start. */
  readonly failures: ReadonlyMap<string, number>;
  /** Bytes of the database file and of its write-ahead log. */
  measure(): { database: number; wal: number };
}

/** For a platform whose store has no file. */
export const SOUND_STORE: StoreStatus = {
  findFault: async () => undefined,
  warnings: [],
  failures: new Map(),
  measure: () => ({ database: 0, wal: 0 }),
};
