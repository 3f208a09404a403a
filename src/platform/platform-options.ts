// The options of a platform: their defaults, and checks of some, such as those of a platform that is one of several nodes.
import type { Access } from '../api/http/auth.ts';
import { ANY_ORIGIN, findOriginProblem, MAX_ORIGINS } from '../api/http/cors.ts';
import type { HttpBounds, KeylessLimits } from '../api/limits/bounds.ts';
import type { RateLimits } from '../api/limits/rate-limit.ts';
import type { WorkerLimits } from '../api/worker/worker-allowance.ts';
import { type Log, silentLog } from '../base/log.ts';
import type { EngineKind } from '../control/endpoints/templates.ts';
import type { SessionTimes } from '../control/keys/sessions.ts';
import { type Amounts, DEFAULT_OVERCOMMIT, type Overcommit } from '../control/limits/capacity.ts';
import type { Quotas } from '../control/limits/quotas.ts';
import type { Containment } from '../engine/containment.ts';
import type { QueueSettings } from '../queue/settings.ts';
import type { StoreGuardOptions } from '../store/disk/store-guard.ts';
import type { PostgresOptions } from '../store/postgres/postgres.ts';
import type { Device } from '../wire/link/worker-link.ts';
import type { KubernetesChoice } from './files/kubernetes-file.ts';
import type { HistoryOptions } from './history/open-target.ts';
import { PlatformOptionError } from './option-error.ts';
import type { TraceOptions } from './trace-exporter.ts';

export interface PlatformOptions {
  /**
   * Folder of jobs, keys and pods; created if it is missing; one platform at a time uses it.
   * Default: the platform keeps everything in memory and loses it when it closes.
   */
  dataFolder?: string | undefined;
  /**
   * URL of a Postgres database for jobs, keys and endpoints: `postgres://USER@HOST/DATABASE`; one platform at a time
   * uses it. `dataFolder` then has only files of this machine. Default: the data folder.
   */
  store?: string | undefined;
  /** Password for `store`, if its URL has none. Default: none. */
  storePassword?: string | undefined;
  /** Times that the platform waits for `store`. Defaults: 10,000, 15,000, 30,000 and 5,000 ms. */
  storeLimits?: StoreLimits | undefined;
  /** This platform is one of several nodes on the database of `store`. Default: it is the only one. */
  nodes?: NodeOptions | undefined;
  /** Address to listen on. Default 127.0.0.1. */
  host?: string | undefined;
  /** TCP port. Default 0, a free one. */
  port?: number | undefined;
  /** `keyless-loopback`: callers on this machine need no key. Default `keys`. */
  access?: Access | undefined;
  /** Serves the web console below `/console/`. Default false. */
  console?: boolean | undefined;
  /**
   * Origins whose web pages may call the API (CORS), such as `https://app.example.com`; at most 100. `*`, every
   * page, needs the access `keys`. Default: none.
   */
  corsOrigins?: readonly string[] | undefined;
  /**
   * File with the admin key and the worker key; created with mode 0600 if it is missing. Default:
   * the first start creates both keys, and later starts do not know them.
   */
  keyFile?: string | undefined;
  /** PEM texts. Default: plain HTTP. */
  tls?: PlatformTls | undefined;
  /** Serves workers over gRPC too. Default: only over HTTP. */
  grpc?: Partial<GrpcPort> | undefined;
  /** IDs of endpoints to declare; those of earlier starts stay. Default: none. */
  endpoints?: readonly string[] | undefined;
  /**
   * Failed attempts after which a job of a declared endpoint is FAILED. Default: the endpoint's
   * setting, or 3.
   */
  maxAttempts?: number | undefined;
  /** A pino logger. Default: no log. */
  log?: Log | undefined;
  /** Limits of the calls of each user. Default: none. */
  rateLimits?: RateLimits | undefined;
  /** Limits of the calls and worker IDs of each worker key. Default: none. */
  workerLimits?: WorkerLimits | undefined;
  /**
   * File of keys that encrypt secrets of registries and variables of templates and pods: 32 bytes in base64 per line, the
   * current one first. Default: none; users cannot create registries, and variables are stored in the clear.
   */
  secretsKeyFile?: string | undefined;
  /** Quotas of one user. Default: 100 endpoints, 200 templates, 200 keys, 100 pods. */
  quotas?: Quotas | undefined;
  /** When browser sessions end. Default: 7 days after the sign-in, 12 hours after the last request. */
  sessions?: SessionTimes | undefined;
  /** Most bytes of JSON in one page of a list. Default 4 MB. */
  listBytes?: number | undefined;
  /** Bounds on the requests and connections of callers. Defaults: see `millrace serve --help`. */
  bounds?: Partial<HttpBounds> | undefined;
  /** Times and sizes of the queue. Defaults: see `millrace serve --help`. */
  settings?: Partial<QueueSettings> | undefined;
  /** Deliveries to the webhooks of jobs. */
  webhooks?: WebhookOptions | undefined;
  /** Files of the history of jobs. Default: no job has a history. */
  history?: HistoryOptions | undefined;
  /** Sends spans of jobs to an OpenTelemetry collector. Default: no spans. */
  traces?: TraceOptions | undefined;
  /**
   * Engine for pods and for the workers of endpoints. Default: none; workers connect by themselves.
   */
  compute?: ComputeChoice | undefined;
  /** Maintenance of the database. Defaults: no reserve, 30,000 ms, 60,000 ms. */
  storage?: StorageOptions | undefined;
  /**
   * Called when the disk has failed to store a commit, or when another program has written to the Postgres database:
   * from then on every call that needs the database fails. End the process and start a new one, which reads what the
   * database has. Default: nothing happens.
   */
  onStoreLost?: (() => void) | undefined;
  /**
   * Called when this node can never serve again: another node has had its URL for `storeLimits.lockWaitMs`, or a newer
   * version has changed the schema while this node was paused. End the process. Default: nothing happens.
   */
  onNodeEnd?: ((error: Error) => void) | undefined;
}

