// Puts the event stream together: which node has the data of a topic, and who may read it.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { Topic } from '../../wire/routes/event-topics.ts';
import type { Forwarder } from '../forwarding/forwarder.ts';
import type { Place } from '../forwarding/placement.ts';
import type { CallerWatches } from '../http/guard.ts';
import type { EventRoutesOptions } from '../routes/event-routes.ts';
import { EventHub } from './event-hub.ts';
import { readAtNode } from './remote-reads.ts';
import {
  createTopicNumbers,
  createTopicReads,
  requireTopic,
  resolveTopic,
  type TopicReadsOptions,
} from './topic-reads.ts';

export interface EventsOptions extends TopicReadsOptions {
  clock: Clock;
  log: Log;
  watches: CallerWatches;
  bounds: { maxEventStreams: number; stallMs: number };
  /** Undefined without other nodes. */
  forwarder: Forwarder | undefined;
}

export function openEvents(options: EventsOptions): EventRoutesOptions {
  const { bounds, clock, endpoints, forwarder, log, pods, queue, watches } = options;
  const reads = createTopicReads(options);
  const numbers = createTopicNumbers(options);
  const find = ({ endpoint, rule }: Topic): Place => {
    if (!forwarder || rule.place === 'any') return { kind: 'here' };
    return forwarder.options.placement.find(rule.place === 'endpoint' ? endpoint : undefined);
  };
  const hub = new EventHub({
    ...{ clock, log, maxConnections: bounds.maxEventStreams },
    async read({ credentials, holder }, topic) {
      requireTopic(holder, topic, endpoints);
      const place = find(topic);
      if (place.kind === 'here') return reads[topic.kind](holder, topic);
      if (place.kind === 'none' || !forwarder) throw new ProblemError('unavailable', NO_NODE);
      return readAtNode(forwarder, { url: place.url, topic, credentials });
    },
    number({ holder }, topic) {
      requireTopic(holder, topic, endpoints);
      return find(topic).kind === 'here' ? numbers[topic.kind]?.(holder, topic) : undefined;
    },
    watch(topic) {
      if (topic.kind !== 'job' || find(topic).kind !== 'here') return undefined;
      return queue.jobs.watch({ endpointId: topic.endpoint, id: topic.id });
    },
  });
  return {
    ...{ hub, clock, stallMs: bounds.stallMs, watches },
    require: (holder, topic) => requireTopic(holder, topic, endpoints),
    resolve: (holder, topic) => resolveTopic(holder, topic, { endpoints, pods }),
  };
}

const NO_NODE = 'No node of the platform has this data now.';
