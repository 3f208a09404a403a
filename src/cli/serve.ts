// `millrace serve`: the platform alone, until it is told to end.
import { resolve } from 'node:path';
import { LIST_BYTES } from '../control/list-page.ts';
import { capacityOptions, readCapacity } from './capacity-options.ts';
import { catalogOption } from './catalog-file.ts';
import { type Command, EXIT } from './command.ts';
import { readContainment } from './containment-options.ts';
import { engineOptions } from './engine-options.ts';
import { grpcOptions, readGrpcPort } from './grpc-port.ts';
import { httpBoundOptions, readHttpBounds } from './http-bounds.ts';
import { useKeyFile } from './key-file.ts';
import { flag, integer, list, parseOptions, text, UsageError } from './options.ts';
import { print } from './output.ts';
import { packageVersion } from './package-info.ts';
import { readPem } from './pem-file.ts';
import { maxAttemptsOption, openPlatform, type Platform, portOption } from './platform.ts';
import { choosePodUser } from './pod-user.ts';
import { quotaOption, readQuotas } from './quotas.ts';
import {
  rateLimitOption,
  readRateLimits,
  readWorkerLimits,
  workerLimitOption,
} from './rate-limits.ts';
import { forceOnSecond, listenForStop } from './stop-signals.ts';
import { createTerminalLog, logLevelOption } from './terminal-log.ts';
import { webhookSecretFileOption } from './webhook-secrets.ts';

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
    help: 'folder for jobs and keys, of one process at a time',
  }),
  endpoint: list({
    placeholder: 'NAME',
    env: 'MILLRACE_ENDPOINTS',
    help: 'endpoint to declare; those of earlier starts stay',
  }),
  maxAttempts: maxAttemptsOption,
  keyFile: text({
    placeholder: 'FILE',
    env: 'MILLRACE_KEY_FILE',
    help: 'file of the admin and the worker key; made, mode 0600, if it is missing',
  }),
  tlsCert: text({ placeholder: 'FILE', env: 'MILLRACE_TLS_CERT', help: 'PEM; serves https' }),
  tlsKey: text({ placeholder: 'FILE', env: 'MILLRACE_TLS_KEY', help: 'PEM, beside --tls-cert' }),
  ...grpcOptions,
  ...engineOptions,
  catalog: catalogOption,
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
    help: 'size of one page of a list, MB of JSON; a longer list goes on with its cursor',
  }),
  webhookSecretFile: webhookSecretFileOption,
  allowPrivateWebhooks: flag({
    env: 'MILLRACE_ALLOW_PRIVATE_WEBHOOKS',
    help: 'webhooks may go to loopback, private and link-local addresses; for clients that you trust',
  }),
  webhookDns: list({
    placeholder: 'ADDRESS[:PORT]',
    env: 'MILLRACE_WEBHOOK_DNS',
    help: "name server for webhook receivers; repeat for several; without it the machine's own",
  }),
  diskReserve: integer({
    ...{ min: 0, max: 65_536, default: 32, placeholder: 'MB', section: 'advanced' },
    env: 'MILLRACE_DISK_RESERVE',
    help: 'disk space kept so that jobs can be ended while the disk is full, MB; 0 for none',
  }),
  eraseAfterMs: milliseconds(
    'how long after a deletion its bytes are erased from the files of an idle platform, ms',
    30_000,
  ),
  storeCheckMs: integer({
    ...{ min: 0, max: 24 * HOUR_MS, default: 60_000, placeholder: 'MS', section: 'advanced' },
    help: 'how long the database is checked for damage after the start, ms; 0 for no check',
  }),
  logLevel: logLevelOption('info'),
  leaseMs: milliseconds('how long a lease lasts that is not renewed, ms', 15_000),
  renewEveryMs: milliseconds('how often workers renew, ms', 5_000),
  takeWaitMs: milliseconds('how long a worker waits for jobs in one call, ms', 20_000),
  timeoutGraceMs: milliseconds(
    'how long after its timeout the queue itself ends a job, ms',
    10_000,
  ),
  retryBaseMs: milliseconds(
    'wait after the first failure of a job before it is tried again; doubles with each, ms',
    1_000,
  ),
  retainRunMs: milliseconds('how long a job of run stays after its end, ms', HOUR_MS / 2),
  retainRunsyncMs: milliseconds('how long a job of runsync stays after its end, ms', 60_000),
  ...httpBoundOptions,
};