export interface PlatformTls {
  cert: string;
  key: string;
  /**
   * File that the key was read from; the user of pods must not be able to read it. Default: none.
   */
  keyFile?: string | undefined;
}

export interface GrpcPort {
  port: number;
  host: string;
  keylessLimits: KeylessLimits;
  tls: { cert: string; key: string; clientCa?: string } | undefined;
}

export interface NodeOptions {
  /** How other nodes reach this one: `http://10.0.0.5:8091`. */
  url: string;
  /** Address and port to listen on for other nodes. Default: those of `url`. */
  listen?: { host: string; port: number } | undefined;
  /** Secrets that nodes send each other: the first is sent, all are accepted. From 32 to 1,024 visible ASCII characters each. */
  secrets: readonly string[];
  /** File that they were read from; the user of pods must not be able to read it. Default: none. */
  secretFile?: string | undefined;
  /**
   * http or https URL at which clients and workers reach this node directly, not through a load balancer. Workers then call
   * the node that owns their endpoint. Default: workers use only their configured URL.
   */
  advertiseUrl?: string | undefined;
  /** grpc or grpcs URL at which workers reach this node directly. Default: none. */
  advertiseGrpcUrl?: string | undefined;
  /** Number of shards, which the first start fixes for good. Default 16. */
  shards?: number | undefined;
  /**
   * Time after which other nodes replace the workers of a node that is gone, ms; 0: never. Default 300,000.
   */
  replaceWorkersMs?: number | undefined;
}

export interface WebhookOptions {
  /** `any`: also non-public addresses. Default `public`. */
  addresses?: 'public' | 'any' | undefined;
  /** File of secrets that sign webhooks. Default: `webhook-secrets` in the data folder. */
  secretFile?: string | undefined;
  /** Name servers for receivers, `address` or `address:port`. Default: the machine's. */
  nameServers?: readonly string[] | undefined;
  /** The proxy of a receiver's URL; undefined: none. Default: no proxies. */
  chooseProxy?: ((url: URL) => URL | undefined) | undefined;
}

