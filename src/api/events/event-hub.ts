// The topics that somebody listens to, and the number of connections. Connections with the same rights share the reads.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Waiter } from '../../base/waiters.ts';
import type { KeyHolder } from '../../control/keys/keys.ts';
import { allows, readGrant } from '../../control/keys/rights.ts';
import { ProblemError } from '../../wire/problem.ts';
import { EVENT_LIMITS, type Topic } from '../../wire/routes/event-topics.ts';
import type { Scope } from '../../wire/routes/route.ts';
import { Channel, type Listener } from './channel.ts';
import { LoopTime, UserReads } from './user-reads.ts';

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
  /** Differs after each change of the topic's data; undefined: only a read shows changes. @throws ProblemError */
  number: (caller: EventCaller, topic: Topic) => unknown;
  /** Is woken when the data of the topic may have changed; undefined: nothing tells. */
  watch: (topic: Topic) => Waiter | undefined;
  /** Time that passes while code runs, ms. Default: that of the machine. */
  monotonic?: () => number;
}

interface Joined {
  channel: Channel;
  callers: Map<Listener, EventCaller>;
}

export class EventHub {
  readonly #options: EventHubOptions;
  readonly #channels = new Map<string, Joined>();
  /** Connections, by key or session, and by user. */
  readonly #callers = new Counts();
  readonly #users = new Counts();
  /** Topics that are read, by user, and what they cost. */
  readonly #userTopics = new Counts();
  readonly #userReads = new Map<string, UserReads>();
  readonly #allLoop: LoopTime;
  readonly #closing = new AbortController();
  #connections = 0;
  #reads = 0;
  #loopMs = 0;

  constructor(options: EventHubOptions) {
    this.#options = options;
    this.#allLoop = new LoopTime(options.clock, EVENT_LIMITS.allLoop);
  }

  /** Open connections. */
  get connections(): number {
    return this.#connections;
  }

  /** Topics that are read now. */
  get topics(): number {
    return this.#channels.size;
  }

  /** Reads of topics since the start, and the time of the event loop that topics have taken, ms. */
  get spent(): { reads: number; loopMs: number } {
    return { reads: this.#reads, loopMs: this.#loopMs };
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
  enter({ holder: { userId }, id }: Pick<EventCaller, 'holder' | 'id'>): () => void {
    const { maxConnections } = this.#options;
    const own = this.#callers.of(id);
    if (own >= EVENT_LIMITS.callerConnections) {
      throw refuse(`This key or session already has ${own} event streams; close some.`);
    }
    const ofUser = this.#users.of(userId);
    // One user, who may have many keys, leaves some for the others.
    if (ofUser >= Math.max(EVENT_LIMITS.callerConnections, maxConnections / 2)) {
      throw refuse(`Your keys and sessions already have ${ofUser} event streams; close some.`);
    }
    if (this.#connections >= maxConnections) {
      throw refuse(`The node already has ${this.#connections} event streams; try again later.`);
    }
    this.#callers.add(id);
    this.#users.add(userId);
    this.#connections += 1;
    return () => {
      this.#connections -= 1;
      this.#callers.remove(id);
      this.#users.remove(userId);
    };
  }

  /**
   * Offers the topic's last snapshot and each later one. @returns the function that ends it @throws ProblemError
   * `rate_limited`
   */
  listen(caller: EventCaller, topic: Topic, listener: Listener): () => void {
    const name = nameChannel(caller.holder, topic);
    const known = this.#channels.get(name);
    // What was not found then may exist by now.
    const joined = known && !known.channel.isOver ? known : this.#open(name, caller, topic);
    joined.callers.set(listener, caller);
    joined.channel.add(listener);
    return () => {
      if (!joined.callers.delete(listener)) return;
      joined.channel.remove(listener);
      if (!joined.channel.isEmpty) return;
      const { userId } = caller.holder;
      this.#userTopics.remove(userId);
      if (this.#channels.get(name) === joined) this.#channels.delete(name);
    };
  }

  #open(name: string, { holder: { userId } }: EventCaller, topic: Topic): Joined {
    const ofUser = this.#userTopics.of(userId);
    if (ofUser >= EVENT_LIMITS.userTopics) {
      throw refuse(`Your event streams already have ${ofUser} different topics; close some.`);
    }
    this.#userTopics.add(userId);
    const { clock, log, number, read, watch } = this.#options;
    const callers = new Map<Listener, EventCaller>();
    const requireCaller = () => {
      const [caller] = callers.values();
      if (caller) return caller;
      throw new ProblemError('unavailable', 'the connection has ended');
    };
    const channel = new Channel({
      topic,
      clock,
      log,
      closing: this.closing,
      reads: this.#readsOf(userId),
      number: async () => number(requireCaller(), topic),
      read: async () => {
        this.#reads += 1;
        return read(requireCaller(), topic);
      },
      watch: () => watch(topic),
    });
    const joined = { channel, callers };
    this.#channels.set(name, joined);
    return joined;
  }

  /** What a user has read counts on after the last topic is closed: a client that reconnects gets nothing extra. */
  #readsOf(userId: string): UserReads {
    const known = this.#userReads.get(userId);
    if (known) return known;
    for (const [user, reads] of this.#userReads) {
      if (this.#userTopics.of(user) === 0 && reads.isRested) this.#userReads.delete(user);
    }
    const { clock, monotonic = () => performance.now() } = this.#options;
    const note = (spentMs: number) => {
      this.#loopMs += spentMs;
    };
    const reads = new UserReads({ clock, monotonic, note, all: this.#allLoop });
    this.#userReads.set(userId, reads);
    return reads;
  }
}

/** How many there are of each name. */
class Counts {
  readonly #counts = new Map<string, number>();

  of(name: string): number {
    return this.#counts.get(name) ?? 0;
  }

  add(name: string): void {
    this.#counts.set(name, this.of(name) + 1);
  }

  remove(name: string): void {
    const left = this.of(name) - 1;
    if (left > 0) this.#counts.set(name, left);
    else this.#counts.delete(name);
  }
}

/** Callers with the same name read the same data: what is named, and the rights that change what is seen of it. */
function nameChannel(holder: KeyHolder, { endpoint, id, kind }: Topic): string {
  const seen = kind === 'overview' ? listSeen(holder) : [];
  const changes = CHANGES.map((scope) => allows(holder, scope, endpoint || undefined));
  return JSON.stringify([kind, endpoint, id, holder.userId, seen, changes]);
}

/** Holders of these scopes see more of a record, such as the values of variables. */
const CHANGES: readonly Scope[] = ['endpoints:write', 'pods:write'];

/** Grants of the jobs that an overview shows. */
function listSeen(holder: KeyHolder): string[] {
  if (allows(holder, 'jobs:read')) return ['all'];
  const endpoints = [...holder.scopes].flatMap((text) => {
    const { endpoint, scope } = readGrant(text) ?? {};
    return endpoint !== undefined && (scope === 'admin' || scope === 'jobs:read') ? endpoint : [];
  });
  return [...new Set(endpoints)].toSorted();
}

function refuse(detail: string): ProblemError {
  return new ProblemError('rate_limited', detail, { retryAfterMs: RETRY_MS });
}
