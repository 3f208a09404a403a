// The options of the API server, with their defaults.
import type { Registry } from 'prom-client';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Balancer } from '../control/balancing/balancer.ts';
import type { Billing } from '../control/billing/billing.ts';
import type { Endpoints } from '../control/endpoints/endpoints.ts';
import type { Keys } from '../control/keys/keys.ts';
import type { CodeAccess } from '../control/keys/rights.ts';
import type { Sessions } from '../control/keys/sessions.ts';
import type { Quotas } from '../control/limits/quotas.ts';
import type { Pods } from '../control/pods/pods.ts';
import type { Decisions } from '../control/scaling/decisions.ts';
import type { ServedResource, SpecResources } from '../control/served-resources.ts';
import type { Versions } from '../control/versions/versions.ts';
import type { ReadActivity } from '../queue/activity/activity.ts';
import type { Queues } from '../queue/queues.ts';
import type { UseCounts } from '../wire/resources/limits.ts';
import type { NodeRecord } from '../wire/resources/nodes.ts';
import type { ForwardingOptions } from './forwarding/forwarding-options.ts';
import type { Access } from './http/auth.ts';
import type { ServedRequest } from './http/guard.ts';
import type { HttpBounds } from './limits/bounds.ts';
import type { RateGate } from './limits/rate-limit.ts';
import type { StoreStatus } from './metrics/store-status.ts';
import type { ReadFailed } from './overviews.ts';
import type { AboutPlatform } from './routes/session-routes.ts';
import type { CatalogServices } from './routes/system-routes.ts';
import type { ScheduleHost } from './schedules.ts';
import type { WorkerAllowance } from './worker/worker-allowance.ts';

export interface ApiServerOptions {
  queue: Queues;
  keys: Keys;
  /** Sessions of browsers. Default: none. */
  sessions?: Sessions | undefined;
  endpoints: Endpoints;
  /** Default: no catalog and no stored resources. */
  resources?: CatalogServices & {
    served: readonly ServedResource[];
    /** For adapters, which show the records of `served` in another form. */
    records: Pick<SpecResources, 'networkVolumes' | 'registries' | 'templates'>;
    decisions: Decisions;
    versions: Versions;
    billing: Billing;
  };
  /** Default: no engine. */
  pods?: Pods | undefined;
  /** Default: no load-balancing endpoints. */
  balancer?: Balancer | undefined;
  log: Log;
  clock: Clock;
  host: string;
  /** 0 selects a free port. */
  port: number;
  /** PEM. Default: plain HTTP. */
  tls?: { cert: string; key: string };
  access: Access;
  /** Folder of the built console. Default: no console. */
  consoleFolder?: string | undefined;
  /** Origins whose pages may call the API, or `*`. Default: none. */
  corsOrigins?: readonly string[] | undefined;
  /** Default: users' code cannot read the platform's keys. */
  codeAccess?: CodeAccess | undefined;
  /** Most bytes of JSON in one page of a list. Default 4 MB. */
  listBytes?: number | undefined;
  /** For keys; the other resources have their own. Default: DEFAULT_QUOTAS. */
  quotas?: Quotas | undefined;
  /** Default: no limit for users. */
  rateGate?: RateGate | undefined;
  /** Default: no limit for workers. */
  workerAllowance?: WorkerAllowance | undefined;
  /** Called after the end of each response. Default: nothing is. */
  onAnswered?: ((request: ServedRequest) => void) | undefined;
  /** Engine and nodes of the platform. Default: no engine, one node. */
  about?: (() => AboutPlatform) | undefined;
  /** Reads what happens at endpoints, whichever node serves them. Default: from the queue. */
  readActivity?: ReadActivity | undefined;
  /** Lists failed jobs, whichever nodes serve the endpoints. Default: from the queue. */
  readFailed?: ReadFailed | undefined;
  /** What a user uses of the quotas, whichever node counts it. Default: counted here. */
  readUse?: ((userId: string) => Promise<UseCounts>) | undefined;
  /** Reaches the schedules of all queues. Default: those of the queue. */
  scheduleHost?: ScheduleHost | undefined;
  /** The nodes that serve the platform. Default: none is known. */
  listNodes?: (() => Promise<NodeRecord[]>) | undefined;
  /** Version of the package. */
  version: string;
  /** Registry for the metrics of one server. Default: a new one. */
  registry?: Registry;
  /** Read by `/readyz`, in addition to the store. Default: ready once it listens. */
  isReady?: (() => boolean) | undefined;
  /** Default: this node serves every request. */
  forwarding?: ForwardingOptions | undefined;
  /** Bounds on callers; see bounds.ts for the defaults. */
  bounds?: Partial<HttpBounds> | undefined;
  /** Read by `/readyz` and `/metrics`. Default: a store without a file. */
  store?: StoreStatus;
  /** How long `close` waits for running responses before it breaks them, ms. Default 5,000. */
  closeMs?: number;
}
