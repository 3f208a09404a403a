// The options of `serve`, and the options of the platform that they make.
import type { Log } from '../../base/log.ts';
import { readProxies } from '../../base/net/outgoing-proxy.ts';
import { SESSION_IDLE_MS, SESSION_MAX_MS } from '../../platform/defaults.ts';
import type { PlatformOptions, PlatformTls } from '../../platform/platform-options.ts';
import { MAX_WAIT_MS } from '../../wire/link/worker-link.ts';
import { HISTORY_POLICIES } from '../../wire/resources/fields.ts';
import { EXIT } from '../command.ts';
import { inheritEnvironment, readVariable } from '../config.ts';
import {
  choice,
  defineGroup,
  flag,
  integer,
  list,
  type Member,
  type OptionValues,
  readNamedFile,
  text,
  UsageError,
} from '../options.ts';
import { logLevelOption } from '../terminal-log.ts';
import { containmentOptions, engineOptions, kubernetesOptions } from './engine-options.ts';
import { limitOptions } from './limit-options.ts';
import {
  checkInFlight,
  httpBoundOptions,
  listenerOptions,
  readGrpcTls,
} from './listener-options.ts';
import {
  composeMembers,
  exitOnStoreLoss,
  mbInBytes,
  member,
  secondsInMs,
  webhookSecretFileOption,
} from './platform-option.ts';
import { checkNodes, nodeOptions, storeOptions } from './store-options.ts';

const HOUR_MS = 3_600_000;
/** Balancers check every few seconds; a Kubernetes cluster needs a second or two to tell its machines. */
const NODE_DELAY_MS = 5_000;
const SESSION = { min: 1, max: 30 * 86_400, unit: 's', section: 'advanced' } as const;
const MAX_HEADER_FILE_BYTES = 65_536;
const MAX_HEADERS = 32;
const HEADER_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]*)$/;

function milliseconds(target: Member<number>, help: string, fallback: number, max = 24 * HOUR_MS) {
  const range = { min: 1, max, unit: 'ms' } as const;
  return integer({ ...range, default: fallback, section: 'advanced', sets: [target], help });
}

const serverOptions = defineGroup('Endpoints, keys and log', {
  endpoint: list({
    placeholder: 'ID',
    env: 'MILLRACE_ENDPOINTS',
    sets: [member('endpoints')],
    help: 'ID of an endpoint to create at the start; endpoints of earlier starts stay',
  }),
  maxAttempts: integer({
    sets: [member('maxAttempts')],
    min: 1,
    max: 100,
    help: 'failed attempts after which a job is FAILED; 1: no automatic retry; for the endpoints that this command declares; default: 3, or the value of an earlier start',
  }),
  keyFile: text({
    placeholder: 'FILE',
    sets: [member('keyFile')],
    help: 'file with the admin key and the worker key; created with mode 0600 if missing; each start makes its keys valid again, even revoked ones; default: print both once',
  }),
  sessionSeconds: integer({
    sets: [member('sessions.maxMs', secondsInMs)],
    ...SESSION,
    default: SESSION_MAX_MS / 1_000,
    help: 'longest time of a browser session; all nodes need the same',
  }),
  sessionIdleSeconds: integer({
    sets: [member('sessions.idleMs', secondsInMs)],
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
    sets: [member('webhooks.addresses', (isOn) => (isOn ? 'any' : 'public'))],
    help: 'send webhooks to loopback, private and link-local addresses too; use only if you trust all clients',
  }),
  webhookDns: list({
    sets: [member('webhooks.nameServers')],
    placeholder: 'ADDRESS[:PORT]',
    help: "name server that resolves webhook receivers; default: the machine's own",
  }),
});

const traceOptions = defineGroup('Traces', {
  traceUrl: text({
    placeholder: 'URL',
    sets: [member('traces.url')],
    help: 'OpenTelemetry collector to which the platform sends spans of jobs, OTLP over HTTP: http://127.0.0.1:4318; default: no traces',
  }),
  traceHeaderFile: text({
    needs: 'traceUrl',
    sets: [member('traces.headers', readHeaders)],
    placeholder: 'FILE',
    section: 'advanced',
    help: 'file with headers for the collector, one `Name: value` a line',
  }),
  tracePercent: integer({
    needs: 'traceUrl',
    min: 0,
    max: 100,
    default: 100,
    section: 'advanced',
    sets: [member('traces.ratio', (percent) => percent / 100)],
    help: 'share of the jobs without a trace of their client that get one, percent; with a traceparent, its sampled flag decides',
  }),
});

