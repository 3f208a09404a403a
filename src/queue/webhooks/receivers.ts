// Decides which receiver may get a delivery attempt now: a receiver that hangs must not block other
// receivers. Keeps its state in memory; the deliveries are in the store.
import { DueHeap } from '../../base/due-heap.ts';
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

/** A user with receivers that wait or attempts that run. */
interface User {
  load: Load;
  /** Receivers that wait for their time or for capacity of the user, without those at their own limit. */
  proven: DueHeap<Receiver>;
  unproven: DueHeap<Receiver>;
}

/** Unproven receivers of all users together get at most this share of the concurrent attempts. */
const UNPROVEN_SHARE = 0.5;

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
   * time. Of one user no more than it may have attempts: the others come with a later call, so that a
   * user with any number of receivers costs no more than one with a few.
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
