// The topics that somebody listens to, and the number of connections. Connections with the same rights share the reads.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Waiter } from '../../base/waiters.ts';
import type { KeyHolder } from '../../control/keys/keys.ts';
import { EVENT_LIMITS, type Topic } from '../../wire/event-topics.ts';
import { ProblemError } from '../../wire/problem.ts';
import { Channel, type Listener } from './channel.ts';

/** Retry-After of a refused connection, ms. */
const RETRY_MS = 5_000;

/** A caller of one connection. */
export interface EventCaller {
  holder: KeyHolder;
  /** ID of the session, or of the key. */
  id: string;
  /** Headers that show the caller's rights to other nodes. */
  credentials: Readonly<Record<string, string>>;
}

export interface EventHubOptions {
  clock: Clock;
  log: Log;
  /** Connections of all callers on this node. */
  maxConnections: number;
  /** Reads the data of a topic with the rights of the caller. @throws ProblemError */
  read: (caller: EventCaller, topic: Topic) => Promise<object>;
  /** Is woken when the data of the topic may have changed; undefined: nothing tells. */
  watch: (topic: Topic) => Waiter | undefined;
}

interface Joined {
  channel: Channel;
  callers: Map<Listener, EventCaller>;
}

export class EventHub {
  readonly #options: EventHubOptions;
  readonly #channels = new Map<string, Joined>();
  readonly #callers = new Map<string, number>();
  readonly #closing = new AbortController();
  #connections = 0;

  constructor(options: EventHubOptions) {
    this.#options = options;
  }

  /** Open connections. */
  get connections(): number {
    return this.#connections;
  }

  /** Topics that are read now. */
  get topics(): number {
    return this.#channels.size;
  }

  /** Aborts when the platform stops. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Ends all connections and reads. */
  stop(): void {
    this.#closing.abort();
  }

  /** Counts a connection. @returns the function that ends it @throws ProblemError `rate_limited` */
  enter({ id }: Pick<EventCaller, 'id'>): () => void {
    const own = this.#callers.get(id) ?? 0;
    const { callerConnections } = EVENT_LIMITS;
    if (own >= callerConnections) {
      throw refuse(`This key or session already has ${own} event streams; close some.`);
    }
    if (this.#connections >= this.#options.maxConnections) {
      throw refuse(`The node already has ${this.#connections} event streams; try again later.`);
    }
    this.#callers.set(id, own + 1);
    this.#connections += 1;
    return () => {
      this.#connections -= 1;
      const left = (this.#callers.get(id) ?? 1) - 1;
      if (left > 0) this.#callers.set(id, left);
      else this.#callers.delete(id);
    };
  }

  /** Offers the topic's last snapshot and each later one. @returns the function that ends it */
  listen(caller: EventCaller, topic: Topic, listener: Listener): () => void {
    const name = nameChannel(caller.holder, topic);
    const known = this.#channels.get(name);
    // What was not found then may exist by now.
    const joined = known && !known.channel.isOver ? known : this.#open(name, topic);
    joined.callers.set(listener, caller);
    joined.channel.add(listener);
    return () => {
      joined.callers.delete(listener);
      joined.channel.remove(listener);
      if (joined.channel.isEmpty && this.#channels.get(name) === joined)
        this.#channels.delete(name);
    };
  }

  #open(name: string, topic: Topic): Joined {
    const { clock, log, read, watch } = this.#options;
    const callers = new Map<Listener, EventCaller>();
    const channel = new Channel({
      ...{ topic, clock, log, closing: this.closing },
      async read() {
        const [caller] = callers.values();
        if (caller) return read(caller, topic);
        throw new ProblemError('unavailable', 'the connection has ended');
      },
      watch: () => watch(topic),
    });
    const joined = { channel, callers };
    this.#channels.set(name, joined);
    return joined;
  }
}

/** Callers with the same name read the same data. */
function nameChannel({ scopes, userId }: KeyHolder, { endpoint, id, name }: Topic): string {
  return JSON.stringify([name, endpoint, id, userId, [...scopes].toSorted()]);
}

function refuse(detail: string): ProblemError {
  return new ProblemError('rate_limited', detail, { retryAfterMs: RETRY_MS });
}
