// What history.ts and the targets of its files share: the settings, the target's interface, and the decisions: when the lines
// of an endpoint become a file, and the name of that file.
import type { HistoryPolicy } from '../../wire/resources/fields.ts';

export interface HistorySettings {
  /** For endpoints that do not say. Default `OFF`. */
  policy: HistoryPolicy;
  /** A line waits for others at most for this time, ms. Default 1 h. */
  everyMs: number;
  /** Lines of one file, bytes before their compression; a file has at least one line. Default 16 MB. */
  fileBytes: number;
  /** Larger inputs and outputs are left out, bytes. Default 64 KB. */
  payloadBytes: number;
  /** Lines of one user that wait for their file, bytes; the queue drops further ones. Default 256 MB. */
  backlogBytes: number;
  /** Waits after failures: the first and the longest, ms, and the share of jitter. */
  retry: { baseMs: number; maxMs: number; jitter: number };
}

const MB = 1_048_576;

export const DEFAULT_HISTORY_SETTINGS: HistorySettings = {
  policy: 'OFF',
  everyMs: 3_600_000,
  fileBytes: 16 * MB,
  payloadBytes: MB / 16,
  backlogBytes: 256 * MB,
  retry: { baseMs: 1_000, maxMs: 60_000, jitter: 0.2 },
};

/** Where files of history go. */
export interface HistoryTarget {
  /**
   * Writes the whole file. Resolves when it is durable. A file of this name may be there already, with the same lines: it is
   * replaced. Rejects if the file may be missing; the caller tries again.
   */
  put(name: string, content: Uint8Array, signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

/** Lines of an endpoint that wait for a file. */
export interface WaitingLines {
  records: number;
  bytes: number;
  /** When the oldest was added, or earlier, Unix ms. */
  since: number;
}

/** When the lines become a file, Unix ms. */
export function findFileDueAt(
  { bytes, since }: WaitingLines,
  { everyMs, fileBytes }: Pick<HistorySettings, 'everyMs' | 'fileBytes'>,
): number {
  return bytes >= fileBytes ? since : since + everyMs;
}

/** Folders as DuckDB, Spark and others read them as columns. The ID of the first line makes the name unique. */
export function nameFile(endpointId: string, firstAt: number, firstId: string): string {
  const time = new Date(firstAt).toISOString();
  const compact = time.slice(0, 19).replaceAll(/[-:]/g, '');
  return `endpoint=${endpointId}/date=${time.slice(0, 10)}/${compact}Z-${firstId}.jsonl.gz`;
}
