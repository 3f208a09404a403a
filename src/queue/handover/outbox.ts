// Messages of this shard to others, and to itself, as records: the commit that makes a message necessary writes it. Each
// has a number, by which its receiver takes it in once.
import type { Reader, Store, StoredResource, Transaction } from '../../store/store.ts';
import { QUEUE_FULL_RETRY_MS } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import { type AddressedMessage, findSender, type HandoverMessage, weigh } from './messages.ts';
import type { NumberedMessage, Peers } from './peers.ts';

/** `last`: the highest number of a message that was delivered. `seen`: that of the last one taken in, by sender. */
const KINDS = { message: 'handover', last: 'handover_last', seen: 'handover_seen' } as const;

/** Messages of one delivery. */
const MAX_MESSAGES = 128;
/** Jobs that the messages of one delivery may change: some milliseconds of work. */
const MAX_WEIGHT = 256;
/** Bytes of one delivery with its inputs, unless it has only one message. Inputs grow by a third on the way. */
const MAX_BYTES = 4 * 1_048_576;
/** With so many messages that wait, a user gets no new edges to other shards. */
const MAX_WAITING = 10_000;
const PAGE = 1_000;

/** A message that a commit has written. */
export interface Sent {
  shard: number;
  userId: string;
}

type StoredMessage = Pick<WaitingMessage, 'resource'>;

interface WaitingMessage extends NumberedMessage {
  resource: StoredResource;
}

export class Outbox {
  readonly #peers: Peers;
  /** Called after the commit with the receiver of a message. */
  onSent: (shard: number) => void = () => {};
  /** Number of the last message to any shard. */
  #last = 0;
  /** Messages that wait, by user. */
  readonly #waiting = new Map<string, number>();

  constructor(peers: Peers) {
    this.#peers = peers;
  }

  /** Continues an earlier run. @returns the receivers of messages that wait */
  async load(store: Store): Promise<Set<number>> {
    const receivers = new Set<number>();
    const last = await store.read((tx) => tx.resource({ kind: KINDS.last, id: KINDS.last }));
    this.#last = Number(last?.body ?? 0);
    let before: number | undefined;
    for (;;) {
      const page = await store.read((tx) => list(tx, { before, limit: PAGE }));
      for (const resource of page) {
        receivers.add(Number(resource.parent));
        this.#last = Math.max(this.#last, -resource.position);
        this.#count(resource.userId, 1);
      }
      if (page.length < PAGE) return receivers;
      before = page.at(-1)?.position;
    }
  }

  /** Part of an operation. */
  write(tx: Transaction, messages: readonly AddressedMessage[]): Sent[] {
    return messages.map(({ message, shard }) => {
      // Again with each run of the operation: numbers grow in the order of the commits.
      const number = ++this.#last;
      const userId = tx.endpoint(findSender(message))?.userId ?? '';
      tx.putResource({
        kind: KINDS.message,
        id: String(number),
        userId,
        parent: String(shard),
        // Lists begin with the highest position: the oldest message is the first.
        position: -number,
        body: JSON.stringify(message),
      });
      return { shard, userId };
    });
  }

  /** The commit that has written the messages is on disk. */
  sent(messages: readonly Sent[]): void {
    for (const { userId } of messages) this.#count(userId, 1);
    for (const shard of new Set(messages.map(({ shard }) => shard))) this.onSent(shard);
  }

  /** The next messages to the shard, in their order. */
  next(tx: Reader, shard: number): WaitingMessage[] {
    const next: WaitingMessage[] = [];
    let weight = 0;
    let bytes = 0;
    for (const resource of list(tx, { parent: String(shard), limit: MAX_MESSAGES })) {
      const message: HandoverMessage = JSON.parse(resource.body);
      weight += weigh(message);
      bytes += Buffer.byteLength(resource.body);
      if ('inputBytes' in message) bytes += message.inputBytes;
      if (next.length > 0 && (weight > MAX_WEIGHT || bytes > MAX_BYTES)) break;
      next.push({ number: -resource.position, message, resource });
    }
    return next;
  }

  /** Part of an operation: the receiver has taken them in. */
  remove(tx: Transaction, shard: number, messages: readonly StoredMessage[]): void {
    for (const { resource } of messages) tx.removeResource(resource);
    if (shard === this.#peers.shard) return;
    const { last } = KINDS;
    const body = String(this.#last);
    tx.putResource({ kind: last, id: last, userId: '', parent: '', position: 0, body });
  }

  removed(messages: readonly StoredMessage[]): void {
    for (const { resource } of messages) this.#count(resource.userId, -1);
  }

  /** @throws ProblemError `queue_full` if the user has too many messages that wait */
  refuseFull(userId: string): void {
    if ((this.#waiting.get(userId) ?? 0) < MAX_WAITING) return;
    const detail = `${MAX_WAITING} messages about jobs of the user wait for other shards of the platform, the most that may; retry later`;
    throw new ProblemError('queue_full', detail, { retryAfterMs: QUEUE_FULL_RETRY_MS });
  }

  #count(userId: string, added: number): void {
    const count = (this.#waiting.get(userId) ?? 0) + added;
    if (count > 0) this.#waiting.set(userId, count);
    else this.#waiting.delete(userId);
  }
}

function list(
  tx: Reader,
  listing: { parent?: string; before?: number | undefined; limit: number },
): StoredResource[] {
  return tx.resources({ kind: KINDS.message, ...listing });
}

/** Number of the last message of the other shard that this one has taken in. */
export function readSeen(tx: Reader, from: number): number {
  return Number(tx.resource({ kind: KINDS.seen, id: String(from) })?.body ?? 0);
}

export function putSeen(tx: Transaction, from: number, number: number): void {
  const body = String(number);
  tx.putResource({ kind: KINDS.seen, id: String(from), userId: '', parent: '', position: 0, body });
}
