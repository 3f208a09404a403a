// Serves the event stream: checks the topics, and connects the client to them. A connection sends the last snapshot
// of each topic at the client's pace; snapshots that a slow client has missed are not kept.
import type { ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import type { KeyHolder } from '../../control/keys/keys.ts';
import { ProblemError } from '../../wire/problem.ts';
import { EVENT_OPERATIONS } from '../../wire/resources/events.ts';
import { EVENT_LIMITS, readTopic, type Topic } from '../../wire/routes/event-topics.ts';
import { composeProblem, composeStart, type Snapshot } from '../events/channel.ts';
import type { EventCaller, EventHub } from '../events/event-hub.ts';
import { beginEvents } from '../http/byte-reply.ts';
import { type CallerWatches, watchCaller } from '../http/guard.ts';
import { readText, refuseParameter, requireHolder } from '../http/requests.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';

export interface EventRoutesOptions {
  hub: EventHub;
  clock: Clock;
  stallMs: number;
  watches: CallerWatches;
  /** IDs in place of names. @throws ProblemError `conflict` if several records have the name */
  resolve: (holder: KeyHolder, topic: Topic) => Topic;
  /** @throws ProblemError `not_found`, `forbidden` */
  require: (holder: KeyHolder, topic: Topic) => void;
}

export function bindEvents(options: EventRoutesOptions): BoundOperation[] {
  return bindOperations(EVENT_OPERATIONS, {
    streamEvents: async (request, reply) => sendEvents(request, reply, options),
  });
}

function sendEvents(
  request: FastifyRequest,
  reply: FastifyReply,
  { clock, hub, require, resolve, stallMs, watches }: EventRoutesOptions,
): FastifyReply {
  const caller = describeCaller(request);
  const topics = readTopics(readText(Object(request.query), 'topics'));
  const leave = hub.enter(caller);
  const raw = beginEvents(reply);
  const connection = new EventConnection({ raw, clock, stallMs });
  connection.start();
  const ends: (() => void)[] = [leave];
  const end = () => connection.end();
  hub.closing.addEventListener('abort', end);
  const stopWatch = watchCaller(watches, request, end);
  if (stopWatch) ends.push(stopWatch);
  raw.once('close', () => {
    hub.closing.removeEventListener('abort', end);
    for (const each of ends) each();
  });
  for (const topic of topics) {
    try {
      const resolved = resolve(caller.holder, topic);
      require(caller.holder, resolved);
      ends.push(hub.listen(caller, resolved, (snapshot) => connection.offer(topic, snapshot)));
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      connection.offer(topic, composeProblem(error, true));
    }
  }
  if (raw.closed) for (const each of ends) each();
  return reply;
}

function describeCaller(request: FastifyRequest): EventCaller {
  const holder = requireHolder(request);
  const { authorization, cookie, host } = request.headers;
  return {
    holder,
    id: request.session?.id ?? holder.keyId,
    credentials: {
      ...(authorization !== undefined && { authorization }),
      ...(cookie !== undefined && { cookie }),
      ...(host !== undefined && { host }),
    },
  };
}

/** @throws ProblemError `invalid` */
function readTopics(text: string | undefined): Topic[] {
  if (text === undefined) throw refuseParameter('topics', 'is needed, such as topics=overview');
  const names = [...new Set(text.split(','))];
  if (names.length > EVENT_LIMITS.topics) {
    throw refuseParameter('topics', `must name at most ${EVENT_LIMITS.topics} topics`);
  }
  return names.map((name) => {
    const topic = readTopic(name);
    if (topic) return topic;
    throw refuseParameter('topics', `has an unknown topic: ${name.slice(0, 200)}`);
  });
}

/** After this time the client connects again, ms. */
const RECONNECT_MS = 1_000;

const HEARTBEAT = Buffer.from(': still here\n\n');

export interface EventConnectionOptions {
  raw: ServerResponse;
  clock: Clock;
  /** Longest pause of a client that has bytes to read, ms. */
  stallMs: number;
}

/** One client: sends the last snapshot of each topic at the pace of the client. */
export class EventConnection {
  readonly #options: EventConnectionOptions;
  /** By topic; at most one each, so a client that does not read holds no more than it has topics. */
  readonly #unsent = new Map<string, { topic: Topic; snapshot: Snapshot }>();
  #isBlocked = false;
  #cancelHeartbeat = () => {};
  #cancelStall = () => {};

  constructor(options: EventConnectionOptions) {
    this.#options = options;
  }

  start(): void {
    const { clock, raw } = this.#options;
    raw.write(`retry: ${RECONNECT_MS}\n\n`);
    this.#beat();
    const cancelLife = clock.after(EVENT_LIMITS.lifetimeMs, () => this.end());
    raw.once('close', () => {
      cancelLife();
      this.#cancelHeartbeat();
      this.#cancelStall();
      this.#unsent.clear();
    });
  }

  offer(topic: Topic, snapshot: Snapshot): void {
    this.#unsent.set(topic.name, { topic, snapshot });
    this.#flush();
  }

  /** The client connects again. */
  end(): void {
    const { raw } = this.#options;
    if (!raw.writableEnded) raw.end();
  }

  #flush(): void {
    const { raw } = this.#options;
    for (const [name, { snapshot, topic }] of this.#unsent) {
      if (this.#isBlocked || raw.writableEnded || raw.destroyed) return;
      this.#unsent.delete(name);
      raw.write(composeStart(topic, snapshot));
      this.#write(snapshot.bytes);
    }
  }

  #write(bytes: Buffer): void {
    const { clock, raw, stallMs } = this.#options;
    this.#beat();
    if (raw.write(bytes)) return;
    this.#isBlocked = true;
    this.#cancelStall = clock.after(stallMs, () => raw.destroy());
    raw.once('drain', () => {
      this.#isBlocked = false;
      this.#cancelStall();
      this.#flush();
    });
  }

  /** Proxies close silent connections. */
  #beat(): void {
    const { clock } = this.#options;
    this.#cancelHeartbeat();
    this.#cancelHeartbeat = clock.after(EVENT_LIMITS.heartbeatMs, () => {
      if (this.#isBlocked) this.#beat();
      else this.#write(HEARTBEAT);
    });
  }
}
