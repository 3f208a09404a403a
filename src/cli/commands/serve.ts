// `millrace serve`: runs the platform until a signal ends it.
import { flushCompileCache } from 'node:module';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Log } from '../../base/log.ts';
import { letHeapGrow, optimizeEarly } from '../../base/memory/v8-flags.ts';
import { readProxies } from '../../base/net/outgoing-proxy.ts';
import { packageVersion } from '../../base/package-info.ts';
import { countLeftPods, type LeftPods } from '../../platform/compute/left-pods.ts';
import { LIST_BYTES } from '../../platform/defaults.ts';
import { openPlatform, type RunningPlatform } from '../../platform/platform.ts';
import type { PlatformOptions, PlatformTls } from '../../platform/platform-options.ts';
import { type Command, EXIT } from '../command.ts';
import { inheritEnvironment, readVariable } from '../config.ts';
import { checkArguments, parseOptions } from '../option-parser.ts';
import {
  engineOptions,
  readContainment,
  readKubernetes,
  readWorkerEnvironment,
  workerEnvOption,
} from '../options/engine-options.ts';
import { grpcOptions, readGrpcPort } from '../options/grpc-options.ts';
import { httpBoundOptions, readHttpBounds } from '../options/http-bounds.ts';
import {
  capacityOptions,
  quotaOption,
  rateLimitOption,
  readCapacity,
  readQuotas,
  readRateLimits,
  readWorkerLimits,
  workerLimitOption,
} from '../options/limit-options.ts';
import { nodeOptions, readNodes } from '../options/node-options.ts';
import {
  catalogOption,
  corsOption,
  exitOnStoreLoss,
  explainPlatformError,
  maxAttemptsOption,
  noConsoleOption,
  portOption,
  secretsKeyFileOption,
  webhookSecretFileOption,
} from '../options/platform-flags.ts';
import { readSessionTimes, sessionOptions } from '../options/session-options.ts';
import { readShutdownDelay, shutdownOptions } from '../options/shutdown-options.ts';
import { readStore, storeOptions } from '../options/store-options.ts';
import { CertificateFiles, readTls, tlsOptions } from '../options/tls-options.ts';
import { readTraces, traceOptions } from '../options/trace-options.ts';
import { flag, integer, list, type OptionValues, text, UsageError } from '../options.ts';
import { outliveOutput, print } from '../output.ts';
import { exitOn, listenForStop, type StopSignal, type StopSignals } from '../stop-signals.ts';
import { createTerminalLog, logLevelOption } from '../terminal-log.ts';
import { findUsableDevices } from '../worker/worker-devices.ts';

/** Names of endpoints that the start prints. */
const SHOWN_ENDPOINTS = 20;
const HOUR_MS = 3_600_000;
const BYTES_PER_MB = 1_048_576;

function milliseconds(help: string, fallback: number) {
  const range = { min: 1, max: 24 * HOUR_MS };
  return integer({ ...range, default: fallback, placeholder: 'MS', section: 'advanced', help });
}

const options = {
  port: portOption,
  host: text({
    default: '127.0.0.1',
    placeholder: 'HOST',
    env: 'MILLRACE_HOST',
    help: 'address to listen on; 0.0.0.0 for all of IPv4',
  }),
  data: text({
    default: './.millrace',
    placeholder: 'DIR',
    env: 'MILLRACE_DATA',
    help: 'data folder: jobs, keys, pods; one platform at a time; with --store only files of this machine',
  }),
  ...storeOptions,
  ...nodeOptions,
  endpoint: list({
    placeholder: 'ID',
    env: 'MILLRACE_ENDPOINTS',
    help: 'ID of an endpoint to create at the start; endpoints of earlier starts stay',
  }),
  maxAttempts: maxAttemptsOption,
  keyFile: text({
    placeholder: 'FILE',
    env: 'MILLRACE_KEY_FILE',
    help: 'file with the admin key and the worker key; created with mode 0600 if missing; each start makes its keys valid again, even revoked ones; default: print both once',
  }),
  noConsole: noConsoleOption,
  cors: corsOption,
  ...sessionOptions,
  ...tlsOptions,
  ...grpcOptions,
  ...engineOptions,
  catalog: catalogOption,
  secretsKeyFile: secretsKeyFileOption,
  ...workerEnvOption,
  ...capacityOptions,
  rateLimit: rateLimitOption,
  workerLimit: workerLimitOption,
  quota: quotaOption,
  listMb: integer({
    min: 1,
    max: 64,
    default: LIST_BYTES / BYTES_PER_MB,
    placeholder: 'MB',
    section: 'advanced',
    help: 'maximum size of one page of a list, MB of JSON; `cursor` fetches the next page',
  }),
  webhookSecretFile: webhookSecretFileOption,
  allowPrivateWebhooks: flag({
    env: 'MILLRACE_ALLOW_PRIVATE_WEBHOOKS',
    help: 'send webhooks to loopback, private and link-local addresses too; use only if you trust all clients',
  }),
  webhookDns: list({
    placeholder: 'ADDRESS[:PORT]',
    env: 'MILLRACE_WEBHOOK_DNS',
    help: "name server that resolves webhook receivers; default: the machine's own",
  }),
  ...traceOptions,
  diskReserve: integer({
    ...{ min: 0, max: 65_536, default: 32, placeholder: 'MB', section: 'advanced' },
    env: 'MILLRACE_DISK_RESERVE',
    help: 'disk space reserved for ending and deleting jobs while the disk is full, MB; 0: no reserve',
  }),
  eraseAfterMs: milliseconds(
    'time from a deletion until an idle platform erases the deleted data from its files, ms',
    30_000,
  ),
  storeCheckMs: integer({
    ...{ min: 0, max: 24 * HOUR_MS, default: 60_000, placeholder: 'MS', section: 'advanced' },
    help: 'maximum time for the check of the database after the start, ms; 0: no check',
  }),
  logLevel: logLevelOption('info'),
  leaseMs: milliseconds('how long a lease lasts without a renewal, ms', 15_000),
  renewEveryMs: milliseconds(
    'interval at which workers renew their leases, ms; less than --lease-ms',
    5_000,
  ),
  takeWaitMs: milliseconds('how long a worker waits for jobs in one call, ms', 20_000),
  timeoutGraceMs: milliseconds(
    'time from the timeout of a job until the queue ends it, if its worker is silent, ms',
    10_000,
  ),
  retryBaseMs: milliseconds(
    'wait before the first retry of a failed job, ms; doubles with each failure, up to 60 s',
    1_000,
  ),
  retainRunMs: milliseconds(
    'how long the platform keeps a job of /run after its end, ms',
    HOUR_MS / 2,
  ),
  retainRunsyncMs: milliseconds(
    'how long the platform keeps a job of /runsync after its end, ms',
    60_000,
  ),
  ...shutdownOptions,
  ...httpBoundOptions,
};

