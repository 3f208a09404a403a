// One topic for all connections with the same rights: while somebody listens, reads its data when they may have changed,
// and offers each change.
import { type Clock, sleep } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Waiter } from '../../base/waiters.ts';
import { type ProblemCode, ProblemError } from '../../wire/problem.ts';
import { EVENT_LIMITS, type Topic } from '../../wire/routes/event-topics.ts';
import { toProblem } from '../http/problem-reply.ts';
import type { UserReads } from './user-reads.ts';

/** A job that changes all the time is read this often at most, ms. */
const WATCHED_EVERY_MS = 250;

/**
 * Problems that end by themselves. `unauthorized`: another node already knows that the key of the caller who reads for all
 * has been revoked; that caller leaves, and the next one reads.
 */
const PASSING: ReadonlySet<ProblemCode> = new Set(['rate_limited', 'unauthorized']);

/** The last event of a topic; connections share its bytes, whatever name each has given the topic. */
export interface Snapshot {
  event: 'snapshot' | 'problem';
  /** The event's JSON behind the name of the topic, and its end. */
  bytes: Buffer;
  /** No further one follows. */
  isFinal: boolean;
}

export type Listener = (snapshot: Snapshot) => void;

export interface ChannelOptions {
  topic: Topic;
  clock: Clock;
  log: Log;
  /** Differs after each change of the data; undefined: only a read shows changes. @throws ProblemError */
  number: () => Promise<unknown>;
  /** Reads the data for one of the listeners. @throws ProblemError */
  read: () => Promise<object>;
  /** Is woken when the data may have changed; undefined: only time tells. */
  watch: () => Waiter | undefined;
  /** Shared by all topics of the listeners' user. */
  reads: UserReads;
  /** Aborts when the platform stops. */
  closing: AbortSignal;
}

export class Channel {
  readonly #options: ChannelOptions;
  readonly #listeners = new Set<Listener>();
  /** Those that have joined since the last snapshot, and not got it. */
  readonly #joining = new Set<Listener>();
  /** Aborts when the last listener has left. */
  readonly #left = new AbortController();
  readonly #ended: AbortSignal;
  #running: Promise<void> | undefined;
  #greeting: Promise<void> | undefined;
  #last: Snapshot | undefined;
  /** Change number of the last snapshot, if its topic has one. */
  #number: unknown;
  /** The data of the last snapshot, without members that change with each read. */
  #lasting: string | undefined;
  #heldBytes = 0;

  constructor(options: ChannelOptions) {
    this.#options = options;
    this.#ended = AbortSignal.any([this.#left.signal, options.closing]);
  }

  get isEmpty(): boolean {
    return this.#listeners.size === 0;
  }

  /** It has stopped reading: its last snapshot is a final problem. */
  get isOver(): boolean {
    return this.#last?.isFinal === true;
  }

  /** Offers the last snapshot, which is as old as one read at most, when the user's turn comes, and each later one. */
  add(listener: Listener): void {
    this.#listeners.add(listener);
    if (this.#last) {
      this.#joining.add(listener);
      this.#greeting ??= this.#greet();
    }
    this.#running ??= this.#run();
  }

