// Topics of the event stream: each stands for the answer of one read of the API. Clients load this file, so it loads no
// zod.
import { fillPath, type Scope } from './route.ts';
import {
  ACTIVITY_ROUTES,
  BATCH_ROUTES,
  FLOW_ROUTES,
  JOB_ROUTES,
  POD_ROUTES,
  RESOURCES,
  SCALER_ROUTES,
  VERSION_ROUTES,
} from './routes.ts';

/** Who can read a topic: any node, the node with the control plane, or the owner of the endpoint. */
type TopicServer = 'any' | 'control' | 'endpoint';

interface TopicRule {
  /** What stands behind the colon. `record`: an ID or a name. */
  names: 'nothing' | 'endpoint' | 'batch' | 'job' | 'flow' | 'pod';
  scope: Scope | 'key';
  servedBy: TopicServer;
  /** Shortest time between two snapshots, ms. */
  everyMs: number;
  /** Members that differ in each answer; they alone cause no event. For topics without a change number. */
  volatile?: readonly string[];
  /** Path and query of the read. */
  target: (names: TopicNames) => string;
}

/** `id`: of a batch, a job, a flow or a pod. */
export interface TopicNames {
  endpoint: string;
  id: string;
}

const list = (path: string, limit: number) => `${path}?limit=${limit}`;
const one = (path: string, id: string) => `${path}/${encodeURIComponent(id)}`;

/** Most records of a list in a topic. */
export const LISTED = { records: 1_000, decisions: 20, versions: 100 } as const;
/** End of a pod's log in a topic, bytes. */
export const POD_LOG_BYTES = 65_536;

const OF_JOBS = { scope: 'jobs:read', everyMs: 1_000 } as const;
const OF_ENDPOINTS = { scope: 'endpoints:read', servedBy: 'control', everyMs: 2_000 } as const;
const OF_PODS = { scope: 'pods:read', servedBy: 'control', everyMs: 2_000 } as const;

export const TOPICS = {
  overview: {
    names: 'nothing',
    scope: 'key',
    servedBy: 'any',
    everyMs: 1_000,
    target: () => ACTIVITY_ROUTES.getOverview.path,
  },
  endpoints: {
    ...OF_ENDPOINTS,
    names: 'nothing',
    target: () => list(RESOURCES.endpoints.path, LISTED.records),
  },
  endpoint: {
    ...OF_ENDPOINTS,
    names: 'endpoint',
    target: ({ endpoint }) => one(RESOURCES.endpoints.path, endpoint),
  },
  decisions: {
    ...OF_ENDPOINTS,
    names: 'endpoint',
    target: ({ endpoint }) =>
      list(fillPath(SCALER_ROUTES.listScalerDecisions, { endpoint }), LISTED.decisions),
  },
  versions: {
    ...OF_ENDPOINTS,
    names: 'endpoint',
    target: ({ endpoint }) =>
      list(fillPath(VERSION_ROUTES.listVersions, { endpoint }), LISTED.versions),
  },
  health: {
    ...OF_JOBS,
    names: 'endpoint',
    servedBy: 'endpoint',
    target: ({ endpoint }) => fillPath(JOB_ROUTES.getEndpointHealth, { endpoint }),
  },
  activity: {
    ...OF_JOBS,
    names: 'endpoint',
    servedBy: 'any',
    target: ({ endpoint }) => fillPath(ACTIVITY_ROUTES.getEndpointActivity, { endpoint }),
  },
  job: {
    ...OF_JOBS,
    names: 'job',
    servedBy: 'endpoint',
    volatile: ['delayTime', 'executionTime'],
    target: ({ endpoint, id }) =>
      `${fillPath(JOB_ROUTES.getJob, { endpoint, job: id })}?input=false`,
  },
  flow: {
    ...OF_JOBS,
    names: 'flow',
    servedBy: 'endpoint',
    // A record of 1,000 jobs has some 200 KB.
    everyMs: 2_000,
    target: ({ endpoint, id }) => fillPath(FLOW_ROUTES.getFlow, { endpoint, flow: id }),
  },
  batch: {
    ...OF_JOBS,
    names: 'batch',
    servedBy: 'endpoint',
    target: ({ endpoint, id }) => fillPath(BATCH_ROUTES.getBatch, { endpoint, batch: id }),
  },
  pods: {
    ...OF_PODS,
    names: 'nothing',
    target: () => list(RESOURCES.pods.path, LISTED.records),
  },
  pod: {
    ...OF_PODS,
    names: 'pod',
    target: ({ id }) => one(RESOURCES.pods.path, id),
  },
  'pod-log': {
    ...OF_PODS,
    names: 'pod',
    everyMs: 1_000,
    target: ({ id }) => `${fillPath(POD_ROUTES.getPodLog, { pod: id })}?bytes=${POD_LOG_BYTES}`,
  },
} as const satisfies Readonly<Record<string, TopicRule>>;

