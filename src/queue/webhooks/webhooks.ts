// Decides what happens to a delivery after an attempt, and declares the sender's interface. deliveries.ts
// decides when to send; webhook-sender.ts sends.
import { backoffMs } from '../../base/backoff.ts';
import type { StoredDelivery } from '../../store/store.ts';
import type { TraceContext } from '../../wire/trace-context.ts';

export interface WebhookSettings {
  /** Most attempts of one delivery. Default 12: the last is about two and a half hours after the first. */
  maxAttempts: number;
  /** Waits between attempts: first, longest (ms) and share of jitter. 5,000, 3,600,000, 0.2. */
  retry: { baseMs: number; maxMs: number; jitter: number };
  /**
   * Longest age of a delivery, ms; the platform then gives up, even after few attempts: a receiver that
   * is down gets one attempt at a time. Only run time of the platform counts, so neither a stop nor a
   * wall clock set forward costs attempts. Default 24 h.
   */
  maxAgeMs: number;
  /**
   * Most attempts at a time, each with about 1 MB of its record in memory: of all users (default 64), to
   * one receiver of one user (4), and of one user (32).
   */
  maxConcurrent: number;
  maxPerReceiver: number;
  maxPerUser: number;
  /**
   * Most attempts of one user at a time to unproven receivers: those whose last attempt failed, and new
   * ones. Each unproven receiver gets one attempt at a time. Default 8.
   */
  maxUnprovenPerUser: number;
  /** How long running attempts may continue while the platform stops, ms. Default 2,000. */
  closeMs: number;
}

export const DEFAULT_WEBHOOK_SETTINGS: WebhookSettings = {
  maxAttempts: 12,
  retry: { baseMs: 5_000, maxMs: 3_600_000, jitter: 0.2 },
  maxAgeMs: 24 * 3_600_000,
  maxConcurrent: 64,
  maxPerReceiver: 4,
  maxPerUser: 32,
  maxUnprovenPerUser: 8,
  closeMs: 2_000,
};

/** Result of an attempt: a label value of the metrics. */
export type SendResult =
  | '2xx'
  | '3xx'
  | '4xx'
  | '5xx'
  /** No complete response in time. */
  | 'timeout'
  /** The platform may not call the address. */
  | 'refused'
  /** No connection, a broken connection, an unknown host or an untrusted certificate. */
  | 'unreachable';

export interface SendAttempt {
  result: SendResult;
  /** Text for the log, without the path and query of the URL, which may contain secrets. */
  detail: string;
  /** The receiver answered 410: the platform must not retry. */
  isFinal?: boolean;
  /** Wait that the response's Retry-After asked for. */
  retryAfterMs?: number | undefined;
}

/** Reads the record's JSON in parts; each call starts again. Rejects if the record is gone. */
export type WebhookRecord = () => AsyncIterable<Uint8Array>;

/** A delivery, and the trace that its receiver may continue. */
export interface OutgoingDelivery extends StoredDelivery {
  trace?: TraceContext | undefined;
}

/** Sends webhooks. */
export interface WebhookSender {
  /** Why the platform may not call the URL; undefined if it may, or if only a DNS lookup can tell. */
  judge(url: string): string | undefined;
  /** Never rejects for a failed attempt. Resolves with undefined if the signal aborted the attempt. */
  send(
    delivery: OutgoingDelivery,
    record: WebhookRecord,
    signal: AbortSignal,
  ): Promise<SendAttempt | undefined>;
  close(): Promise<void>;
}

export type AfterAttempt =
  | { kind: 'delivered' }
  | { kind: 'postponed'; delivery: StoredDelivery }
  | { kind: 'given_up'; reason: string };

interface AttemptMoment {
  now: number;
  /** Run time of the platform over all its starts, ms. */
  ranMs: number;
  /** Uniform in [0, 1). */
  random: () => number;
  settings: WebhookSettings;
}

/** A 2xx is success. Every other result is retried, except 410. */
export function decideAfterAttempt(
  delivery: StoredDelivery,
  { detail, isFinal = false, result, retryAfterMs = 0 }: SendAttempt,
  { now, random, ranMs, settings }: AttemptMoment,
): AfterAttempt {
  if (result === '2xx') return { kind: 'delivered' };
  const attempts = delivery.attempts + 1;
  if (isFinal || attempts >= settings.maxAttempts) return { kind: 'given_up', reason: detail };
  const { maxMs } = settings.retry;
  const waitMs = Math.max(
    Math.min(retryAfterMs, maxMs),
    backoffMs(attempts, { ...settings.retry, random }),
  );
  const postponed = { ...delivery, attempts, nextAt: now + waitMs };
  if (isTooOld(postponed, ranMs + waitMs, settings)) return { kind: 'given_up', reason: detail };
  return { kind: 'postponed', delivery: postponed };
}

/** Whether the delivery is too old to send. `ranMs` as in AttemptMoment. */
export function isTooOld(
  { platformRanMs }: StoredDelivery,
  ranMs: number,
  { maxAgeMs }: Pick<WebhookSettings, 'maxAgeMs'>,
): boolean {
  return ranMs - platformRanMs > maxAgeMs;
}

/** Names the receiver of a URL: its host. Deliveries to one receiver share limits. */
export function nameReceiver(url: string): string {
  return new URL(url).host;
}
