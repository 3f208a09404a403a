// Who gets a try now: each receiver with its next time and its tries under way, so that one that is
// slow or dead holds up nobody else. In memory; what has to be delivered is in the store.
import type { WebhookSettings } from './webhooks.ts';

interface Receiver {
  name: string;
  /** Infinity: nothing to do that is known of. */
  nextAt: number;
  underWay: number;
  /** Its last try failed: it gets one at a time until one succeeds. */
  isFailing: boolean;
}

/** Those that fail get no more than this share of all tries under way, and of their bytes. */
const FAILING_SHARE = 0.5;

export type ReceiverLimits = Pick<WebhookSettings, 'maxBytes' | 'maxConcurrent' | 'maxPerReceiver'>;

/** Tries under way. */
interface Load {
  tries: number;
  /** Of their records. */
  bytes: number;
}

export class Receivers {
  readonly #limits: ReceiverLimits;
  readonly #receivers = new Map<string, Receiver>();
  readonly #all: Load = { tries: 0, bytes: 0 };
  /** Those of receivers that failed before. */
  readonly #failing: Load = { tries: 0, bytes: 0 };

  constructor(limits: ReceiverLimits) {
    this.#limits = limits;
  }

  /** There is something for it then, if not before. */
  note(name: string, at: number): void {
    const receiver = this.#receivers.get(name);
    if (receiver) receiver.nextAt = Math.min(receiver.nextAt, at);
    else this.#receivers.set(name, { name, nextAt: at, underWay: 0, isFailing: false });
  }

  /** What is due is about to be looked up: only what is noted from now on counts. */
  beginLook(name: string): void {
    const receiver = this.#receivers.get(name);
    if (receiver) receiver.nextAt = Number.POSITIVE_INFINITY;
  }

  endLook(name: string): void {
    const receiver = this.#receivers.get(name);
    if (receiver) this.#forgetIdle(receiver);
  }

  /** Those with something to do and room to do it, the longest due first. */
  listReady(now: number): string[] {
    const ready = [...this.#receivers.values()].filter(
      (receiver) => receiver.nextAt <= now && this.#roomOf(receiver) > 0,
    );
    return ready.sort((a, b) => a.nextAt - b.nextAt).map(({ name }) => name);
  }

  /** When the first one that has room is due; one that has none is looked at when a try ends. */
  nextAt(): number {
    let next = Number.POSITIVE_INFINITY;
    for (const receiver of this.#receivers.values()) {
      if (receiver.nextAt < next && this.#roomOf(receiver) > 0) next = receiver.nextAt;
    }
    return next;
  }

  /** How many more tries it may have at once. */
  roomFor(name: string): number {
    const receiver = this.#receivers.get(name);
    return receiver ? this.#roomOf(receiver) : this.#limits.maxPerReceiver;
  }

  /** Whether a record of so many bytes may be on its way as well; of any size, if it is the only one. */
  hasRoomOf(name: string, bytes: number): boolean {
    const { maxBytes } = this.#limits;
    if (!fits(this.#all, bytes, maxBytes)) return false;
    if (!this.#receivers.get(name)?.isFailing) return true;
    return fits(this.#failing, bytes, maxBytes * FAILING_SHARE);
  }

  underWay(name: string): number {
    return this.#receivers.get(name)?.underWay ?? 0;
  }

  /** A try begins; the returned function says how it ended, undefined if it was broken off. */
  begin(name: string, bytes = 0): (isSuccess: boolean | undefined) => void {
    const receiver = this.#receivers.get(name) ?? {
      name,
      nextAt: Number.POSITIVE_INFINITY,
      underWay: 0,
      isFailing: false,
    };
    this.#receivers.set(name, receiver);
    const loads = receiver.isFailing ? [this.#all, this.#failing] : [this.#all];
    const count = (by: 1 | -1) => {
      receiver.underWay += by;
      for (const load of loads) {
        load.tries += by;
        load.bytes += by * bytes;
      }
    };
    count(1);
    return (isSuccess) => {
      if (isSuccess !== undefined) receiver.isFailing = !isSuccess;
      count(-1);
      this.#forgetIdle(receiver);
    };
  }

  #roomOf({ isFailing, underWay }: Receiver): number {
    const { maxConcurrent, maxPerReceiver } = this.#limits;
    const inAll = maxConcurrent - this.#all.tries;
    if (!isFailing) return Math.min(inAll, maxPerReceiver - underWay);
    const forFailing = Math.max(1, Math.floor(maxConcurrent * FAILING_SHARE));
    return Math.min(inAll, 1 - underWay, forFailing - this.#failing.tries);
  }

  /** Callers name as many hosts as they like. */
  #forgetIdle(receiver: Receiver): void {
    if (receiver.underWay > 0 || receiver.nextAt !== Number.POSITIVE_INFINITY) return;
    this.#receivers.delete(receiver.name);
  }
}

function fits(load: Load, bytes: number, maxBytes: number): boolean {
  return load.bytes === 0 || load.bytes + bytes <= maxBytes;
}