/** Maximum times to connect to Postgres, of its lock at the start, of a statement, and of calls without a connection. */
export type StoreLimits = Partial<
  Pick<PostgresOptions, 'connectTimeoutMs' | 'lockWaitMs' | 'statementTimeoutMs' | 'waitMs'>
>;

/** Disk space to reserve, and intervals of erasing and checking; see `StoreGuardOptions`. */
export type StorageOptions = Partial<
  Pick<StoreGuardOptions, 'reserveBytes' | 'eraseAfterMs' | 'checkMs'>
>;

export interface ComputeChoice {
  /** Needs `dataFolder` unless it is `none`. */
  engine: EngineKind;
  /** Address of Docker. Default: its local socket. */
  dockerHost?: string | undefined;
  /** Engine `kubernetes`: its cluster. Default: the cluster in which the platform runs. */
  kubernetes?: KubernetesChoice | undefined;
  /**
   * JSON file with the hardware for pods and its prices. Default: the machine's hardware, free of
   * charge.
   */
  catalogFile?: string | undefined;
  /** Reads a variable that the catalog names for a password. Default: no variable is set. */
  readVariable?: ((name: string) => string | undefined) | undefined;
  /** Devices of this machine for pods. Default: none. */
  devices?: readonly Device[] | undefined;
  /**
   * Resources of all pods together. Default: this machine's memory, 8 × its vCPUs and 4 × its disk.
   */
  capacity?: CapacityChoice | undefined;
  /** Engine `process`: users other than the owner may run pods. Default false. */
  trustUsers?: boolean | undefined;
  /** Engine `process`: keys without `admin` may choose the code that runs. Default false. */
  trustKeys?: boolean | undefined;
  /**
   * Engine `process`, platform run by root: user of pods, a name or UID[:GID]. Default: nobody, if
   * possible.
   */
  podUser?: string | undefined;
  /** Engine `process`: variables of the workers of endpoints, which templates override. Default: none. */
  workerEnvironment?: Readonly<Record<string, string>> | undefined;
  /** Engine `docker`: what containers may do. */
  containment?: Containment | undefined;
  /**
   * URL at which started workers reach the platform. Default: the platform's own URL; in containers, unless `host` is
   * another address of the machine, `host.docker.internal` with the platform's port.
   */
  workerUrl?: string | undefined;
  /**
   * Engine `docker`, if workers call `host.docker.internal` and `host` is a loopback address: `bridge`, listen also on
   * the address that this name has. Default `bridge`.
   */
  workerListener?: 'bridge' | 'none' | undefined;
}

/** Undefined amounts are measured. */
export interface CapacityChoice {
  overcommit: Overcommit;
  machine: Partial<Amounts>;
}

type Complete = 'host' | 'port' | 'access' | 'endpoints' | 'log' | 'webhooks' | 'compute';

/** The options with all defaults that do not depend on the machine. */
export type CompleteOptions = Omit<PlatformOptions, Complete> & {
  [Name in Complete]: NonNullable<PlatformOptions[Name]>;
} & { storage: Required<StorageOptions>; compute: { capacity: CapacityChoice } };

export function completeOptions(options: PlatformOptions): CompleteOptions {
  const { access, compute, endpoints, host, log, port, storage, webhooks } = options;
  return {
    ...options,
    access: access ?? 'keys',
    compute: {
      ...(compute ?? { engine: 'none' }),
      capacity: compute?.capacity ?? { overcommit: DEFAULT_OVERCOMMIT, machine: {} },
    },
    endpoints: endpoints ?? [],
    host: host ?? '127.0.0.1',
    log: log ?? silentLog,
    port: port ?? 0,
    storage: { reserveBytes: 0, eraseAfterMs: 30_000, checkMs: 60_000, ...storage },
    webhooks: webhooks ?? {},
  };
}

