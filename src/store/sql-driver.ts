// The seam between the one SQL store and a database: how operations run, not what they say.
import type { Step, WriteOptions } from './store.ts';

/**
 * Statements mark their parameters with `?`, in order; a literal question mark occurs in none of
 * them. A driver returns integers as numbers, bigints or decimal text, and bytes as Uint8Array.
 */
export interface SqlDriver {
  /** Ends a select of rows that the operation goes on to change; empty where none is needed. */
  readonly lockClause: string;
  /** As `Store.write`; the operation is started when its turn in the transaction has come. */
  write<T>(start: () => Step<T>, options?: WriteOptions): Promise<T>;
  /** As `Store.read`. */
  read<T>(start: () => Step<T>): Promise<T>;
  /** As `Store.reclaim`. */
  reclaim(pages: number): Promise<boolean>;
  /** As `Store.close`. */
  close(): Promise<void>;
}