  remove(listener: Listener): void {
    this.#listeners.delete(listener);
    this.#joining.delete(listener);
    if (this.isEmpty) this.#left.abort();
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    const { clock, reads, topic } = this.#options;
    const ended = this.#ended;
    while (!ended.aborted && !this.isOver) {
      const waiter = this.#watch();
      try {
        await this.#refresh(ended);
        if (!waiter) await sleep(clock, topic.rule.everyMs, ended);
        else if (await waiter.wait(topic.rule.everyMs, ended)) {
          // The change itself is read at once; only the next one waits.
          await this.#refresh(ended);
          await sleep(clock, WATCHED_EVERY_MS, ended);
        }
      } finally {
        waiter?.close();
      }
    }
    reads.keep(-this.#heldBytes);
  }

  /** Reads and offers the data, unless their change number is the same. */
  async #refresh(ended: AbortSignal): Promise<void> {
    const { number, read, reads } = this.#options;
    await reads.admit(ended);
    if (ended.aborted || this.isOver) return;
    try {
      // The number is read first, so the next refresh notices a change between both reads.
      let current: unknown;
      await reads.measure(number, (found) => {
        current = found;
      });
      if (current !== undefined && current === this.#number) return;
      let snapshot: Snapshot | undefined;
      await reads.measure(read, (data) => {
        snapshot = this.#compose(data);
      });
      if (snapshot) await this.#offer(snapshot);
      this.#number = current;
    } catch (error) {
      this.#number = undefined;
      this.#lasting = undefined;
      await this.#offer(this.#describeFailure(error));
    }
  }

  /** The endpoint may have gone, or moved to another node: then the read says so. */
  #watch(): Waiter | undefined {
    try {
      return this.#options.watch();
    } catch {
      return undefined;
    }
  }

  /** Undefined if the data are the same. @throws ProblemError */
  #compose(data: object): Snapshot | undefined {
    const { reads, topic } = this.#options;
    const { volatile } = topic.rule;
    const lasting = volatile && describeLasting(data, volatile);
    if (lasting !== undefined && lasting === this.#lasting) return undefined;
    const bytes = Buffer.from(`"data":${JSON.stringify(data)}}\n\n`);
    if (bytes.length > EVENT_LIMITS.snapshotBytes) throw tooLarge(bytes.length);
    reads.keep(bytes.length - this.#heldBytes);
    this.#heldBytes = bytes.length;
    this.#lasting = lasting;
    return { event: 'snapshot', bytes, isFinal: false };
  }

  /** Many listeners may join at once, and what they get is large. Never rejects. */
  async #greet(): Promise<void> {
    const { reads } = this.#options;
    while (this.#joining.size > 0) {
      await reads.admit(this.#ended);
      await reads.callAll(
        [...this.#joining].map((listener) => () => {
          if (this.#last && this.#joining.delete(listener)) listener(this.#last);
        }),
      );
    }
    this.#greeting = undefined;
  }

  /** A listener that joins meanwhile is greeted with the snapshot; one that leaves gets none. */
  async #offer(snapshot: Snapshot): Promise<void> {
    if (this.#last?.bytes.equals(snapshot.bytes)) return;
    this.#last = snapshot;
    await this.#options.reads.callAll(
      [...this.#listeners].map((listener) => () => {
        this.#joining.delete(listener);
        if (this.#listeners.has(listener)) listener(snapshot);
      }),
    );
  }

  #describeFailure(error: unknown): Snapshot {
    const { log, topic } = this.#options;
    const known = toProblem(error);
    if (!known) log.error({ err: error, topic: topic.kind }, 'reading a topic failed, retrying');
    const problem =
      known ?? new ProblemError('internal', 'The platform failed; its log has the cause.');
    const isFinal = known !== undefined && known.status < 500 && !PASSING.has(known.code);
    return composeProblem(problem, isFinal);
  }
}

function describeLasting(data: object, volatile: readonly string[]): string {
  const left = Object.entries(data).filter(([name]) => !volatile.includes(name));
  return JSON.stringify(left);
}

export function composeProblem(problem: ProblemError, isFinal: boolean): Snapshot {
  const json = JSON.stringify({ problem: problem.toProblem(), final: isFinal });
  return { event: 'problem', bytes: Buffer.from(`${json.slice(1)}\n\n`), isFinal };
}

/** The start of an event, before the bytes of its snapshot. JSON of the platform has no line breaks. */
export function composeStart({ name }: Topic, { event }: Snapshot): string {
  return `event: ${event}\ndata: {"topic":${JSON.stringify(name)},`;
}

function tooLarge(bytes: number): ProblemError {
  const detail = `The data of the topic has ${bytes} bytes, at most ${EVENT_LIMITS.snapshotBytes} are sent; read it page by page.`;
  return new ProblemError('payload_too_large', detail);
}
