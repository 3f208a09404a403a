// Typed client of everything on the platform except jobs: pods, endpoints, templates, catalog, keys, bills, budgets
// and limits.
import type { ErrorCode } from '../wire/job/job.ts';
import type { FailedJobList } from '../wire/resources/activity.ts';
import type {
  BilledKind,
  BillingGroup,
  BillingPage,
  BillingStep,
} from '../wire/resources/billing.ts';
import type { BudgetRecord } from '../wire/resources/budget.ts';
import type { CpuFlavor, DataCenter, GpuType } from '../wire/resources/catalog.ts';
import type { EndpointRecord } from '../wire/resources/endpoint.ts';
import type { IssuedKeyRecord, KeyRecord, SessionRecord } from '../wire/resources/key.ts';
import type { LimitsRecord } from '../wire/resources/limits.ts';
import type { NodeList } from '../wire/resources/nodes.ts';
import type { PodAction, PodRecord } from '../wire/resources/pod.ts';
import type { DecisionRecord } from '../wire/resources/scaling.ts';
import type { ScheduleTiming } from '../wire/resources/schedule.ts';
import type { VersionRecord } from '../wire/resources/version.ts';
import { fillPath, listResourceRoutes } from '../wire/routes/route.ts';
import {
  ACTIVITY_ROUTES,
  BILLING_ROUTES,
  CATALOG_ROUTES,
  KEY_ROUTES,
  LIMITS_ROUTES,
  NODE_ROUTES,
  POD_ROUTES,
  RESOURCES,
  SCALER_ROUTES,
  SCHEDULE_ROUTES,
  SESSION_ROUTES,
  VERSION_ROUTES,
} from '../wire/routes/routes.ts';
import { ApiCaller, type ApiCallerOptions, callOf } from './api-caller.ts';
import { type EventsOptions, readEvents, type TopicEvent } from './events.ts';
import {
  connectList,
  connectResources,
  type EndpointChange,
  type Listed,
  type NewEndpoint,
  type NewKey,
  type NewPod,
  type PodChange,
  post,
  type ResourceName,
  type ResourceOptions,
  type Resources,
  type ResourcesOf,
  remove,
} from './resource-calls.ts';

/** Resources with only the five verbs: templates. */
type PlainName = Exclude<ResourceName, 'pods' | 'endpoints' | 'budgets' | 'schedules'>;
type PlainResources = { readonly [Name in PlainName]: ResourcesOf<Name> };