export const serveCommand: Command = {
  name: 'millrace serve',
  summary: 'the platform: queues, endpoints that scale, pods; its HTTP API, the data on disk',
  description: [
    'Serves the job API under /v2/<endpoint>/, the worker API beside it, pods, endpoints, templates, ' +
      'the catalogue and keys under /v1 and /v2, and /openapi.json, /healthz, /readyz and /metrics. ' +
      'Pods and the workers of endpoints run on the --engine, and go on while this is down. What it has acknowledged is on disk; it may be killed and started again at any time.',
    'The first start makes an admin key and a worker key and prints them once, or writes them to ' +
      '--key-file as MILLRACE_ADMIN_KEY=… and MILLRACE_WORKER_KEY=… lines. With --endpoint, the worker ' +
      'key is for the endpoints that it names alone.',
    'SIGTERM and SIGINT: answers its long polls and streams, then ends. A second one, a second or ' +
      'more later, ends it at once; nothing acknowledged is lost by that either.',
  ],
  positionals: [],
  options,
  examples: [
    'millrace serve --endpoint echo --endpoint image',
    'millrace serve --host 0.0.0.0 --data /var/lib/millrace --key-file /etc/millrace/keys',
    'millrace serve --tls-cert cert.pem --tls-key key.pem --port 8443',
    'millrace serve --grpc-port 8001',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'ended as asked' },
    { code: EXIT.failed, meaning: 'the port or the data folder is in use, or cannot be used' },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  if (positionals.length > 0) throw new UsageError(`${positionals[0]}: takes no arguments`);
  const tls = readTls(values);
  const { host, port, leaseMs, renewEveryMs, takeWaitMs, timeoutGraceMs } = values;
  if (renewEveryMs >= leaseMs) {
    throw new UsageError(`--renew-every-ms: must be less than --lease-ms, which is ${leaseMs}`);
  }
  const signals = listenForStop();
  forceOnSecond(signals);
  const log = createTerminalLog(values.logLevel);
  const secretFiles = {
    '--key-file': values.keyFile,
    '--tls-key': values.tlsKey,
    '--webhook-secret-file': values.webhookSecretFile,
  };
  const dataFolder = resolve(values.data);
  const { engine } = values;
  const podUser = await choosePodUser({
    ...{ given: values.podUser, engine, dataFolder, secretFiles, log },
  });
  const platform = await openPlatform({
    dataFolder,
    host,
    port,
    access: 'keys',
    tls,
    grpc: readGrpcPort(values, tls),
    rateLimits: readRateLimits(values.rateLimit),
    workerLimits: readWorkerLimits(values.workerLimit),
    quotas: readQuotas(values.quota),
    listBytes: values.listMb * BYTES_PER_MB,
    bounds: readHttpBounds(values),
    codeAccess: { engine, trustKeys: values.trustKeys, podUser: podUser?.name },
    compute: {
      engine,
      dockerHost: values.dockerHost,
      catalogPath: values.catalog,
      capacity: readCapacity(values),
      processUsers: values.trustUsers ? 'all' : 'owner',
      workerUrl: values.workerUrl,
      podUser,
      containment: readContainment(values),
    },
    log,
    storage: {
      reserveBytes: values.diskReserve * 1_048_576,
      eraseAfterMs: values.eraseAfterMs,
      checkMs: values.storeCheckMs,
    },
    endpointIds: values.endpoint,
    maxAttempts: values.maxAttempts,
    webhooks: {
      addresses: values.allowPrivateWebhooks ? 'any' : 'public',
      secretFile: values.webhookSecretFile,
      nameServers: values.webhookDns,
    },
    settings: {
      leaseMs,
      renewEveryMs,
      takeWaitMs,
      timeoutGraceMs,
      retry: { baseMs: values.retryBaseMs, maxMs: 60_000, jitter: 0.2 },
      retentionMs: { run: values.retainRunMs, runsync: values.retainRunsyncMs },
    },
  });
  try {
    const keyLines = await prepareKeys(platform, values);
    const names = (await platform.endpoints.list()).map(({ id }) => id);
    const declared = names.length > 0 ? `Endpoints: ${names.join(', ')}` : NO_ENDPOINTS;
    const ready = `Millrace ${packageVersion()} is ready at ${platform.url}`;
    const grpc = platform.grpcUrl === undefined ? [] : [`Workers over gRPC at ${platform.grpcUrl}`];
    void print(`${[ready, ...grpc, declared, ...keyLines].join('\n')}\n`);
    await signals.first;
    log.info('ending');
  } finally {
    await platform.close();
    signals.release();
  }
  return EXIT.ok;
}

const NO_ENDPOINTS =
  'There is no endpoint yet: `millrace endpoints create` makes one, --endpoint NAME declares one';

async function prepareKeys(
  platform: Platform,
  { endpoint, keyFile }: { endpoint: readonly string[]; keyFile: string | undefined },
): Promise<string[]> {
  if (keyFile !== undefined) {
    const { origin } = await useKeyFile(platform.keys, keyFile, endpoint);
    return [`Keys ${origin === 'made' ? 'made and written to' : 'read from'} ${keyFile}`];
  }
  const first = await platform.keys.ensureFirstKeys(endpoint);
  if (!first) return [];
  return [
    'These keys are shown only this once:',
    `MILLRACE_ADMIN_KEY=${first.admin}`,
    `MILLRACE_WORKER_KEY=${first.worker}`,
  ];
}

function readTls(values: { tlsCert: string | undefined; tlsKey: string | undefined }) {
  const { tlsCert, tlsKey } = values;
  if (tlsCert === undefined && tlsKey === undefined) return undefined;
  if (tlsCert === undefined) throw new UsageError('--tls-cert is missing beside --tls-key');
  if (tlsKey === undefined) throw new UsageError('--tls-key is missing beside --tls-cert');
  return { cert: readPem('--tls-cert', tlsCert), key: readPem('--tls-key', tlsKey) };
}
