// Serves the event stream: checks the topics, and connects the client to them.
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import type { KeyHolder } from '../../control/keys/keys.ts';
import { ProblemError } from '../../wire/problem.ts';
import { EVENT_OPERATIONS } from '../../wire/resources/events.ts';
import { EVENT_LIMITS, readTopic, type Topic } from '../../wire/routes/event-topics.ts';
import { composeProblem } from '../events/channel.ts';
import { EventConnection } from '../events/event-connection.ts';
import type { EventCaller, EventHub } from '../events/event-hub.ts';
import { takeOver } from '../http/byte-reply.ts';
import { type CallerWatches, watchCaller } from '../http/guard.ts';
import { readText, refuseParameter } from '../http/query.ts';
import { requireHolder } from '../http/resource-requests.ts';
import { EVENTS_MEDIA_TYPE } from '../http/sse.ts';
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
  const raw = takeOver(reply);
  raw.writeHead(200, {
    'content-type': EVENTS_MEDIA_TYPE,
    'cache-control': 'no-store',
    'x-accel-buffering': 'no',
  });
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
