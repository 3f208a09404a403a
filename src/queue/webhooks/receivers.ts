// Decides which receiver may get an attempt now: one that hangs holds up neither others of its user nor
// other users. In memory; the deliveries themselves are in the store.
import type { ReceiverKey } from '../../store/store.ts';
import type { WebhookSettings } from './webhooks.ts';

interface Receiver extends ReceiverKey {
  /** Infinity: nothing to do that is known of. */
  nextAt: number;
  underWay: number;
  /** Its last attempt succeeded. Until then it gets one attempt at a time. */
  isProven: boolean;
}

export type ReceiverLimits = Pick<
  WebhookSettings,
  'maxConcurrent' | 'maxPerReceiver' | 'maxPerUser' | 'maxUnprovenPerUser'
>;

/** Attempts under way. */
interface Load {
  all: number;
  /** With receivers that were not proven when the attempt began. */
  unproven: number;
}

/** Unproven receivers of all users get no more than this share of all attempts. */
const UNPROVEN_SHARE = 0.5;

export class Receivers {
  readonly #limits: ReceiverLimits;
  readonly #receivers = new Map<string, Receiver>();
  readonly #total: Load = { all: 0, unproven: 0 };
  readonly #users = new Map<string, Load>();

  constructor(limits: ReceiverLimits) {
    this.#limits = limits;
  }

  /** The receiver has something due at `at`, if not before. */
  note(key: ReceiverKey, at: number): void {
    const receiver = this.#find(key) ?? this.#add(key);
    receiver.nextAt = Math.min(receiver.nextAt, at);
  }

  /** The due deliveries are about to be read: only what is noted from now on counts. */
  beginLook(key: ReceiverKey): void {
    const receiver = this.#find(key);
    if (receiver) receiver.nextAt = Number.POSITIVE_INFINITY;
  }

  endLook(key: ReceiverKey): void {
    const receiver = this.#find(key);
    if (receiver) this.#forgetIdle(receiver);
  }

  /** Receivers with something to do and room to do it: of the least busy user first, then the longest due. */
  listReady(now: number): ReceiverKey[] {
    return [...this.#receivers.values()]
      .filter((receiver) => receiver.nextAt <= now && this.#roomOf(receiver) > 0)
      .map((receiver) => ({ receiver, load: this.#users.get(receiver.userId)?.all ?? 0 }))
      .sort((a, b) => a.load - b.load || a.receiver.nextAt - b.receiver.nextAt)
      .map(({ receiver: { receiver, userId } }) => ({ userId, receiver }));
  }

  /** When the first receiver with room is due; one without room is looked at when an attempt ends. */
  nextAt(): number {
    let next = Number.POSITIVE_INFINITY;
    for (const receiver of this.#receivers.values()) {
      if (receiver.nextAt < next && this.#roomOf(receiver) > 0) next = receiver.nextAt;
    }
    return next;
  }

  /** How many more attempts the receiver may have at once. */
  roomFor(key: ReceiverKey): number {
    return this.#roomOf(this.#find(key) ?? fresh(key));
  }

  underWay(key: ReceiverKey): number {
    return this.#find(key)?.underWay ?? 0;
  }

  /** An attempt begins; the returned function takes its end: undefined if it was broken off. */
  begin(key: ReceiverKey): (isSuccess: boolean | undefined) => void {
    const receiver = this.#find(key) ?? this.#add(key);
    const user = this.#users.get(key.userId) ?? { all: 0, unproven: 0 };
    this.#users.set(key.userId, user);
    const unproven = receiver.isProven ? 0 : 1;
    const count = (by: 1 | -1) => {
      receiver.underWay += by;
      for (const load of [this.#total, user]) {
        load.all += by;
        load.unproven += by * unproven;
      }
    };
    count(1);
    return (isSuccess) => {
      if (isSuccess !== undefined) receiver.isProven = isSuccess;
      count(-1);
      if (user.all === 0) this.#users.delete(key.userId);
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

  #roomOf({ isProven, underWay, userId }: Receiver): number {
    const { maxConcurrent, maxPerReceiver, maxPerUser, maxUnprovenPerUser } = this.#limits;
    const user = this.#users.get(userId) ?? { all: 0, unproven: 0 };
    const inAll = Math.min(maxConcurrent - this.#total.all, maxPerUser - user.all);
    if (isProven) return Math.min(inAll, maxPerReceiver - underWay);
    const unproven = Math.max(1, Math.floor(maxConcurrent * UNPROVEN_SHARE));
    return Math.min(
      inAll,
      1 - underWay,
      unproven - this.#total.unproven,
      maxUnprovenPerUser - user.unproven,
    );
  }

  /** Callers name as many hosts as they like. */
  #forgetIdle({ nextAt, receiver, underWay, userId }: Receiver): void {
    if (underWay > 0 || nextAt !== Number.POSITIVE_INFINITY) return;
    this.#receivers.delete(nameOf(userId, receiver));
  }
}

function fresh({ receiver, userId }: ReceiverKey): Receiver {
  return { userId, receiver, nextAt: Number.POSITIVE_INFINITY, underWay: 0, isProven: false };
}

/** A host has no space. */
function nameOf(userId: string, receiver: string): string {
  return `${receiver} ${userId}`;
}
