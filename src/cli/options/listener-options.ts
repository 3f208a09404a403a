// Options of `serve` for the HTTP port and the gRPC port: addresses, certificates, and bounds on what callers may send and
// hold open.

import { FORWARDED_HEADERS, listAddresses } from '../../api/http/client-origin.ts';
import {
  DEFAULT_BOUNDS,
  DEFAULT_KEYLESS_LIMITS,
  type KeylessLimits,
} from '../../api/limits/bounds.ts';
import type { PlatformTls } from '../../platform/platform-options.ts';
import {
  choice,
  defineGroup,
  flag,
  integer,
  list,
  type NumberOption,
  type OptionValues,
  text,
  UsageError,
} from '../options.ts';
import { readCertificates, readKeyPair } from './certificates.ts';
import { describeLimits, readLimits } from './limit-options.ts';
import { mbInBytes, member, secondsInMs } from './platform-option.ts';

export const listenerOptions = defineGroup('Address and TLS', {
  port: integer({
    min: 0,
    max: 65_535,
    default: 8_000,
    placeholder: 'PORT',
    sets: [member('port')],
    help: 'TCP port; 0 picks a free one',
  }),
  host: text({
    default: '127.0.0.1',
    placeholder: 'HOST',
    sets: [member('host')],
    help: 'address to listen on; 0.0.0.0 for all of IPv4',
  }),
  tlsCert: text({
    needs: 'tlsKey',
    placeholder: 'FILE',
    sets: ['tls'],
    help: 'PEM file of the TLS certificate; serve HTTPS; needs --tls-key; both files are read again when they change',
  }),
  tlsKey: text({
    needs: 'tlsCert',
    placeholder: 'FILE',
    sets: ['tls', 'tls.key'],
    help: 'PEM file of the private key of --tls-cert',
  }),
  noConsole: flag({
    sets: [member('console', (isOff) => !isOff)],
    help: 'do not serve the web console at /console/',
  }),
  cors: list({
    placeholder: 'ORIGIN',
    sets: [member('corsOrigins')],
    help: 'origin of a web page that may call the API, such as https://app.example.com; default: none; "*": every page, only if all calls need a key',
  }),
  grpcPort: integer({
    min: 0,
    max: 65_535,
    placeholder: 'PORT',
    sets: [member('grpc.port')],
    help: 'serve workers over gRPC too, on this port; 0 picks a free one; TLS as for HTTPS; default: no gRPC',
  }),
  grpcHost: text({
    needs: 'grpcPort',
    sets: [member('grpc.host')],
    placeholder: 'HOST',
    help: 'address of the gRPC port; default: that of --host',
  }),
  grpcClientCa: text({
    needs: 'grpcPort',
    placeholder: 'FILE',
    help: 'PEM file of certificate authorities; gRPC workers must show a client certificate signed by one of them; the file is read again when it changes',
  }),
  grpcKeylessLimits: text({
    needs: 'grpcPort',
    sets: [member('grpc.keylessLimits', readKeylessLimits)],
    default: describeLimits(DEFAULT_KEYLESS_LIMITS),
    placeholder: 'LIMITS',
    section: 'advanced',
    help:
      'limits of gRPC calls without a valid key (health, reflection): request bytes and duration in ms of ' +
      'one call, open calls and health watches of one address; each at least 1; limits that you do not ' +
      'name keep their defaults',
  }),
});

/** @throws UsageError */
export function readTls(
  values: Pick<OptionValues<typeof listenerOptions>, 'tlsCert' | 'tlsKey'>,
): PlatformTls | undefined {
  const { tlsCert, tlsKey } = values;
  if (tlsCert === undefined || tlsKey === undefined) return undefined;
  const pair = readKeyPair(
    { option: '--tls-cert', path: tlsCert },
    { option: '--tls-key', path: tlsKey },
  );
  return { ...pair, keyFile: tlsKey };
}

