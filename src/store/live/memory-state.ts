// The state in memory as a driver sees it: it changes together with the database.
import type { Step } from '../store.ts';

/** State in memory that operations change together with the database. */
export interface MemoryState {
  /** Number of changes since the last commit. */
  readonly changes: number;
  /** The transaction was undone: what is in memory is read again from the database. */
  forget(): void;
  /** Writes to the database what only the memory has. */
  write(): Step<void>;
  /** The transaction is committed. */
  settle(): void;
}
