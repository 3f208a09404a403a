// Reads the data of topics on this node. Each read gives what an operation of the API answers, for the same rights.
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { KeyHolder } from '../../control/keys/keys.ts';
import { hideVariables } from '../../control/keys/scope-grants.ts';
import type { Pods } from '../../control/pods/pods.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  EVENT_LIMITS,
  LISTED,
  POD_LOG_BYTES,
  type Topic,
  type TopicKind,
  type TopicNames,
} from '../../wire/routes/event-topics.ts';
import { requireOwnEndpoint, requireScope } from '../http/auth.ts';
import { describeNext } from '../http/paging.ts';
import type { Overviews } from '../overviews.ts';
import { requirePods } from '../routes/pod-routes.ts';
import type { ApiServerOptions } from '../server-options.ts';

/** Most bytes of a list's records: well below the bound of a snapshot. */
const LIST_BYTES = EVENT_LIMITS.snapshotBytes / 2;

export interface TopicReadsOptions
  extends Pick<ApiServerOptions, 'endpoints' | 'pods' | 'queue' | 'resources'> {
  overviews: Overviews;
}

type Read = (holder: KeyHolder, names: TopicNames) => Promise<object>;

export type TopicReads = Readonly<Record<TopicKind, Read>>;

export function createTopicReads(options: TopicReadsOptions): TopicReads {
  const { endpoints, overviews, pods, queue, resources } = options;
  const pageOf = (limit: number) => ({ before: undefined, limit, maxBytes: LIST_BYTES });
  return {
    overview: (holder) => overviews.read(holder),
    activity: (_holder, { endpoint }) => overviews.one(endpoint),
    health: async (_holder, { endpoint }) => queue.health(endpoint),
    job: (_holder, { endpoint, id }) => queue.jobs.outline({ endpointId: endpoint, id }),
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
export function createTopicNumbers({
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
export function requireTopic(
  holder: KeyHolder,
  { endpoint, rule }: Topic,
  endpoints: Pick<Endpoints, 'ownerOf'>,
): void {
  const named = rule.names === 'endpoint' || rule.names === 'job' ? endpoint : undefined;
  if (named !== undefined) requireOwnEndpoint(holder, named, endpoints);
  if (rule.scope !== 'key') requireScope(holder, rule.scope, named);
}

/** IDs in place of names. */
export function resolveTopic(
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
