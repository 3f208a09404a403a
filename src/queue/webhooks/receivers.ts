// Decides which receiver may get a delivery attempt now: a receiver that hangs must not block other
// receivers. Keeps its state in memory; the deliveries are in the store.
import type { ReceiverKey } from '../../store/store.ts';
import type { WebhookSettings } from './webhooks.ts';

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

/** Unproven receivers of all users together get at most this share of the concurrent attempts. */
const UNPROVEN_SHARE = 0.5;

export class Receivers {
  readonly #limits: ReceiverLimits;
  readonly #receivers = new Map<string, Receiver>();
  readonly #total: Load = { all: 0, unproven: 0 };
  readonly #users = new Map<string, Load>();

  constructor(limits: ReceiverLimits) {
    this.#limits = limits;
  }

  /** Notes that the receiver has a delivery due at `at`. */
  note(key: ReceiverKey, at: number): void {
    const receiver = this.#find(key) ?? this.#add(key);
    receiver.nextAt = Math.min(receiver.nextAt, at);
  }

  /** Call this before the due deliveries are read: the read covers all earlier notes. */
  beginRead(key: ReceiverKey): void {
    const receiver = this.#find(key);
    if (receiver) receiver.nextAt = Number.POSITIVE_INFINITY;
  }

  endRead(key: ReceiverKey): void {
    const receiver = this.#find(key);
    if (receiver) this.#forgetIdle(receiver);
  }

  /**
   * Receivers with due deliveries and free capacity: those of the least busy user first, then by
   * due time.
   */
  listReady(now: number): ReceiverKey[] {
    return [...this.#receivers.values()]
      .filter((receiver) => receiver.nextAt <= now && this.#capacityOf(receiver) > 0)
      .map((receiver) => ({ receiver, load: this.#users.get(receiver.userId)?.all ?? 0 }))
      .sort((a, b) => a.load - b.load || a.receiver.nextAt - b.receiver.nextAt)
      .map(({ receiver: { receiver, userId } }) => ({ userId, receiver }));
  }

  /**
   * When the first receiver with free capacity is due. Receivers without capacity are checked when an
   * attempt ends.
   */
  nextAt(): number {
    let next = Number.POSITIVE_INFINITY;
    for (const receiver of this.#receivers.values()) {
      if (receiver.nextAt < next && this.#capacityOf(receiver) > 0) next = receiver.nextAt;
    }
    return next;
  }

  /** How many more attempts the receiver may get now. */
  capacityFor(key: ReceiverKey): number {
    return this.#capacityOf(this.#find(key) ?? fresh(key));
  }

  underWay(key: ReceiverKey): number {
    return this.#find(key)?.underWay ?? 0;
  }

  /** An attempt begins; call the returned function at its end, with undefined if it was aborted. */
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

  #capacityOf({ isProven, underWay, userId }: Receiver): number {
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