export const serveCommand: Command = {
  name: 'millrace serve',
  description: [
    'Serves the job API and the worker API under /v2/<endpoint>/; pods, endpoints, templates, the catalog ' +
      'and keys under /v1 and /v2; and /openapi.json, /healthz, /readyz and /metrics. ' +
      'Pods and the workers of endpoints run on the --engine, and keep running while the platform is down. ' +
      'Everything that the platform has acknowledged is on disk: you may kill and restart the platform at any time.',
    'The first start creates an admin key and a worker key. It prints them once, or writes them to ' +
      '--key-file as the lines MILLRACE_ADMIN_KEY=… and MILLRACE_WORKER_KEY=…. With --endpoint, the worker ' +
      'key works only for the declared endpoints.',
    'On SIGTERM or SIGINT the platform answers its long polls and streams, then exits. A second signal, a ' +
      'second or more later, ends it at once. With --shutdown-delay-ms the platform first serves requests for that time, ' +
      'and the second signal ends this time only. No signal loses anything acknowledged. Pods keep running; ' +
      '`millrace down` stops the platform and its pods.',
  ],
  positionals: [],
  options,
  examples: [
    'millrace serve --endpoint echo --endpoint image',
    'millrace serve --host 0.0.0.0 --data /var/lib/millrace --key-file /etc/millrace/keys',
    'millrace serve --tls-cert cert.pem --tls-key key.pem --port 8443',
    'millrace serve --grpc-port 8001',
    'millrace serve --store postgres://millrace@db.example.com/millrace?sslmode=verify-full',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'stopped by a signal' },
    {
      code: EXIT.failed,
      meaning:
        'the port, the data folder or the database is in use, or cannot be used; the disk failed to store a commit; or a second SIGTERM or SIGHUP',
    },
    { code: EXIT.usage, meaning: 'wrong usage' },
    { code: EXIT.interrupted, meaning: 'a second Ctrl-C' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  outliveOutput();
  letHeapGrow();
  const { values, positionals } = parseOptions(options, args);
  checkArguments([], positionals);
  const tls = readTls(values);
  const { leaseMs, renewEveryMs } = values;
  if (renewEveryMs >= leaseMs) {
    throw new UsageError(`--renew-every-ms: must be less than --lease-ms, which is ${leaseMs}`);
  }
  const signals = listenForStop();
  const delay = new ShutdownDelay(signals);
  const log = createTerminalLog(values.logLevel);
  const { grpcClientCa, tlsCert, tlsKey } = values;
  const certificates = tls && new CertificateFiles([tlsCert, tlsKey, grpcClientCa], log);
  const platform = await open({ values, tls, log });
  try {
    certificates?.watch(() => renewCertificates(values, platform));
    const declared = listNames(platform.endpoints.all()) || NO_ENDPOINTS;
    const ready = `Millrace ${packageVersion()} is ready at ${platform.url}`;
    const grpc = platform.grpcUrl === undefined ? [] : [`Workers over gRPC at ${platform.grpcUrl}`];
    const keys = describeKeys(platform, values.keyFile);
    void print(`${[ready, ...grpc, declared, ...keys].join('\n')}\n`);
    // Not at the end, because a killed platform has none.
    flushCompileCache();
    optimizeEarly();
    await signals.first;
    await letClientsLeave({ platform, delay, ms: readShutdownDelay(values), log });
    log.info('platform stopping');
  } finally {
    certificates?.stop();
    await platform.close();
    signals.release();
  }
  const { dockerHost, engine } = values;
  const kubernetes = readKubernetes(values);
  await tellLeftPods({
    kind: engine,
    dockerHost,
    kubernetes,
    dataFolder: resolve(values.data),
    log,
  });
  return EXIT.ok;
}

/** @throws UsageError, and the error of the TLS library */
function renewCertificates(values: OptionValues<typeof options>, platform: RunningPlatform): void {
  const tls = readTls(values);
  if (tls) platform.useCertificate({ ...tls, ...readGrpcPort(values, tls)?.tls });
}

interface Leaving {
  platform: RunningPlatform;
  delay: ShutdownDelay;
  ms: number;
  log: Log;
}

async function letClientsLeave({ delay, log, ms, platform }: Leaving): Promise<void> {
  if (ms === 0) return;
  log.info({ delayMs: ms }, 'platform shutdown announced');
  platform.announceShutdown();
  await delay.wait(ms);
}

interface Start {
  values: OptionValues<typeof options>;
  tls: PlatformTls | undefined;
  log: Log;
}

/** @throws UsageError, CommandError */
async function open(start: Start): Promise<RunningPlatform> {
  const given = composeOptions(start);
  const { engine } = start.values;
  try {
    const kubernetes = readKubernetes(start.values);
    const own = engine === 'none' || kubernetes ? [] : await findUsableDevices(start.log);
    const devices = kubernetes?.devices ?? own;
    const compute = { ...given.compute, engine, devices, kubernetes };
    return await openPlatform({ ...given, compute });
  } catch (error) {
    throw explainPlatformError(error);
  }
}

/** @throws UsageError */
function composeOptions({ log, tls, values }: Start): PlatformOptions {
  const { engine, host, leaseMs, port, renewEveryMs, takeWaitMs, timeoutGraceMs } = values;
  return {
    ...{ dataFolder: resolve(values.data), ...readStore(values), host, port },
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
      ...{ engine, readVariable },
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
      ...{ leaseMs, renewEveryMs, takeWaitMs, timeoutGraceMs },
      retry: { baseMs: values.retryBaseMs, maxMs: 60_000, jitter: 0.2 },
      retentionMs: { run: values.retainRunMs, runsync: values.retainRunsyncMs },
    },
  };
}

