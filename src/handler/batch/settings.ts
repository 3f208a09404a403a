// How the jobs of one thread form batches, with every value set, and what happens to batches.

/** See BatchOptions. */
export interface BatchSettings {
  readonly maxSize: number;
  readonly maxWaitMs: number;
  readonly maxInFlight: number;
}

export type BatchEvent =
  /** `of`: size of a full batch. `waitMs`: how long its first job waited for it. */
  | {
      readonly kind: 'started';
      readonly size: number;
      readonly of: number;
      readonly waitMs: number;
    }
  /** The batch function threw, and the jobs run again in parts. */
  | { readonly kind: 'split'; readonly size: number }
  /** The batch function threw, and no job runs again in this attempt. */
  | { readonly kind: 'failed'; readonly size: number };