/** @throws PlatformOptionError */
export function checkCorsOrigins({
  access,
  corsOrigins = [],
}: Pick<CompleteOptions, 'access' | 'corsOrigins'>): void {
  const refuse = (problem: string) => new PlatformOptionError('invalid', 'corsOrigins', problem);
  if (corsOrigins.length > MAX_ORIGINS) {
    throw refuse(`${corsOrigins.length} origins, at most ${MAX_ORIGINS}`);
  }
  const problem = corsOrigins.map(findOriginProblem).find((found) => found !== undefined);
  if (problem !== undefined) throw refuse(problem);
  if (access === 'keys' || !corsOrigins.includes(ANY_ORIGIN)) return;
  throw refuse(
    'calls from this machine need no key, so with * every web page could use the platform; name the origin of your page',
  );
}

/** Of a secret, characters. It travels in a header, with others. */
const MIN_SECRET = 32;
const MAX_SECRET = 1_024;
/** Of an advertised URL, characters: workers refuse longer ones. */
const MAX_ADVERTISED = 512;
const SECRET = new RegExp(`^[\\x21-\\x7e]{${MIN_SECRET},${MAX_SECRET}}$`);

/** Of a platform that is one of several nodes on a Postgres database. */
export interface NodePlatformOptions extends CompleteOptions {
  nodes: NodeOptions;
  store: string;
  webhooks: WebhookOptions & { secretFile: string };
}

/**
 * The name by which nodes find the pods of their cluster, which is one machine of all of them. Undefined: each node has
 * a machine of its own.
 */
export function findClusterName({
  engine,
  kubernetes,
}: CompleteOptions['compute']): string | undefined {
  return engine === 'kubernetes' ? kubernetes?.settings?.platform : undefined;
}

/** Undefined: the platform is no node. @throws PlatformOptionError */
export function checkNodeOptions(options: CompleteOptions): NodePlatformOptions | undefined {
  const { nodes, store, webhooks } = options;
  if (!nodes) return undefined;
  if (store === undefined) {
    throw refuse('nodes', 'needs a Postgres database, which the nodes share: set `store`');
  }
  const { secretFile } = webhooks;
  if (secretFile === undefined) {
    throw refuse(
      'webhooks.secretFile',
      'is needed with `nodes`, with the same content on all of them',
    );
  }
  if (options.compute.engine === 'kubernetes' && findClusterName(options.compute) === undefined) {
    const problem = 'needs `platform` in its settings with nodes: the same name for all of them';
    throw refuse('compute.kubernetes.settings', problem);
  }
  checkSecrets(nodes.secrets);
  checkAdvertised('nodes.advertiseUrl', nodes.advertiseUrl, ['http:', 'https:']);
  checkAdvertised('nodes.advertiseGrpcUrl', nodes.advertiseGrpcUrl, ['grpc:', 'grpcs:']);
  return { ...options, nodes, store, webhooks: { ...webhooks, secretFile } };
}

/** Never shows a secret. @throws PlatformOptionError */
export function checkSecrets(secrets: readonly string[]): void {
  if (secrets.length > 0 && secrets.every((secret) => SECRET.test(secret))) return;
  const problem = `needs at least one secret, each of ${MIN_SECRET} to ${MAX_SECRET} visible ASCII characters`;
  throw refuse('nodes.secrets', problem);
}

/** @throws PlatformOptionError */
export function checkAdvertised(
  option: string,
  given: string | undefined,
  schemes: readonly [string, string],
): void {
  if (given === undefined) return;
  const url = given.length <= MAX_ADVERTISED ? URL.parse(given) : null;
  const isPlain = url && !url.username && !url.password && !url.search && !url.hash;
  const hasPath = url && schemes[0] === 'grpc:' && !['', '/'].includes(url.pathname);
  // It travels in a header.
  const isText = /^[\x21-\x7e]+$/.test(given);
  if (isPlain && isText && url.hostname && schemes.includes(url.protocol) && !hasPath) return;
  const scheme = schemes.map((each) => each.slice(0, -1)).join(' or ');
  throw refuse(
    option,
    `must be an ${scheme} URL of at most ${MAX_ADVERTISED} ASCII characters without user, query and fragment${schemes[0] === 'grpc:' ? ', and without a path' : ''}`,
  );
}

function refuse(option: string, problem: string): PlatformOptionError {
  return new PlatformOptionError('invalid', option, problem);
}
