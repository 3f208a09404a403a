// The options of `serve`, and the options of the platform that they make.
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Log } from '../../base/log.ts';
import { readProxies } from '../../base/net/outgoing-proxy.ts';
import { SESSION_IDLE_MS, SESSION_MAX_MS, type SessionTimes } from '../../platform/defaults.ts';
import type { PlatformOptions, PlatformTls } from '../../platform/platform-options.ts';
import type { TraceOptions } from '../../platform/trace-exporter.ts';
import { EXIT } from '../command.ts';
import { inheritEnvironment, readVariable } from '../config.ts';
import {
  defineGroup,
  flag,
  integer,
  list,
  type OptionValues,
  text,
  UsageError,
} from '../options.ts';
import { logLevelOption } from '../terminal-log.ts';
import {
  containmentOptions,
  engineOptions,
  kubernetesOptions,
  readContainment,
  readWorkerEnvironment,
} from './engine-options.ts';
import {
  limitOptions,
  readCapacity,
  readQuotas,
  readRateLimits,
  readWorkerLimits,
} from './limit-options.ts';
import {
  httpBoundOptions,
  listenerOptions,
  readGrpcPort,
  readHttpBounds,
} from './listener-options.ts';
import { exitOnStoreLoss, webhookSecretFileOption } from './platform-flags.ts';
import { nodeOptions, readNodes, readStore, storeOptions } from './store-options.ts';

const HOUR_MS = 3_600_000;
const BYTES_PER_MB = 1_048_576;
/** Balancers check every few seconds; a Kubernetes cluster needs a second or two to tell its machines. */
const NODE_DELAY_MS = 5_000;
const SESSION = { min: 1, max: 30 * 86_400, unit: 's', section: 'advanced' } as const;
const MAX_HEADER_FILE_BYTES = 65_536;
const MAX_HEADERS = 32;
const HEADER_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]*)$/;

function milliseconds(help: string, fallback: number) {
  const range = { min: 1, max: 24 * HOUR_MS };
  return integer({ ...range, default: fallback, unit: 'ms', section: 'advanced', help });
}

const serverOptions = defineGroup('Endpoints, keys and log', {
  endpoint: list({
    placeholder: 'ID',
    env: 'MILLRACE_ENDPOINTS',
    sets: ['endpoints'],
    help: 'ID of an endpoint to create at the start; endpoints of earlier starts stay',
  }),
  maxAttempts: integer({
    min: 1,
    max: 100,
    help: 'failed attempts after which a job is FAILED; 1: no automatic retry; for the endpoints that this command declares; default: 3, or the value of an earlier start',
  }),
  keyFile: text({
    placeholder: 'FILE',
    sets: ['keyFile'],
    help: 'file with the admin key and the worker key; created with mode 0600 if missing; each start makes its keys valid again, even revoked ones; default: print both once',
  }),
  sessionSeconds: integer({
    ...SESSION,
    default: SESSION_MAX_MS / 1_000,
    help: 'longest time of a browser session; all nodes need the same',
  }),
  sessionIdleSeconds: integer({
    ...SESSION,
    default: SESSION_IDLE_MS / 1_000,
    help: 'a browser session without a request for this time ends; all nodes need the same',
  }),
  logLevel: logLevelOption('info'),
  shutdownDelayMs: integer({
    min: 0,
    max: 3_600_000,
    unit: 'ms',
    section: 'advanced',
    help: `time from SIGTERM to the stop: /readyz answers 503, and requests are served, so that load balancers and clients leave; default: ${NODE_DELAY_MS} with --node-url, else 0`,
  }),
});

const webhookOptions = defineGroup('Webhooks', {
  webhookSecretFile: webhookSecretFileOption,
  allowPrivateWebhooks: flag({
    help: 'send webhooks to loopback, private and link-local addresses too; use only if you trust all clients',
  }),
  webhookDns: list({
    placeholder: 'ADDRESS[:PORT]',
    help: "name server that resolves webhook receivers; default: the machine's own",
  }),
});

const traceOptions = defineGroup('Traces', {
  traceUrl: text({
    placeholder: 'URL',
    sets: ['traces.url'],
    help: 'OpenTelemetry collector to which the platform sends spans of jobs, OTLP over HTTP: http://127.0.0.1:4318; default: no traces',
  }),
  traceHeaderFile: text({
    placeholder: 'FILE',
    section: 'advanced',
    help: 'file with headers for the collector, one `Name: value` a line',
  }),
  tracePercent: integer({
    min: 0,
    max: 100,
    default: 100,
    section: 'advanced',
    sets: ['traces.ratio'],
    help: 'share of the jobs without a trace of their client that get one, percent; with a traceparent, its sampled flag decides',
  }),
});

const queueOptions = defineGroup('Queue', {
  leaseMs: milliseconds('how long a lease lasts without a renewal', 15_000),
  renewEveryMs: milliseconds(
    'interval at which workers renew their leases; less than --lease-ms',
    5_000,
  ),
  takeWaitMs: milliseconds('how long a worker waits for jobs in one call', 20_000),
  timeoutGraceMs: milliseconds(
    'time from the timeout of a job until the queue ends it, if its worker is silent',
    10_000,
  ),
  retryBaseMs: milliseconds(
    'wait before the first retry of a failed job; doubles with each failure, up to 60 s',
    1_000,
  ),
  retainRunMs: milliseconds('how long the platform keeps a job of /run after its end', HOUR_MS / 2),
  retainRunsyncMs: milliseconds(
    'how long the platform keeps a job of /runsync after its end',
    60_000,
  ),
});

