// Typed client of everything on the platform except jobs: pods, endpoints, templates, catalog,
// keys.
import type { ErrorCode } from '../wire/job/job.ts';
import type { FailedJobList } from '../wire/resources/activity.ts';
import type { CpuFlavor, DataCenter, GpuType } from '../wire/resources/catalog.ts';
import { ACTIVITY_ROUTES, CATALOG_ROUTES, RESOURCES } from '../wire/routes/routes.ts';
import { ApiCaller, type ApiCallerOptions, callOf } from './api-caller.ts';
import { type BillingClient, connectBilling } from './billing.ts';
import { type BudgetsClient, connectBudgets } from './budgets.ts';
import { connectEndpoints, type EndpointsClient } from './endpoints.ts';
import { type EventsOptions, readEvents, type TopicEvent } from './events.ts';
import { connectKeys, type KeysClient } from './keys.ts';
import { connectLimits, type LimitsClient } from './limits.ts';
import { connectNodes, type NodesClient } from './nodes.ts';
import { connectPods, type PodsClient } from './pods.ts';
import {
  connectList,
  connectResources,
  type Listed,
  type ResourceName,
  type ResourcesOf,
} from './resource-calls.ts';
import { connectSession, type SessionClient } from './session.ts';

/** Resources with only the five verbs: templates. */
type PlainName = Exclude<ResourceName, 'pods' | 'endpoints' | 'budgets'>;
type PlainResources = { readonly [Name in PlainName]: ResourcesOf<Name> };

/** Filter of failed jobs. */
export interface FailedJobsOptions {
  /** ID or name. Default: all endpoints for whose jobs the key has `jobs:read`. */
  endpoint?: string | undefined;
  /** Only jobs of which an attempt failed with this code. */
  errorCode?: ErrorCode | undefined;
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
const OWN_CLIENTS: ReadonlySet<string> = new Set(['pods', 'endpoints', 'keys', 'budgets']);