/** The certificate of the gRPC port, and the authorities of its clients. @throws UsageError */
export function readGrpcTls(
  { grpcClientCa }: Pick<OptionValues<typeof listenerOptions>, 'grpcClientCa'>,
  tls: { cert: string; key: string } | undefined,
): { cert: string; key: string; clientCa?: string } | undefined {
  if (grpcClientCa === undefined) return tls;
  if (!tls) throw new UsageError('--grpc-client-ca needs --tls-cert and --tls-key');
  return { ...tls, clientCa: readCertificates('--grpc-client-ca', grpcClientCa) };
}

function readKeylessLimits(given: string): KeylessLimits {
  return readLimits('--grpc-keyless-limits', given, DEFAULT_KEYLESS_LIMITS);
}

const MB = 1_048_576;
const DAY_S = 86_400;
const MAX_MB = 1_048_576;

function bound(option: Omit<NumberOption<number>, 'section'> & { default: number }) {
  return integer({ ...option, section: 'advanced' });
}

export const httpBoundOptions = defineGroup('HTTP and gRPC bounds', {
  maxEnvelopeBytes: bound({
    sets: [member('bounds.maxEnvelopeBytes')],
    min: 1_024,
    max: 20 * MB,
    default: DEFAULT_BOUNDS.maxEnvelopeBytes,
    help: 'maximum size of all fields of a run or runsync request except `input`; beyond it 413',
    unit: 'bytes',
  }),
  maxJsonDepth: bound({
    sets: [member('bounds.maxJsonDepth')],
    min: 64,
    max: 100_000,
    default: DEFAULT_BOUNDS.maxJsonDepth,
    help: 'maximum number of levels of arrays and objects in an input, an output or progress; beyond it 422',
  }),
  maxTargetBytes: bound({
    sets: [member('bounds.maxTargetBytes')],
    min: 1_024,
    max: 65_536,
    default: DEFAULT_BOUNDS.maxTargetBytes,
    help: 'maximum size of the path and query of a request; beyond it 414; below /runpod only --max-header-bytes applies',
    unit: 'bytes',
  }),
  maxHeaderBytes: bound({
    sets: [member('bounds.maxHeaderBytes')],
    min: 4_096,
    max: MB,
    default: DEFAULT_BOUNDS.maxHeaderBytes,
    help: 'maximum size of the headers of a request; beyond it 431',
    unit: 'bytes',
  }),
  inFlightMb: bound({
    sets: [member('bounds.maxInFlightBytes', mbInBytes)],
    min: 32,
    max: MAX_MB,
    default: DEFAULT_BOUNDS.maxInFlightBytes / MB,
    help: 'memory for the request bodies and responses of all users; beyond it requests wait',
    unit: 'MB',
  }),
  userInFlightMb: bound({
    sets: [member('bounds.maxUserInFlightBytes', mbInBytes)],
    min: 32,
    max: MAX_MB,
    default: DEFAULT_BOUNDS.maxUserInFlightBytes / MB,
    help: 'memory for the request bodies and responses of each user; at most --in-flight-mb',
    unit: 'MB',
  }),
  workerInFlightMb: bound({
    sets: [member('bounds.maxWorkerInFlightBytes', mbInBytes)],
    min: 64,
    max: MAX_MB,
    default: DEFAULT_BOUNDS.maxWorkerInFlightBytes / MB,
    help: 'memory reserved for the request bodies and responses of workers over HTTP and gRPC; the workers of one user use at most half; beyond it calls wait',
    unit: 'MB',
  }),
  inFlightWaitMs: bound({
    sets: [member('bounds.inFlightWaitMs')],
    min: 0,
    max: 60_000,
    default: DEFAULT_BOUNDS.inFlightWaitMs,
    help: 'how long a request waits while one of the --*in-flight-mb limits is reached; then 503',
    unit: 'ms',
  }),
  stallSeconds: bound({
    sets: [member('bounds.stallMs', secondsInMs)],
    min: 1,
    max: DAY_S,
    default: DEFAULT_BOUNDS.stallMs / 1_000,
    help: 'maximum pause of a client that sends a request or reads a response, over HTTP or gRPC; then 408, a reset stream or a closed connection',
    unit: 's',
  }),
  headersSeconds: bound({
    sets: [member('bounds.headersMs', secondsInMs)],
    min: 1,
    max: DAY_S,
    default: DEFAULT_BOUNDS.headersMs / 1_000,
    help: 'how long a client may take to send its headers; then 408',
    unit: 's',
  }),
  transferSeconds: bound({
    sets: [member('bounds.transferMs', secondsInMs)],
    min: 10,
    max: DAY_S,
    default: DEFAULT_BOUNDS.transferMs / 1_000,
    help: 'maximum time to transfer one request or one response; event streams are exempt',
    unit: 's',
  }),
  idleSeconds: bound({
    sets: [member('bounds.idleMs', secondsInMs)],
    min: 1,
    max: DAY_S,
    default: DEFAULT_BOUNDS.idleMs / 1_000,
    help: 'how long an idle connection stays open',
    unit: 's',
  }),
  maxConnections: bound({
    sets: [member('bounds.maxConnections')],
    min: 10,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxConnections,
    help: 'maximum number of open connections, for the HTTP port and for the gRPC port; beyond it the oldest without a valid key is closed',
  }),
  maxAddressConnections: bound({
    sets: [member('bounds.maxAddressConnections')],
    min: 1,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxAddressConnections,
    help: 'maximum number of open connections of one address without a valid key, for the HTTP port and for the gRPC port; beyond it new ones are closed; loopback is exempt',
  }),
  maxUserConnections: bound({
    sets: [member('bounds.maxUserConnections')],
    min: 10,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxUserConnections,
    help: 'maximum number of open connections with valid keys of one user, for the HTTP port and for the gRPC port; beyond it the oldest without a request is closed; without one, the new one gets 429',
  }),
  maxPipelinedRequests: bound({
    sets: [member('bounds.maxPipelinedRequests')],
    min: 1,
    max: 10_000,
    default: DEFAULT_BOUNDS.maxPipelinedRequests,
    help: 'maximum number of unanswered requests on one HTTP connection; the platform reads further ones after it has answered',
  }),
  maxKeylessPipelinedRequests: bound({
    sets: [member('bounds.maxKeylessPipelinedRequests')],
    min: 1,
    max: 10_000,
    default: DEFAULT_BOUNDS.maxKeylessPipelinedRequests,
    help: 'the same for a connection that has shown no valid key',
  }),
  maxEventStreams: bound({
    sets: [member('bounds.maxEventStreams')],
    min: 1,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxEventStreams,
    help: 'maximum number of open event streams (GET /v1/events) of all callers; beyond it 429',
  }),
  maxUserStreams: bound({
    sets: [member('bounds.maxUserStreams')],
    min: 1,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxUserStreams,
    help: 'maximum number of open gRPC streams of workers of one user; beyond it RESOURCE_EXHAUSTED',
  }),
  maxConnectionStreams: bound({
    sets: [member('bounds.maxConnectionStreams')],
    min: 1,
    max: 10_000,
    default: DEFAULT_BOUNDS.maxConnectionStreams,
    help: 'maximum number of open gRPC streams of one connection; clients wait or open another connection',
  }),
  trustedProxy: list({
    sets: [member('bounds.trustedProxies', checkProxies)],
    placeholder: 'ADDRESS',
    section: 'advanced',
    help: 'address or network (10.0.0.0/8) of a reverse proxy: trust its forwarding headers, exempt it from --max-address-connections',
  }),
  forwardedHeaders: choice({
    sets: [member('bounds.forwardedHeaders')],
    choices: FORWARDED_HEADERS,
    default: DEFAULT_BOUNDS.forwardedHeaders,
    section: 'advanced',
    help: 'headers that the trusted proxies set: X-Forwarded-For, -Proto and -Host, or Forwarded (RFC 7239); the others are ignored',
  }),
});

function checkProxies(addresses: readonly string[]): readonly string[] {
  try {
    listAddresses(addresses);
    return addresses;
  } catch (error) {
    throw new UsageError(`--trusted-proxy: ${error instanceof Error ? error.message : error}`);
  }
}

/** @throws UsageError */
export function checkInFlight(values: OptionValues<typeof httpBoundOptions>): void {
  if (values.userInFlightMb <= values.inFlightMb) return;
  throw new UsageError(
    `--user-in-flight-mb: must be at most --in-flight-mb, which is ${values.inFlightMb}`,
  );
}