const queueOptions = defineGroup('Queue', {
  leaseMs: milliseconds(
    member('settings.leaseMs'),
    'how long a lease lasts without a renewal',
    15_000,
  ),
  renewEveryMs: milliseconds(
    member('settings.renewEveryMs'),
    'interval at which workers renew their leases; less than --lease-ms',
    5_000,
    MAX_WAIT_MS,
  ),
  takeWaitMs: milliseconds(
    member('settings.takeWaitMs'),
    'how long a worker waits for jobs in one call',
    20_000,
    MAX_WAIT_MS,
  ),
  timeoutGraceMs: milliseconds(
    member('settings.timeoutGraceMs'),
    'time from the timeout of a job until the queue ends it, if its worker is silent',
    10_000,
  ),
  retryBaseMs: milliseconds(
    member('settings.retry.delayMs'),
    'wait before the first retry of a failed job; doubles with each failure, up to 60 s; a retry policy can say otherwise',
    1_000,
  ),
  retainRunMs: milliseconds(
    member('settings.retentionMs.run'),
    'how long the platform keeps a job of /run after its end',
    HOUR_MS / 2,
  ),
  retainRunsyncMs: milliseconds(
    member('settings.retentionMs.runsync'),
    'how long the platform keeps a job of /runsync after its end',
    60_000,
  ),
  maxDeadLetters: integer({
    min: 0,
    max: 10_000_000,
    default: 10_000,
    section: 'advanced',
    sets: [member('settings.deadLetters.maxJobs')],
    help: 'failed jobs of one user that the platform keeps after their retention; the oldest are removed',
  }),
  maxDeadLetterMb: integer({
    min: 1,
    max: 1_000_000,
    default: 1_024,
    section: 'advanced',
    sets: [member('settings.deadLetters.maxBytes', (mb) => mb * 1_048_576)],
    help: 'inputs, logs and errors of these jobs, MB',
  }),
});

const historyOptions = defineGroup('History of jobs', {
  historyTo: text({
    placeholder: 'PLACE',
    sets: [member('history.to')],
    help: 'folder or bucket for files with a line for each ended job: file:/folder or s3://bucket/prefix; default: no history',
  }),
  historyPolicy: choice({
    needs: 'historyTo',
    choices: HISTORY_POLICIES,
    default: 'OFF',
    sets: [member('settings.history.policy')],
    help: 'what the history keeps of jobs of endpoints that do not say: RECORD, or with input and output FULL',
  }),
  historyKeyFile: text({
    needs: 'historyTo',
    placeholder: 'FILE',
    env: 'MILLRACE_HISTORY_KEY_FILE',
    sets: [member('history.keyFile')],
    help: 'S3: file with the access ID and the secret, one a line',
  }),
  historyS3Url: text({
    needs: 'historyTo',
    placeholder: 'URL',
    sets: [member('history.s3Url')],
    help: "S3: URL of the server; default: Amazon's, of the region",
  }),
  historyS3Region: text({
    needs: 'historyTo',
    placeholder: 'NAME',
    sets: [member('history.s3Region')],
    help: 'S3: region of the signature; default: us-east-1',
  }),
  historyKeepDays: integer({
    needs: 'historyTo',
    min: 1,
    max: 36_500,
    sets: [member('history.keepDays')],
    help: 'folder: days for which its files are kept; default: no end',
  }),
  historySeconds: integer({
    needs: 'historyTo',
    min: 1,
    max: 86_400,
    default: 3_600,
    unit: 's',
    section: 'advanced',
    sets: [member('settings.history.everyMs', secondsInMs)],
    help: 'a line waits for others in its file at most for this time',
  }),
  historyFileMb: integer({
    needs: 'historyTo',
    min: 1,
    max: 64,
    default: 16,
    section: 'advanced',
    sets: [member('settings.history.fileBytes', mbInBytes)],
    help: 'lines of one file, MB before their compression',
  }),
  historyPayloadKb: integer({
    needs: 'historyTo',
    min: 1,
    max: 256,
    default: 64,
    section: 'advanced',
    sets: [member('settings.history.payloadBytes', (kb) => kb * 1_024)],
    help: 'largest input and largest output that a line has, KB; of a larger one it has the size',
  }),
  maxHistoryBacklogMb: integer({
    needs: 'historyTo',
    min: 1,
    max: 1_000_000,
    default: 256,
    section: 'advanced',
    sets: [member('settings.history.backlogBytes', mbInBytes)],
    help: 'lines of one user that wait while their files cannot be written, MB; further ones are dropped and counted',
  }),
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
  ...historyOptions,
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
  checkInFlight(values);
  checkNodes(values);
  const { compute, grpc, webhooks, ...others } = composeMembers(serveOptions, values);
  return {
    ...others,
    tls,
    grpc: grpc && { ...grpc, tls: readGrpcTls(values, tls) },
    compute: { ...compute, engine: values.engine, readVariable },
    webhooks: { ...webhooks, chooseProxy: readProxies(inheritEnvironment({})) },
    log,
    onStoreLost: exitOnStoreLoss(log, values.store === undefined ? 'file' : 'database'),
    onNodeEnd: exitOnNodeEnd(log),
  };
}

/** A platform that is not one of several nodes has no other to which its clients could go. */
export function readShutdownDelay(values: ServeValues): number {
  const { nodeUrl, shutdownDelayMs } = values;
  return shutdownDelayMs ?? (nodeUrl === undefined ? 0 : NODE_DELAY_MS);
}

/** Errors do not show the lines: they may be secret. @throws UsageError */
function readHeaders(path: string | undefined): Record<string, string> | undefined {
  if (path === undefined) return undefined;
  const refuse = (problem: string) => new UsageError(`--trace-header-file: ${path} ${problem}`);
  const content = readNamedFile('--trace-header-file', path);
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
