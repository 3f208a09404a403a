// What becomes of a delivery after a try: pure decisions, and the seam to what makes the tries. When
// they are made is deliveries.ts's, how, webhook-sender.ts's.
import { backoffMs } from '../../base/backoff.ts';
import type { StoredDelivery } from '../../store/store.ts';

export interface WebhookSettings {
  /** Tries of one delivery. Default 12: the last one is about two and a half hours after the first. */
  maxTries: number;
  /** Waits between tries: first, longest (ms) and share of jitter. 5,000, 3,600,000, 0.2. */
  retry: { baseMs: number; maxMs: number; jitter: number };
  /**
   * A delivery that is older is given up, however few attempts were made: a receiver that is down for
   * long gets them one at a time. Only time in which the platform runs counts: neither a stop nor a
   * wall clock that is set forward takes attempts away. Default 24 h.
   */
  maxAgeMs: number;
  /**
   * Attempts under way at a time, each with about 1 MB of its record in memory: in all (default 64),
   * with one receiver of one user (4), and of one user (32).
   */
  maxConcurrent: number;
  maxPerReceiver: number;
  maxPerUser: number;
  /**
   * Attempts of one user under way with receivers whose last attempt did not succeed, or that had
   * none yet. Each of them gets one at a time. Default 8.
   */
  maxUnprovenPerUser: number;
  /** How long tries that are under way may go on when the platform ends, ms. Default 2,000. */
  closeMs: number;
}

export const DEFAULT_WEBHOOK_SETTINGS: WebhookSettings = {
  maxTries: 12,
  retry: { baseMs: 5_000, maxMs: 3_600_000, jitter: 0.2 },
  maxAgeMs: 24 * 3_600_000,
  maxConcurrent: 64,
  maxPerReceiver: 4,
  maxPerUser: 32,
  maxUnprovenPerUser: 8,
  closeMs: 2_000,
};

/** How a try ended, as the metrics count it. */
export type TryResult =
  | '2xx'
  | '3xx'
  | '4xx'
  | '5xx'
  /** No whole answer in time. */
  | 'timeout'
  /** The address is not one that may be called. */
  | 'refused'
  /** No connection, or one that broke; no such name; no trust in the certificate. */
  | 'unreachable';

export interface Try {
  result: TryResult;
  /** In words, for the log. Names no path and no query: those of webhooks may be secrets. */
  detail: string;
  /** The receiver wants nothing of the kind, ever: 410. */
  isFinal?: boolean;
  /** What its Retry-After asked for. */
  retryAfterMs?: number | undefined;
}

/** The record's JSON, read part by part, each time from the start. Rejects if it is no longer there. */
export type WebhookRecord = () => AsyncIterable<Uint8Array>;

/** What makes the tries. */
export interface WebhookSender {
  /** Why the URL cannot lead to a permitted address, if that can be told without asking for one. */
  judge(url: string): string | undefined;
  /** Resolves however it ends; with undefined when the signal ended it. */
  send(
    delivery: StoredDelivery,
    record: WebhookRecord,
    signal: AbortSignal,
  ): Promise<Try | undefined>;
  close(): Promise<void>;
}

export type AfterTry =
  | { kind: 'delivered' }
  | { kind: 'postponed'; delivery: StoredDelivery }
  | { kind: 'given_up'; reason: string };

interface TryMoment {
  now: number;
  /** How long the platform has run, over all its starts, ms. */
  ranMs: number;
  /** Uniform in [0, 1). */
  random: () => number;
  settings: WebhookSettings;
}

/** Any 2xx is success; everything else is tried again, because it may pass, but for a 410. */
export function decideAfterTry(
  delivery: StoredDelivery,
  { detail, isFinal = false, result, retryAfterMs = 0 }: Try,
  { now, random, ranMs, settings }: TryMoment,
): AfterTry {
  if (result === '2xx') return { kind: 'delivered' };
  const tries = delivery.tries + 1;
  if (isFinal || tries >= settings.maxTries) return { kind: 'given_up', reason: detail };
  const { maxMs } = settings.retry;
  const waitMs = Math.max(
    Math.min(retryAfterMs, maxMs),
    backoffMs(tries, { ...settings.retry, random }),
  );
  const postponed = { ...delivery, tries, nextAt: now + waitMs };
  if (isTooOld(postponed, ranMs + waitMs, settings)) return { kind: 'given_up', reason: detail };
  return { kind: 'postponed', delivery: postponed };
}

/** Nothing is sent any more that is so old. `ranMs` as in TryMoment. */
export function isTooOld(
  { platformRanMs }: StoredDelivery,
  ranMs: number,
  { maxAgeMs }: Pick<WebhookSettings, 'maxAgeMs'>,
): boolean {
  return ranMs - platformRanMs > maxAgeMs;
}

/** Who is meant by a URL, as far as being slow or dead goes. */
export function nameReceiver(url: string): string {
  return new URL(url).host;
}
