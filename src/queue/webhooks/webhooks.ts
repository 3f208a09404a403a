// What deliveries.ts and webhook-sender.ts share: the settings, the sender's interface, what happens to a delivery after an
// attempt, and which receiver may get an attempt now.
import { backoffMs } from '../../base/backoff.ts';
import { DueHeap } from '../../base/due-heap.ts';
import type { ReceiverKey, StoredDelivery } from '../../store/store.ts';
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

interface Receiver extends ReceiverKey {
  /** When its next delivery is due; Infinity if none is known. */
  nextAt: number;
  underWay: number;
  /** Its last attempt succeeded. An unproven receiver gets one attempt at a time. */
  isProven: boolean;
}

export type ReceiverLimits = Pick<
  WebhookSettings,
  'maxConcurrent' | 'maxPerReceiver' | 'maxPerUser' | 'maxUnprovenPerUser'
>;

/** Running attempts. */
interface Load {
  all: number;
  /** To receivers that were unproven when the attempt began. */
  unproven: number;
}

/** A user with receivers that wait or attempts that run. */
interface User {
  load: Load;
  /** Receivers that wait for their time or for capacity of the user, without those at their own limit. */
  proven: DueHeap<Receiver>;
  unproven: DueHeap<Receiver>;
}

/** Unproven receivers of all users together get at most this share of the concurrent attempts. */
const UNPROVEN_SHARE = 0.5;

/**
 * Decides which receiver may get an attempt now: one that hangs must not hold up others. In memory; the deliveries are in
 * the store.
 */
export class Receivers {
  readonly #limits: ReceiverLimits;
  readonly #receivers = new Map<string, Receiver>();
  readonly #total: Load = { all: 0, unproven: 0 };
  readonly #users = new Map<string, User>();

  constructor(limits: ReceiverLimits) {
    this.#limits = limits;
  }

  /** Notes that the receiver has a delivery due at `at`. */
  note(key: ReceiverKey, at: number): void {
    const receiver = this.#find(key) ?? this.#add(key);
    receiver.nextAt = Math.min(receiver.nextAt, at);
    this.#place(receiver);
  }

  /** Call this before the due deliveries are read: the read covers all earlier notes. */
  beginRead(key: ReceiverKey): void {
    const receiver = this.#find(key);
    if (!receiver) return;
    receiver.nextAt = Number.POSITIVE_INFINITY;
    this.#place(receiver);
  }

  endRead(key: ReceiverKey): void {
    const receiver = this.#find(key);
    if (receiver) this.#forgetIdle(receiver);
  }

