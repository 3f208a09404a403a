// All numeric settings of the queue with their defaults; `completeSettings` builds the full set.
import type { RetryPolicy } from '../wire/job/retry-policy.ts';
import { DEFAULT_HISTORY_SETTINGS, type HistorySettings } from './history/history-files.ts';
import { DEFAULT_RETRY } from './lifecycle/retry.ts';
import { DEFAULT_WEBHOOK_SETTINGS, type WebhookSettings } from './webhooks/webhooks.ts';

export interface QueueSettings {
  /** A lease expires this long after it was given or renewed, ms. Default 15,000. */
  leaseMs: number;
  /** Longest wait of one renew, and so the interval of renewals, ms. Default 5,000. */
  renewEveryMs: number;
  /** Longest wait of one take, ms. Default 20,000. */
  takeWaitMs: number;
  /**
   * Time after the execution timeout until the queue itself ends an attempt, ms. Default 10,000.
   */
  timeoutGraceMs: number;
  /** Releases of a job that do not count as failures; each further one counts. Default 10. */
  maxReleases: number;
  /** Waits before automatic retries, unless a job, its handler or its endpoint says otherwise. Default: exponential from 1,000 ms. */
  retry: Pick<RetryPolicy, 'backoff' | 'delayMs' | 'delaysMs' | 'factor' | 'jitter' | 'maxDelayMs'>;
  /** How long an ended job is kept, ms. Default 30 min for run, 1 min for runsync. */
  retentionMs: { run: number; runsync: number };
  /** Dead letters of one user: their number, and the bytes of their inputs and logs. Default 10,000, 1 GB. */
  deadLetters: { maxJobs: number; maxBytes: number };
  /** Bytes of all chunks of one attempt. Default 1 GB. */
  maxChunkBytes: number;
  /** Largest returned output, and largest stream that is joined for the record, bytes. Default 20 MB. */
  maxOutputBytes: number;
  /** Bytes of log stored for a job. Default 1 MB. */
  maxLogBytes: number;
  /** Larger inputs and outputs are stored before their operation: in a file, or else in parts of this size, bytes. Default 256 KB. */
  payloadPartBytes: number;
  webhooks: WebhookSettings;
  history: HistorySettings;
}

const MB = 1_048_576;

const DEFAULT_SETTINGS: QueueSettings = {
  leaseMs: 15_000,
  renewEveryMs: 5_000,
  takeWaitMs: 20_000,
  timeoutGraceMs: 10_000,
  maxReleases: 10,
  retry: DEFAULT_RETRY,
  retentionMs: { run: 30 * 60_000, runsync: 60_000 },
  deadLetters: { maxJobs: 10_000, maxBytes: 1024 * MB },
  maxChunkBytes: 1024 * MB,
  maxOutputBytes: 20 * MB,
  maxLogBytes: MB,
  payloadPartBytes: MB / 4,
  webhooks: DEFAULT_WEBHOOK_SETTINGS,
  history: DEFAULT_HISTORY_SETTINGS,
};

export function completeSettings(settings: Partial<QueueSettings> = {}): QueueSettings {
  const history = { ...DEFAULT_SETTINGS.history, ...settings.history };
  return { ...DEFAULT_SETTINGS, ...settings, history };
}