export const serveOptions = {
  ...listenerOptions,
  ...storeOptions,
  ...serverOptions,
  ...nodeOptions,
  ...engineOptions,
  ...containmentOptions,
  ...kubernetesOptions,
  ...limitOptions,
  ...webhookOptions,
  ...traceOptions,
  ...queueOptions,
  ...httpBoundOptions,
};

export type ServeValues = OptionValues<typeof serveOptions>;

export interface ServeStart {
  values: ServeValues;
  tls: PlatformTls | undefined;
  log: Log;
}

/** @throws UsageError */
export function composeOptions({ log, tls, values }: ServeStart): PlatformOptions {
  const { engine, host, leaseMs, port, renewEveryMs, takeWaitMs, timeoutGraceMs } = values;
  return {
    dataFolder: resolve(values.data),
    ...readStore(values),
    host,
    port,
    nodes: readNodes(values),
    keyFile: values.keyFile,
    secretsKeyFile: values.secretsKeyFile,
    console: !values.noConsole,
    corsOrigins: values.cors,
    tls,
    grpc: readGrpcPort(values, tls),
    rateLimits: readRateLimits(values.rateLimit),
    workerLimits: readWorkerLimits(values.workerLimit),
    quotas: readQuotas(values.quota),
    sessions: readSessionTimes(values),
    listBytes: values.listMb * BYTES_PER_MB,
    bounds: readHttpBounds(values),
    compute: {
      engine,
      readVariable,
      dockerHost: values.dockerHost,
      catalogFile: values.catalog,
      capacity: readCapacity(values),
      trustUsers: values.trustUsers,
      trustKeys: values.trustKeys,
      workerUrl: values.workerUrl,
      workerListener: values.workerListener,
      podUser: values.podUser,
      workerEnvironment: readWorkerEnvironment(values.workerEnv),
      containment: readContainment(values),
    },
    log,
    onStoreLost: exitOnStoreLoss(log, values.store === undefined ? 'file' : 'database'),
    onNodeEnd: exitOnNodeEnd(log),
    storage: {
      reserveBytes: values.diskReserve * BYTES_PER_MB,
      eraseAfterMs: values.eraseAfterMs,
      checkMs: values.storeCheckMs,
    },
    endpoints: values.endpoint,
    maxAttempts: values.maxAttempts,
    webhooks: {
      chooseProxy: readProxies(inheritEnvironment({})),
      addresses: values.allowPrivateWebhooks ? 'any' : 'public',
      secretFile: values.webhookSecretFile,
      nameServers: values.webhookDns,
    },
    traces: readTraces(values),
    settings: {
      leaseMs,
      renewEveryMs,
      takeWaitMs,
      timeoutGraceMs,
      retry: { baseMs: values.retryBaseMs, maxMs: 60_000, jitter: 0.2 },
      retentionMs: { run: values.retainRunMs, runsync: values.retainRunsyncMs },
    },
  };
}

function readSessionTimes(values: ServeValues): SessionTimes {
  return { maxMs: values.sessionSeconds * 1_000, idleMs: values.sessionIdleSeconds * 1_000 };
}

/** A platform that is not one of several nodes has no other to which its clients could go. */
export function readShutdownDelay(values: ServeValues): number {
  const { nodeUrl, shutdownDelayMs } = values;
  return shutdownDelayMs ?? (nodeUrl === undefined ? 0 : NODE_DELAY_MS);
}

/** @throws UsageError */
function readTraces({
  traceHeaderFile,
  tracePercent,
  traceUrl,
}: ServeValues): TraceOptions | undefined {
  if (traceUrl === undefined) {
    if (traceHeaderFile !== undefined)
      throw new UsageError('--trace-header-file needs --trace-url');
    return undefined;
  }
  const headers = traceHeaderFile === undefined ? {} : readHeaders(traceHeaderFile);
  return { url: traceUrl, headers, ratio: tracePercent / 100 };
}

/** Errors do not show the lines: they may be secret. @throws UsageError */
function readHeaders(path: string): Record<string, string> {
  const refuse = (problem: string) => new UsageError(`--trace-header-file: ${path} ${problem}`);
  let content: string;
  try {
    content = readFileSync(path, 'utf8');
  } catch (error) {
    throw refuse(`cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (content.length > MAX_HEADER_FILE_BYTES) {
    throw refuse(`has more than ${MAX_HEADER_FILE_BYTES} bytes`);
  }
  const lines = content.split(/\r?\n/).map((line) => line.trim());
  const headers = lines.flatMap((line, index) => {
    if (line === '') return [];
    const [, name = '', value = ''] = HEADER_LINE.exec(line) ?? [];
    if (name === '') throw refuse(`line ${index + 1} must have the form \`Name: value\``);
    return [[name.toLowerCase(), value] as const];
  });
  if (headers.length > MAX_HEADERS) throw refuse(`has more than ${MAX_HEADERS} headers`);
  return Object.fromEntries(headers);
}

/** Other nodes have taken its shards over, so nothing is left to close. */
function exitOnNodeEnd(log: Log): (error: Error) => void {
  return ({ message: reason }) => {
    log.fatal({ reason }, 'this node cannot be a member of its cluster any more; exiting');
    process.exit(EXIT.failed);
  };
}
