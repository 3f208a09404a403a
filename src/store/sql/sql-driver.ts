// The seam between the SQL store and a database: how operations run, not what they contain.
import type { Step, WriteOptions } from '../store.ts';

/**
 * Statements mark their parameters with `?`, in order, and contain no literal question mark. A
 * driver returns integers as numbers, bigints or decimal text, and bytes as Uint8Array.
 */
export interface SqlDriver {
  /** Like `Store.write`; the operation starts when its turn in the transaction has come. */
  write<T>(start: () => Step<T>, options?: WriteOptions): Promise<T>;
  /** Like `Store.read`. */
  read<T>(start: () => Step<T>): Promise<T>;
  /** Like `Store.reclaim`. */
  reclaim(pages: number): Promise<boolean>;
  /** Like `Store.close`. */
  close(): Promise<void>;
}
