// Serves the event stream: which node has the data of a topic, how it is read there or here, who may read it, and the
// client's connection, which sends the last snapshot of each topic at the client's pace; snapshots that a slow client has
// missed are not kept. Each read gives what an operation of the API answers, for the same rights.
import type { ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { KeyHolder } from '../../control/keys/keys.ts';
import { hideVariables } from '../../control/keys/rights.ts';
import type { Pods } from '../../control/pods/pods.ts';
import { describeBatch } from '../../queue/batches/batches.ts';
import { ProblemError } from '../../wire/problem.ts';
import { EVENT_OPERATIONS } from '../../wire/resources/events.ts';
import {
  EVENT_LIMITS,
  LISTED,
  POD_LOG_BYTES,
  readTopic,
  type Topic,
  type TopicKind,
  type TopicNames,
} from '../../wire/routes/event-topics.ts';
import { composeProblem, composeStart, type Snapshot } from '../events/channel.ts';
import { type EventCaller, EventHub } from '../events/event-hub.ts';
import type { Forwarder } from '../forwarding/forwarder.ts';
import type { OwnerNode } from '../forwarding/forwarding-options.ts';
import { requireOwnEndpoint, requireScope } from '../http/auth.ts';
import { beginEvents } from '../http/byte-reply.ts';
import { type CallerWatches, watchCaller } from '../http/guard.ts';
import { describeNext, readText, refuseParameter, requireHolder } from '../http/requests.ts';
import type { Overviews } from '../overviews.ts';
import type { ApiServerOptions } from '../server-options.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';
import { requirePods } from './resource-routes.ts';

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
  const find = ({ endpoint, rule }: Topic): OwnerNode => {
    if (!forwarder || rule.servedBy === 'any') return { kind: 'here' };
    return forwarder.options.placement.find(rule.servedBy === 'endpoint' ? endpoint : undefined);
  };
  const hub = new EventHub({
    clock,
    log,
    maxConnections: bounds.maxEventStreams,
    async read({ credentials, holder }, topic) {
      requireTopic(holder, topic, endpoints);
      const owner = find(topic);
      if (owner.kind === 'here') return reads[topic.kind](holder, topic);
      if (owner.kind === 'none' || !forwarder) throw new ProblemError('unavailable', NO_NODE);
      return forwarder.readTopic({ url: owner.url, topic, credentials });
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
    hub,
    clock,
    stallMs: bounds.stallMs,
    watches,
    require: (holder, topic) => requireTopic(holder, topic, endpoints),
    resolve: (holder, topic) => resolveTopic(holder, topic, { endpoints, pods }),
  };
}

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

const NO_NODE = 'No node of the platform has this data now.';

/** Most bytes of a list's records: well below the bound of a snapshot. */
const LIST_BYTES = EVENT_LIMITS.snapshotBytes / 2;

interface TopicReadsOptions
  extends Pick<ApiServerOptions, 'endpoints' | 'pods' | 'queue' | 'resources'> {
  overviews: Overviews;
}

type Read = (holder: KeyHolder, names: TopicNames) => Promise<object>;

export type TopicReads = Readonly<Record<TopicKind, Read>>;

/** Reads the data on this node. */
function createTopicReads(options: TopicReadsOptions): TopicReads {
  const { endpoints, overviews, pods, queue, resources } = options;
  const pageOf = (limit: number) => ({ before: undefined, limit, maxBytes: LIST_BYTES });
  return {
    overview: (holder) => overviews.read(holder),
    activity: (_holder, { endpoint }) => overviews.one(endpoint),
    health: async (_holder, { endpoint }) => queue.health(endpoint),
    job: (_holder, { endpoint, id }) => queue.jobs.outline({ endpointId: endpoint, id }),
    flow: (_holder, { endpoint, id }) => queue.flows.read({ endpointId: endpoint, id }),
    batch: async (_holder, { endpoint, id }) =>
      describeBatch(await queue.batches.read({ endpointId: endpoint, id })),
    async endpoints({ userId }) {
      const { next, records } = endpoints.list({ userId, ...pageOf(LISTED.records) });
      return { endpoints: records, ...describeNext(next) };
    },
    endpoint: async ({ userId }, { endpoint }) => endpoints.get(userId, endpoint),
    async decisions(_holder, { endpoint }) {
      const { decisions } = resources ?? raiseNoResources();
      const page = await decisions.list({ endpointId: endpoint, ...pageOf(LISTED.decisions) });
      return { decisions: page.decisions, ...describeNext(page.next) };
    },
    async versions({ userId }, { endpoint }) {
      const { versions } = resources ?? raiseNoResources();
      const listing = { endpointId: endpoint, ...pageOf(LISTED.versions) };
      const { next, records } = await versions.list(userId, listing);
      return { versions: records, ...describeNext(next) };
    },
    async pods(holder) {
      const served = requirePods(pods);
      const page = { userId: holder.userId, ...pageOf(LISTED.records) };
      const { next, pods: listed } = await served.list(page);
      const shown = await Promise.all(listed.map((pod) => served.show(pod)));
      const records = shown.map((pod) => hideVariables(holder, 'pods:write', pod));
      return { pods: records, ...describeNext(next) };
    },
    async pod(holder, { id }) {
      const served = requirePods(pods);
      const pod = await served.show(await served.find(holder.userId, id));
      return hideVariables(holder, 'pods:write', pod);
    },
    async 'pod-log'({ userId }, { id }) {
      const { end, isCut } = await requirePods(pods).readLog(userId, id, POD_LOG_BYTES);
      return { log: Buffer.from(end).toString(), truncated: isCut };
    },
  };
}

/**
 * Change numbers of topics: one differs whenever a read of the topic would return something new. Undefined, or without an
 * entry: only a read shows changes. Jobs, health and logs are small and change by themselves.
 */
function createTopicNumbers({
  endpoints,
  overviews,
  pods,
  resources,
}: TopicReadsOptions): Partial<
  Record<TopicKind, (holder: KeyHolder, names: TopicNames) => unknown>
> {
  return {
    overview: (holder) => overviews.number(holder),
    activity: (_holder, { endpoint }) => overviews.numberOf(endpoint),
    endpoints: ({ userId }) => endpoints.changes.of(userId),
    endpoint: (_holder, { endpoint }) => endpoints.find(endpoint),
    decisions: (_holder, { endpoint }) => resources?.decisions.changes.of(endpoint),
    versions: (_holder, { endpoint }) => resources?.versions.changes.of(endpoint),
    pods: ({ userId }) => pods?.numberOf(userId),
    pod: ({ userId }, { id }) => pods?.numberOf(userId, id),
  };
}

function raiseNoResources(): never {
  throw new ProblemError('not_found', 'this platform has no scaler and no versions');
}

/**
 * Whether the holder may read the topic, as for the operation whose answer it carries. @throws ProblemError `not_found`,
 * `forbidden`
 */
function requireTopic(
  holder: KeyHolder,
  { endpoint, rule }: Topic,
  endpoints: Pick<Endpoints, 'ownerOf'>,
): void {
  const named = endpoint === '' ? undefined : endpoint;
  if (named !== undefined) requireOwnEndpoint(holder, named, endpoints);
  if (rule.scope !== 'key') requireScope(holder, rule.scope, named);
}

/** IDs in place of names. */
function resolveTopic(
  { userId }: KeyHolder,
  topic: Topic,
  {
    endpoints,
    pods,
  }: { endpoints: Pick<Endpoints, 'resolve'>; pods: Pick<Pods, 'resolve'> | undefined },
): Topic {
  const { endpoint, id, rule } = topic;
  return {
    ...topic,
    endpoint: endpoint === '' ? '' : endpoints.resolve(userId, endpoint),
    id: rule.names === 'pod' ? (pods?.resolve(userId, id) ?? id) : id,
  };
}