export type TopicKind = keyof typeof TOPICS;

export interface Topic extends TopicNames {
  /** As the client wrote it: `job:ep_1/0191…`. */
  name: string;
  kind: TopicKind;
  rule: TopicRule;
}

/** An ID or a name, percent-encoded: names of endpoints and pods may have any characters. */
const NAME = "[A-Za-z0-9._~%!'()*-]{1,600}";
const OF_ENDPOINT = new RegExp(`^:(?<endpoint>${NAME})/(?<id>${NAME})$`);
const FORMS: Readonly<Record<TopicRule['names'], RegExp>> = {
  nothing: /^$/,
  endpoint: new RegExp(`^:(?<endpoint>${NAME})$`),
  pod: new RegExp(`^:(?<id>${NAME})$`),
  batch: OF_ENDPOINT,
  job: OF_ENDPOINT,
  flow: OF_ENDPOINT,
};

/** Undefined for a text that is no topic. */
export function readTopic(name: string): Topic | undefined {
  const [word = ''] = name.split(':', 1);
  const kind = TOPIC_KINDS.find((known) => known === word);
  if (!kind) return undefined;
  const rule: TopicRule = TOPICS[kind];
  const found = FORMS[rule.names].exec(name.slice(word.length));
  if (!found) return undefined;
  try {
    const { endpoint = '', id = '' } = found.groups ?? {};
    return {
      name,
      kind,
      rule,
      endpoint: decodeURIComponent(endpoint),
      id: decodeURIComponent(id),
    };
  } catch {
    return undefined;
  }
}

/** The text of a topic: `composeTopic('job', 'ep_1', '0191…')` is `job:ep_1/0191…`. */
export function composeTopic(kind: TopicKind, ...names: readonly string[]): string {
  const encoded = names.map((name) => encodeURIComponent(name));
  return encoded.length === 0 ? kind : `${kind}:${encoded.join('/')}`;
}

// The keys of TOPICS.
const TOPIC_KINDS = Object.keys(TOPICS) as readonly TopicKind[];

/** Bounds of event streams. */
export const EVENT_LIMITS = {
  /** Topics of one connection. */
  topics: 16,
  /** Connections of one session or key, on one node. */
  callerConnections: 8,
  /** Different topics of all connections of one user, on one node: each is read about once a second. */
  userTopics: 500,
  /** A connection ends after this time, ms; its client connects again. */
  lifetimeMs: 600_000,
  /** Silence before a comment is sent, ms. */
  heartbeatMs: 15_000,
  /** Bytes of one snapshot as JSON. */
  snapshotBytes: 4_194_304,
  /** Bytes of the last snapshots of all topics of one user, on one node. */
  userBytes: 67_108_864,
  /** Share of the event loop's time that the topics of one user take, on one node; `burstMs` at once. */
  userLoop: { share: 0.05, burstMs: 500 },
  /** The same for all users together. */
  allLoop: { share: 0.25, burstMs: 1_000 },
} as const;