  /**
   * Receivers with due deliveries and free capacity: those of the least busy user first, then by due
   * time. Each user has at most as many receivers in it as it may have attempts: the others come with a later call, so a
   * user with thousands of receivers costs no more than one with a few.
   */
  listReady(now: number): ReceiverKey[] {
    return [...this.#users.values()]
      .flatMap((user) => {
        const free = this.#freeOf(user);
        const proven = user.proven.list(now, free.proven);
        return [...proven, ...user.unproven.list(now, free.unproven)].map((receiver) => ({
          receiver,
          load: user.load.all,
        }));
      })
      .sort((a, b) => a.load - b.load || a.receiver.nextAt - b.receiver.nextAt)
      .map(({ receiver: { receiver, userId } }) => ({ userId, receiver }));
  }

  /**
   * When the first receiver with free capacity is due. Receivers without capacity are checked when an
   * attempt ends.
   */
  nextAt(): number {
    let next = Number.POSITIVE_INFINITY;
    for (const user of this.#users.values()) {
      const free = this.#freeOf(user);
      if (free.proven > 0) next = Math.min(next, user.proven.firstAt);
      if (free.unproven > 0) next = Math.min(next, user.unproven.firstAt);
    }
    return next;
  }

  /** How many more attempts the receiver may get now. */
  capacityFor(key: ReceiverKey): number {
    const receiver = this.#find(key) ?? fresh(key);
    const free = this.#freeOf(this.#users.get(key.userId));
    const own = this.#ownLimit(receiver) - receiver.underWay;
    return Math.min(own, receiver.isProven ? free.proven : free.unproven);
  }

  underWay(key: ReceiverKey): number {
    return this.#find(key)?.underWay ?? 0;
  }

  /** An attempt begins; call the returned function at its end, with undefined if it was aborted. */
  begin(key: ReceiverKey): (isSuccess: boolean | undefined) => void {
    const receiver = this.#find(key) ?? this.#add(key);
    const { load } = this.#userOf(receiver);
    const unproven = receiver.isProven ? 0 : 1;
    const count = (by: 1 | -1) => {
      receiver.underWay += by;
      for (const each of [this.#total, load]) {
        each.all += by;
        each.unproven += by * unproven;
      }
    };
    count(1);
    this.#place(receiver);
    return (isSuccess) => {
      if (isSuccess !== undefined) receiver.isProven = isSuccess;
      count(-1);
      this.#place(receiver);
      this.#forgetIdle(receiver);
    };
  }

  #find({ receiver, userId }: ReceiverKey): Receiver | undefined {
    return this.#receivers.get(nameOf(userId, receiver));
  }

  #add(key: ReceiverKey): Receiver {
    const receiver = fresh(key);
    this.#receivers.set(nameOf(key.userId, key.receiver), receiver);
    return receiver;
  }

  #userOf({ userId }: Receiver): User {
    const known = this.#users.get(userId);
    if (known) return known;
    const load = { all: 0, unproven: 0 };
    const user = { load, proven: new DueHeap<Receiver>(), unproven: new DueHeap<Receiver>() };
    this.#users.set(userId, user);
    return user;
  }

  /** Call this after each change of a receiver: puts it where `listReady` finds it. */
  #place(receiver: Receiver): void {
    const user = this.#userOf(receiver);
    const { isProven, nextAt, underWay, userId } = receiver;
    const [own, other] = isProven ? [user.proven, user.unproven] : [user.unproven, user.proven];
    other.delete(receiver);
    const isWaiting = nextAt !== Number.POSITIVE_INFINITY && underWay < this.#ownLimit(receiver);
    if (isWaiting) own.set(receiver, nextAt);
    else own.delete(receiver);
    if (user.load.all === 0 && own.size === 0 && other.size === 0) this.#users.delete(userId);
  }

  #ownLimit({ isProven }: Receiver): number {
    return isProven ? this.#limits.maxPerReceiver : 1;
  }

  /** How many more attempts all proven, or all unproven, receivers of the user may get now. */
  #freeOf(user: User | undefined): { proven: number; unproven: number } {
    const { maxConcurrent, maxPerUser, maxUnprovenPerUser } = this.#limits;
    const { all, unproven } = user?.load ?? { all: 0, unproven: 0 };
    const proven = Math.max(0, Math.min(maxConcurrent - this.#total.all, maxPerUser - all));
    const share = Math.max(1, Math.floor(maxConcurrent * UNPROVEN_SHARE));
    const free = Math.min(proven, share - this.#total.unproven, maxUnprovenPerUser - unproven);
    return { proven, unproven: Math.max(0, free) };
  }

  /** Forgets idle receivers, because callers may name any number of hosts. */
  #forgetIdle({ nextAt, receiver, underWay, userId }: Receiver): void {
    if (underWay > 0 || nextAt !== Number.POSITIVE_INFINITY) return;
    this.#receivers.delete(nameOf(userId, receiver));
  }
}

function fresh({ receiver, userId }: ReceiverKey): Receiver {
  return { userId, receiver, nextAt: Number.POSITIVE_INFINITY, underWay: 0, isProven: false };
}

/** A host contains no space, so the name is unambiguous. */
function nameOf(userId: string, receiver: string): string {
  return `${receiver} ${userId}`;
}
