// The state in memory as a driver sees it: it changes, and is undone, together with the database.
import type { Step } from '../store.ts';

/** State in memory that operations change together with the database. */
export interface MemoryState {
  /** The changes so far, for `undoTo`. */
  mark(): number;
  /** Undoes all changes since the mark. */
  undoTo(mark: number): void;
  /** Writes to the database what only the memory has. */
  write(): Step<void>;
  /** The transaction is over: committed, or undone in both. */
  settle(): void;
}
