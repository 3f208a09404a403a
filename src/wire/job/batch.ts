// Bounds of batches and of their files. Workers and clients load this file: no zod.
const MB = 1_048_576;
const DAY_MS = 86_400_000;

export const BATCH_LIMITS = {
  /** A file of lines. */
  fileBytes: 200 * MB,
  lines: 50_000,
  lineBytes: 4 * MB,
  customIdCharacters: 256,
  fileNameCharacters: 200,
  /** Files of a user, results of batches included. */
  filesOfUser: 1_000,
  fileBytesOfUser: 10_240 * MB,
  /** Batches of a user that have not ended. */
  openBatchesOfUser: 50,
  windowMs: { min: 60_000, max: 7 * DAY_MS, default: DAY_MS },
  /** Files and ended batches are removed when they are so old, ms. */
  retentionMs: { min: 3_600_000, max: 30 * DAY_MS, default: 30 * DAY_MS },
  /** Jobs of one batch that wait or run. */
  liveJobs: 512,
  /** Files or batches of one page. */
  listed: 100,
  /** Bad lines that one refusal names. */
  describedLines: 20,
  metadata: { pairs: 16, keyCharacters: 64, valueCharacters: 512 },
} as const;

export const BATCH_STATES = [
  'running',
  'cancelling',
  'expiring',
  'completed',
  'cancelled',
  'expired',
] as const;
export type BatchState = (typeof BATCH_STATES)[number];