const NO_ENDPOINTS =
  'No endpoint exists yet; create one with `millrace deploy handler.ts` or `millrace endpoints create`, or declare one with --endpoint ID';

/** An empty text without endpoints. */
export function listNames(endpoints: readonly LiveEndpoint[]): string {
  const names = endpoints.map(
    ({ deployment, id, settings }) => deployment?.name ?? settings.name ?? id,
  );
  const more = names.length - SHOWN_ENDPOINTS;
  const shown = names.slice(0, SHOWN_ENDPOINTS).join(', ');
  return shown && `Endpoints: ${shown}${more > 0 ? ` and ${more} more` : ''}`;
}

type LiveEndpoint = ReturnType<RunningPlatform['endpoints']['all']>[number];

function describeKeys({ firstKeys }: RunningPlatform, keyFile: string | undefined): string[] {
  if (!firstKeys) return [];
  const { admin, origin, worker } = firstKeys;
  if (origin !== 'generated') {
    return [`Keys ${origin === 'written' ? 'made and written to' : 'read from'} ${keyFile}`];
  }
  return [
    'These keys are shown only once:',
    `MILLRACE_ADMIN_KEY=${admin}`,
    `MILLRACE_WORKER_KEY=${worker}`,
  ];
}

export class ShutdownDelay {
  #waiting: AbortController | undefined;

  /** A second signal ends the wait or, outside it, the process; a third one ends the process. */
  constructor(signals: StopSignals, exit: (signal: StopSignal) => void = exitOn) {
    void signals.second.then((signal) => {
      if (this.#waiting) this.#waiting.abort();
      else exit(signal);
    });
    void signals.third.then(exit);
  }

  /** Resolves after this time, or with the second signal. */
  async wait(ms: number): Promise<void> {
    const waiting = new AbortController();
    this.#waiting = waiting;
    await sleep(ms, undefined, { signal: waiting.signal }).catch(() => {});
    this.#waiting = undefined;
  }
}

export async function tellLeftPods(place: LeftPods): Promise<void> {
  const pods = await countLeftPods(place);
  if (pods === 0) return;
  place.log.info(
    { pods },
    'pods keep running without the platform; stop them with `millrace down`, or start the platform again',
  );
}

/** Other nodes have taken its shards over, so nothing is left to close. */
export function exitOnNodeEnd(log: Log): (error: Error) => void {
  return ({ message: reason }) => {
    log.fatal({ reason }, 'this node cannot be a member of its cluster any more; exiting');
    process.exit(EXIT.failed);
  };
}
