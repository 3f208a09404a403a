// The options of a platform, and what each is when it is left out.
import type { Access } from '../api/http/auth.ts';
import type { HttpBounds } from '../api/http/bounds.ts';
import type { RateLimits } from '../api/http/rate-windows.ts';
import type { WorkerLimits } from '../api/routes/worker-limits.ts';
import { type Log, silentLog } from '../base/log.ts';
import { DEFAULT_OVERCOMMIT } from '../control/limits/capacity.ts';
import type { Quotas } from '../control/limits/quotas.ts';
import type { Containment } from '../engine/docker/containment.ts';
import type { QueueSettings } from '../queue/settings.ts';
import type { StoreGuardOptions } from '../store/disk/store-guard.ts';
import type { Device } from '../wire/link/worker-link.ts';
import type { CapacityChoice } from './capacity.ts';
import type { EngineKind } from './engine.ts';
import type { GrpcPort } from './grpc-port.ts';

export interface PlatformOptions {
  /**
   * Folder of jobs, keys and pods; made if it is missing; one platform at a time uses it. Default: the
   * platform keeps everything in memory, and loses it when it closes.
   */
  dataFolder?: string | undefined;
  /** Address to listen on. Default 127.0.0.1. */
  host?: string | undefined;
  /** TCP port. Default 0, a free one. */
  port?: number | undefined;
  /** `keyless-loopback`: callers on this machine need no key. Default `keys`. */
  access?: Access | undefined;
  /**
   * File with the admin key and the worker key; made, with mode 0600, if it is missing. Default: the
   * first start makes both keys, and later starts do not know them any more.
   */
  keyFile?: string | undefined;
  /** PEM texts. Default: plain HTTP. */
  tls?: PlatformTls | undefined;
  /** Serve workers over gRPC too. Default: workers come over HTTP alone. */
  grpc?: Partial<GrpcPort> | undefined;
  /** Names of endpoints to declare; those of earlier starts stay. Default: none. */
  endpoints?: readonly string[] | undefined;
  /** Failures after which a job of a declared endpoint is FAILED. Default: what it has, or 3. */
  maxAttempts?: number | undefined;
  /** A pino logger. Default: no log. */
  log?: Log | undefined;
  /** Calls of each user. Default: as many as they like. */
  rateLimits?: RateLimits | undefined;
  /** Calls and worker ids of each worker key. Default: as many as they like. */
  workerLimits?: WorkerLimits | undefined;
  /** What one user may have. Default: 100 endpoints, 200 templates, 200 keys, 100 pods. */
  quotas?: Quotas | undefined;
  /** Bytes of JSON in one page of a list, at most. Default 4 MB. */
  listBytes?: number | undefined;
  /** What callers may send and hold open. Defaults: as `millrace serve --help` shows them. */
  bounds?: Partial<HttpBounds> | undefined;
  /** Times and sizes of the queue. Defaults: as `millrace serve --help` shows them. */
  settings?: Partial<QueueSettings> | undefined;
  /** Deliveries to the webhooks of jobs. */
  webhooks?: WebhookOptions | undefined;
  /** What runs pods and the workers of endpoints. Default: nothing does; workers connect by themselves. */
  compute?: ComputeChoice | undefined;
  /** Care of the database. Defaults: no reserve, 30,000 ms, 60,000 ms. */
  storage?: StorageOptions | undefined;
}

export interface PlatformTls {
  cert: string;
  key: string;
  /** Where the key was read from: the user of pods must not be able to read it. Default: not a file. */
  keyFile?: string | undefined;
}

export interface WebhookOptions {
  /** `any`: also addresses that are not public. Default `public`. */
  addresses?: 'public' | 'any' | undefined;
  /** Secrets that sign webhooks. Default: `webhook-secrets` in the data folder. */
  secretFile?: string | undefined;
  /** Name servers for receivers, `address` or `address:port`. Default: those of the machine. */
  nameServers?: readonly string[] | undefined;
}

/** Disk space to reserve, and the pace of erasing and checking; see `StoreGuardOptions`. */
export type StorageOptions = Partial<
  Pick<StoreGuardOptions, 'reserveBytes' | 'eraseAfterMs' | 'checkMs'>
>;

export interface ComputeChoice {
  /** Needs `dataFolder` if it is not `none`. */
  engine: EngineKind;
  /** Address of Docker. Default: its local socket. */
  dockerHost?: string | undefined;
  /** JSON of what pods may have and what it costs. Default: what the machine has, for nothing. */
  catalogFile?: string | undefined;
  /** Reads a variable that the catalogue names for a password. Default: none is set. */
  readVariable?: ((name: string) => string | undefined) | undefined;
  /** Of this machine, that pods may be given. Default: none. */
  devices?: readonly Device[] | undefined;
  /** What all pods together may ask for. Default: this machine, 8 × its vCPUs and 4 × its disk. */
  capacity?: CapacityChoice | undefined;
  /** Engine `process`: let users other than the owner run pods. Default false. */
  trustUsers?: boolean | undefined;
  /** Engine `process`: let keys without `admin` say what code is run. Default false. */
  trustKeys?: boolean | undefined;
  /** Engine `process`, platform run by root: user of pods, a name or UID[:GID]. Default: nobody, if possible. */
  podUser?: string | undefined;
  /** Engine `docker`: what containers may do. */
  containment?: Containment | undefined;
  /** URL at which workers that the platform starts reach it. Default: its own. */
  workerUrl?: string | undefined;
}

type Complete = 'host' | 'port' | 'access' | 'endpoints' | 'log' | 'webhooks' | 'compute';

/** With a value wherever a default does not depend on the machine. */
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