/** Filter of failed jobs. */
export interface FailedJobsOptions {
  /** ID or name. Default: all endpoints for whose jobs the key has `jobs:read`. */
  endpoint?: string | undefined;
  /** Only jobs of which an attempt failed with this code. */
  errorCode?: ErrorCode | undefined;
  /** Only jobs with all of these tags. */
  tags?: readonly string[] | undefined;
  /** Only jobs that ended at or after this time, Unix ms. */
  since?: number | undefined;
  /** Only jobs that ended at or before this time, Unix ms. */
  until?: number | undefined;
  /** Only jobs with this text in the message of their error or in their input. */
  text?: string | undefined;
  /** 1 to 100. Default 20. */
  limit?: number | undefined;
  cursor?: string | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * Each call rejects with ApiError if the platform refuses it, and with UnreachableError if no
 * answer arrives. Calls that read or change are retried over short outages. Calls that create, act
 * or delete are retried only after a refusal that proves that nothing was done (429, 503).
 */
export interface Platform extends PlainResources {
  readonly pods: PodsClient;
  readonly endpoints: EndpointsClient;
  readonly catalog: {
    readonly gpus: Listed<GpuType>;
    readonly cpus: Listed<CpuFlavor>;
    readonly dataCenters: Listed<DataCenter>;
  };
  readonly keys: KeysClient;
  readonly billing: BillingClient;
  readonly budgets: BudgetsClient;
  readonly schedules: SchedulesClient;
  readonly limits: LimitsClient;
  readonly nodes: NodesClient;
  readonly session: SessionClient;
  /** FAILED and TIMED_OUT jobs of all endpoints, the newest first. */
  failedJobs(options?: FailedJobsOptions): Promise<FailedJobList>;
  /**
   * Snapshots of topics such as `overview` and `job:<endpoint>/<job>`, the current one of each first: docs/events.md.
   * Connects again after each outage, and ends when the signal aborts or each topic has ended.
   */
  events(
    topics: readonly string[],
    options?: EventsOptions,
  ): AsyncGenerator<TopicEvent, void, void>;
}

/** @throws TypeError if the URL is invalid, or neither http nor https */
export function createPlatform(options: ApiCallerOptions): Platform {
  const caller = new ApiCaller(options);
  const { listCpuFlavors, listDataCenters, listGpuTypes } = CATALOG_ROUTES;
  return {
    ...connectPlain(caller),
    pods: connectPods(caller),
    endpoints: connectEndpoints(caller),
    catalog: {
      gpus: connectList({ caller, path: listGpuTypes.path, member: 'gpus' }),
      cpus: connectList({ caller, path: listCpuFlavors.path, member: 'cpus' }),
      dataCenters: connectList({ caller, path: listDataCenters.path, member: 'dataCenters' }),
    },
    keys: connectKeys(caller),
    billing: connectBilling(caller),
    budgets: connectBudgets(caller),
    schedules: connectSchedules(caller),
    limits: connectLimits(caller),
    nodes: connectNodes(caller),
    session: connectSession(caller),
    failedJobs: ({ signal, ...query } = {}) =>
      caller.json<FailedJobList>({ ...callOf(ACTIVITY_ROUTES.listFailedJobs, {}), query, signal }),
    events: (topics, given) => readEvents(caller, topics, given),
  };
}

function connectPlain(caller: ApiCaller): PlainResources {
  const names = Object.keys(RESOURCES).filter((name) => !OWN_CLIENTS.has(name));
  const connected = names.map((name) => [name, connectResources(caller, name as PlainName)]);
  // RESOURCES contains exactly these names and those of OWN_CLIENTS.
  return Object.fromEntries(connected) as PlainResources;
}

/** Resources with further operations, or without some of the five verbs. */
const OWN_CLIENTS: ReadonlySet<string> = new Set([
  'pods',
  'endpoints',
  'keys',
  'budgets',
  'schedules',
]);

export interface PodLogOptions extends ResourceOptions {
  /** Bytes from the end of the log; 1 to 1,048,576. Default 65,536. */
  maxBytes?: number;
}

export interface PodsClient extends Omit<Resources<PodRecord, NewPod, PodChange>, 'delete'> {
  start(id: string, options?: ResourceOptions): Promise<PodRecord>;
  /** Stops the pod; its disk is kept. */
  stop(id: string, options?: ResourceOptions): Promise<PodRecord>;
  /** Restarts the pod with a new disk; its mounts are kept. */
  restart(id: string, options?: ResourceOptions): Promise<PodRecord>;
  /** Terminates the pod permanently; its record can be read for another day. */
  terminate(id: string, options?: ResourceOptions): Promise<void>;
  /** Returns the end of the pod's log. */
  log(id: string, options?: PodLogOptions): Promise<string>;
}

export function connectPods(caller: ApiCaller): PodsClient {
  const { delete: terminate, ...resources } = connectResources(caller, 'pods');
  const act =
    (action: PodAction): PodsClient['start'] =>
    (pod, options) => {
      const path = fillPath(POD_ROUTES.actOnPod, { pod });
      return post<PodRecord>(caller, path, { ...options, body: { action } });
    };
  return {
    ...resources,
    terminate,
    start: act('start'),
    stop: act('stop'),
    restart: act('restart'),
    async log(pod, { maxBytes: bytes, signal } = {}) {
      const path = fillPath(POD_ROUTES.getPodLog, { pod });
      return (await caller.answer({ path, query: { bytes }, signal })).body;
    },
  };
}

export interface RotationOptions extends ResourceOptions {
  /** How long the old key stays valid, s; at most 604,800. Default 0. */
  graceSeconds?: number;
}

export interface KeysClient extends Listed<KeyRecord> {
  /** Lists the keys of another user; only for the operator's keys. */
  ofUser(userId: string): Listed<KeyRecord>;
  /** `key` of the answer cannot be read again. */
  create(creation: NewKey, options?: ResourceOptions): Promise<IssuedKeyRecord>;
  get(id: string, options?: ResourceOptions): Promise<KeyRecord>;
  /** Issues a new key with the same scopes; the old key expires. */
  rotate(id: string, options?: RotationOptions): Promise<IssuedKeyRecord>;
  /** Revokes the key at once. */
  delete(id: string, options?: ResourceOptions): Promise<void>;
}

export function connectKeys(caller: ApiCaller): KeysClient {
  const routes = listResourceRoutes(RESOURCES.keys);
  const { path } = routes.list;
  const pathOf = (key: string) => fillPath(routes.get, { key });
  const source = { caller, path, member: 'keys' };
  return {
    ...connectList(source),
    ofUser: (userId) => connectList({ ...source, query: { userId } }),
    create: (body, options) => post<IssuedKeyRecord>(caller, path, { ...options, body }),
    get: (id, { signal } = {}) => caller.json<KeyRecord>({ path: pathOf(id), signal }),
    rotate: (key, { graceSeconds = 0, signal } = {}) =>
      post<IssuedKeyRecord>(caller, fillPath(KEY_ROUTES.rotateKey, { key }), {
        body: { graceSeconds },
        signal,
      }),
    delete: (id, options) => remove(caller, pathOf(id), options),
  };
}

export interface BillingOptions extends ResourceOptions {
  /** Default: `day`. */
  step?: BillingStep | undefined;
  /** What one record sums up. Default: `each`. */
  group?: BillingGroup | undefined;
  /** Unix ms. Default: the last 24 hours or 30 days. */
  from?: number | undefined;
  to?: number | undefined;
  kind?: BilledKind | undefined;
  /** Of one resource. */
  id?: string | undefined;
  /** For the operator: another user, or `*` for all. Default: the user of the key. */
  userId?: string | undefined;
  /** Most records of the page. Default 100. */
  limit?: number | undefined;
  cursor?: string | undefined;
}

interface BillingClient {
  /** One page of what pods, endpoints and network volumes cost. */
  get(options?: BillingOptions): Promise<BillingPage>;
}

export function connectBilling(caller: ApiCaller): BillingClient {
  const { path } = BILLING_ROUTES.getBilling;
  return {
    get: ({ signal, ...query } = {}) => caller.json<BillingPage>({ path, query, signal }),
  };
}

export interface BudgetsClient extends ResourcesOf<'budgets'> {
  /** Lists the budgets of another user, or of all users if it is `*`; only for the operator's keys. */
  ofUser(userId: string): Listed<BudgetRecord>;
}

export function connectBudgets(caller: ApiCaller): BudgetsClient {
  const { path, plural: member } = RESOURCES.budgets;
  return {
    ...connectResources(caller, 'budgets'),
    ofUser: (userId) => connectList({ caller, path, member, query: { userId } }),
  };
}

export interface SchedulesClient extends ResourcesOf<'schedules'> {
  /** Makes a job now. */
  trigger(id: string, options?: ResourceOptions): Promise<{ jobId: string }>;
  /** The next ticks that a schedule would have: ISO 8601. */
  preview(
    timing: Partial<ScheduleTiming>,
    options?: ResourceOptions,
  ): Promise<{ nextTicks: string[] }>;
}

export function connectSchedules(caller: ApiCaller): SchedulesClient {
  const { previewSchedule, triggerSchedule } = SCHEDULE_ROUTES;
  return {
    ...connectResources(caller, 'schedules'),
    trigger: (schedule, { signal } = {}) =>
      caller.json({ ...callOf(triggerSchedule, { schedule }), repeatable: false, signal }),
    preview: (body, { signal } = {}) =>
      caller.json({ ...callOf(previewSchedule, {}), body, signal }),
  };
}

interface LimitsClient {
  /** What the user of this client's key may use, and uses now. */
  get(options?: ResourceOptions): Promise<LimitsRecord>;
}

export function connectLimits(caller: ApiCaller): LimitsClient {
  const { path } = LIMITS_ROUTES.getLimits;
  return { get: ({ signal } = {}) => caller.json<LimitsRecord>({ path, signal }) };
}

interface NodesClient {
  /** The nodes of the platform; for keys of its operator. */
  list(options?: ResourceOptions): Promise<NodeList>;
}

export function connectNodes(caller: ApiCaller): NodesClient {
  const { path } = NODE_ROUTES.getNodes;
  return { list: ({ signal } = {}) => caller.json<NodeList>({ path, signal }) };
}

interface SessionClient {
  /** The key of this client with its scopes, and the platform that it calls. */
  get(options?: ResourceOptions): Promise<SessionRecord>;
}

function connectSession(caller: ApiCaller): SessionClient {
  const { path } = SESSION_ROUTES.getSession;
  return { get: ({ signal } = {}) => caller.json<SessionRecord>({ path, signal }) };
}

export interface EndpointsClient extends Resources<EndpointRecord, NewEndpoint, EndpointChange> {
  /** Returns the last scaling decisions. */
  decisions(id: string): Listed<DecisionRecord>;
  /** Versions of the endpoint's handler. */
  versions(id: string): VersionsClient;
}

export function connectEndpoints(caller: ApiCaller): EndpointsClient {
  return {
    ...connectResources(caller, 'endpoints'),
    decisions: (endpoint) =>
      connectList({
        caller,
        path: fillPath(SCALER_ROUTES.listScalerDecisions, { endpoint }),
        member: 'decisions',
      }),
    versions: (endpoint) => connectVersions(caller, endpoint),
  };
}

/** A tar.gz of the handler's project. */
export interface NewVersion {
  archive: Uint8Array;
  /** Path of the handler in the archive: `handler.ts`. */
  entry: string;
  /** Hash of the archive, hex. The platform refuses another archive. */
  sha256?: string | undefined;
  /** What is new, for people; 1 to 1,000 characters. */
  message?: string | undefined;
}

export interface DeployOptions extends ResourceOptions {
  /** Seconds that the first worker has to install and load the version, 5 to 3,600. Default 600. */
  timeout?: number | undefined;
}

export interface UploadOptions extends ResourceOptions {
  /** Called with the number of bytes sent so far. */
  onSent?: ((bytes: number) => void) | undefined;
}

export interface VersionsClient extends Listed<VersionRecord> {
  get(version: number, options?: ResourceOptions): Promise<VersionRecord>;
  /** Stores a new version, which does not run before it is deployed. */
  upload(version: NewVersion, options?: UploadOptions): Promise<VersionRecord>;
  /** Downloads the archive. */
  archive(version: number, options?: ResourceOptions): Promise<Uint8Array>;
  /** Starts the rollout; `rollout` of the endpoint has its state. */
  deploy(version: number, options?: DeployOptions): Promise<EndpointRecord>;
  /** Deletes a version that is neither running nor being deployed. */
  remove(version: number, options?: ResourceOptions): Promise<void>;
}

const GZIP_TYPE = 'application/gzip';

function connectVersions(caller: ApiCaller, endpoint: string): VersionsClient {
  const of = (version: number) => ({ endpoint, version: String(version) });
  return {
    ...connectList<VersionRecord>({
      caller,
      path: fillPath(VERSION_ROUTES.listVersions, { endpoint }),
      member: 'versions',
    }),
    get: (version, { signal } = {}) =>
      caller.json({ ...callOf(VERSION_ROUTES.getVersion, of(version)), signal }),
    upload: ({ archive, entry, message, sha256 }, { onSent, signal } = {}) =>
      caller.json({
        ...callOf(VERSION_ROUTES.uploadVersion, { endpoint }),
        query: { entry, sha256, message },
        content: { bytes: archive, type: GZIP_TYPE, onSent },
        // Without an answer, the version may exist already.
        repeatable: false,
        signal,
      }),
    archive: (version, { signal } = {}) =>
      caller.bytes({
        ...callOf(VERSION_ROUTES.getVersionArchive, of(version)),
        headers: { accept: GZIP_TYPE },
        signal,
      }),
    deploy: (version, { signal, timeout } = {}) =>
      caller.json({
        ...callOf(VERSION_ROUTES.deployVersion, of(version)),
        body: { timeout },
        repeatable: false,
        signal,
      }),
    remove: async (version, { signal } = {}) => {
      await caller.answer({
        ...callOf(VERSION_ROUTES.removeVersion, of(version)),
        repeatable: false,
        signal,
      });
    },
  };
}
