// Options of `serve` for the HTTP port and the gRPC port: addresses, certificates, and bounds on what callers may send and
// hold open.

import { FORWARDED_HEADERS, listAddresses } from '../../api/http/client-origin.ts';
import {
  DEFAULT_BOUNDS,
  DEFAULT_KEYLESS_LIMITS,
  type HttpBounds,
} from '../../api/limits/bounds.ts';
import type { GrpcPort, PlatformTls } from '../../platform/platform-options.ts';
import {
  choice,
  defineGroup,
  flag,
  integer,
  list,
  type OptionValues,
  text,
  UsageError,
} from '../options.ts';
import { readCertificates, readKeyPair } from './certificates.ts';
import { describeLimits, readLimits } from './limit-options.ts';

export const listenerOptions = defineGroup('Address and TLS', {
  port: integer({
    min: 0,
    max: 65_535,
    default: 8_000,
    placeholder: 'PORT',
    sets: ['port'],
    help: 'TCP port; 0 picks a free one',
  }),
  host: text({
    default: '127.0.0.1',
    placeholder: 'HOST',
    sets: ['host'],
    help: 'address to listen on; 0.0.0.0 for all of IPv4',
  }),
  tlsCert: text({
    placeholder: 'FILE',
    sets: ['tls'],
    help: 'PEM file of the TLS certificate; serve HTTPS; needs --tls-key; both files are read again when they change',
  }),
  tlsKey: text({
    placeholder: 'FILE',
    sets: ['tls', 'tls.key'],
    help: 'PEM file of the private key of --tls-cert',
  }),
  noConsole: flag({ help: 'do not serve the web console at /console/' }),
  cors: list({
    placeholder: 'ORIGIN',
    sets: ['corsOrigins'],
    help: 'origin of a web page that may call the API, such as https://app.example.com; default: none; "*": every page, only if all calls need a key',
  }),
  grpcPort: integer({
    min: 0,
    max: 65_535,
    placeholder: 'PORT',
    sets: ['grpc.port'],
    help: 'serve workers over gRPC too, on this port; 0 picks a free one; TLS as for HTTPS; default: no gRPC',
  }),
  grpcHost: text({
    placeholder: 'HOST',
    help: 'address of the gRPC port; default: that of --host',
  }),
  grpcClientCa: text({
    placeholder: 'FILE',
    help: 'PEM file of certificate authorities; gRPC workers must show a client certificate signed by one of them; the file is read again when it changes',
  }),
  grpcKeylessLimits: text({
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
  if (tlsCert === undefined && tlsKey === undefined) return undefined;
  if (tlsCert === undefined) throw new UsageError('--tls-key needs --tls-cert');
  if (tlsKey === undefined) throw new UsageError('--tls-cert needs --tls-key');
  const pair = readKeyPair(
    { option: '--tls-cert', path: tlsCert },
    { option: '--tls-key', path: tlsKey },
  );
  return { ...pair, keyFile: tlsKey };
}

/** Undefined if no gRPC port is requested. @throws UsageError */
export function readGrpcPort(
  {
    grpcClientCa,
    grpcHost,
    grpcKeylessLimits,
    grpcPort,
    host,
  }: OptionValues<typeof listenerOptions>,
  tls: { cert: string; key: string } | undefined,
): GrpcPort | undefined {
  if (grpcPort === undefined) {
    if (grpcHost === undefined && grpcClientCa === undefined) return undefined;
    const given = grpcHost === undefined ? '--grpc-client-ca' : '--grpc-host';
    throw new UsageError(`${given} needs --grpc-port`);
  }
  const given = grpcKeylessLimits;
  const keylessLimits = readLimits('--grpc-keyless-limits', given, DEFAULT_KEYLESS_LIMITS);
  const port = { port: grpcPort, host: grpcHost ?? host, keylessLimits };
  if (grpcClientCa === undefined) return { ...port, tls };
  if (!tls) throw new UsageError('--grpc-client-ca needs --tls-cert and --tls-key');
  return { ...port, tls: { ...tls, clientCa: readCertificates('--grpc-client-ca', grpcClientCa) } };
}

const MB = 1_048_576;
const DAY_S = 86_400;
const MAX_MB = 1_048_576;

function bound(option: Omit<Parameters<typeof integer>[0], 'section'> & { default: number }) {
  return integer({ ...option, section: 'advanced' });
}

export const httpBoundOptions = defineGroup('HTTP and gRPC bounds', {
  maxEnvelopeBytes: bound({
    min: 1_024,
    max: 20 * MB,
    default: DEFAULT_BOUNDS.maxEnvelopeBytes,
    help: 'maximum size of all fields of a run or runsync request except `input`; beyond it 413',
    unit: 'bytes',
  }),
  maxJsonDepth: bound({
    min: 64,
    max: 100_000,
    default: DEFAULT_BOUNDS.maxJsonDepth,
    help: 'maximum number of levels of arrays and objects in an input, an output or progress; beyond it 422',
  }),
  maxTargetBytes: bound({
    min: 1_024,
    max: 65_536,
    default: DEFAULT_BOUNDS.maxTargetBytes,
    help: 'maximum size of the path and query of a request; beyond it 414; below /runpod only --max-header-bytes applies',
    unit: 'bytes',
  }),
  maxHeaderBytes: bound({
    min: 4_096,
    max: MB,
    default: DEFAULT_BOUNDS.maxHeaderBytes,
    help: 'maximum size of the headers of a request; beyond it 431',
    unit: 'bytes',
  }),
  inFlightMb: bound({
    min: 32,
    max: MAX_MB,
    default: DEFAULT_BOUNDS.maxInFlightBytes / MB,
    help: 'memory for the request bodies and responses of all users; beyond it requests wait',
    unit: 'MB',
  }),
  userInFlightMb: bound({
    min: 32,
    max: MAX_MB,
    default: DEFAULT_BOUNDS.maxUserInFlightBytes / MB,
    help: 'memory for the request bodies and responses of each user; at most --in-flight-mb',
    unit: 'MB',
  }),
  workerInFlightMb: bound({
    min: 64,
    max: MAX_MB,
    default: DEFAULT_BOUNDS.maxWorkerInFlightBytes / MB,
    help: 'memory reserved for the request bodies and responses of workers over HTTP and gRPC; the workers of one user use at most half; beyond it calls wait',
    unit: 'MB',
  }),
  inFlightWaitMs: bound({
    min: 0,
    max: 60_000,
    default: DEFAULT_BOUNDS.inFlightWaitMs,
    help: 'how long a request waits while one of the --*in-flight-mb limits is reached; then 503',
    unit: 'ms',
  }),
  stallSeconds: bound({
    min: 1,
    max: DAY_S,
    default: DEFAULT_BOUNDS.stallMs / 1_000,
    help: 'maximum pause of a client that sends a request or reads a response, over HTTP or gRPC; then 408, a reset stream or a closed connection',
    unit: 's',
  }),
  headersSeconds: bound({
    min: 1,
    max: DAY_S,
    default: DEFAULT_BOUNDS.headersMs / 1_000,
    help: 'how long a client may take to send its headers; then 408',
    unit: 's',
  }),
  transferSeconds: bound({
    min: 10,
    max: DAY_S,
    default: DEFAULT_BOUNDS.transferMs / 1_000,
    help: 'maximum time to transfer one request or one response; event streams are exempt',
    unit: 's',
  }),
  idleSeconds: bound({
    min: 1,
    max: DAY_S,
    default: DEFAULT_BOUNDS.idleMs / 1_000,
    help: 'how long an idle connection stays open',
    unit: 's',
  }),
  maxConnections: bound({
    min: 10,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxConnections,
    help: 'maximum number of open connections, for the HTTP port and for the gRPC port; beyond it the oldest without a valid key is closed',
  }),
  maxAddressConnections: bound({
    min: 1,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxAddressConnections,
    help: 'maximum number of open connections of one address without a valid key, for the HTTP port and for the gRPC port; beyond it new ones are closed; loopback is exempt',
  }),
  maxUserConnections: bound({
    min: 10,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxUserConnections,
    help: 'maximum number of open connections with valid keys of one user, for the HTTP port and for the gRPC port; beyond it the oldest without a request is closed; without one, the new one gets 429',
  }),
  maxPipelinedRequests: bound({
    min: 1,
    max: 10_000,
    default: DEFAULT_BOUNDS.maxPipelinedRequests,
    help: 'maximum number of unanswered requests on one HTTP connection; the platform reads further ones after it has answered',
  }),
  maxKeylessPipelinedRequests: bound({
    min: 1,
    max: 10_000,
    default: DEFAULT_BOUNDS.maxKeylessPipelinedRequests,
    help: 'the same for a connection that has shown no valid key',
  }),
  maxEventStreams: bound({
    min: 1,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxEventStreams,
    help: 'maximum number of open event streams (GET /v1/events) of all callers; beyond it 429',
  }),
  maxUserStreams: bound({
    min: 1,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxUserStreams,
    help: 'maximum number of open gRPC streams of workers of one user; beyond it RESOURCE_EXHAUSTED',
  }),
  maxConnectionStreams: bound({
    min: 1,
    max: 10_000,
    default: DEFAULT_BOUNDS.maxConnectionStreams,
    help: 'maximum number of open gRPC streams of one connection; clients wait or open another connection',
  }),
  trustedProxy: list({
    placeholder: 'ADDRESS',
    section: 'advanced',
    help: 'address or network (10.0.0.0/8) of a reverse proxy: trust its forwarding headers, exempt it from --max-address-connections',
  }),
  forwardedHeaders: choice({
    choices: FORWARDED_HEADERS,
    default: DEFAULT_BOUNDS.forwardedHeaders,
    section: 'advanced',
    help: 'headers that the trusted proxies set: X-Forwarded-For, -Proto and -Host, or Forwarded (RFC 7239); the others are ignored',
  }),
});

/** @throws UsageError */
export function readHttpBounds(values: OptionValues<typeof httpBoundOptions>): HttpBounds {
  try {
    listAddresses(values.trustedProxy);
  } catch (error) {
    throw new UsageError(`--trusted-proxy: ${error instanceof Error ? error.message : error}`);
  }
  if (values.userInFlightMb > values.inFlightMb) {
    throw new UsageError(
      `--user-in-flight-mb: must be at most --in-flight-mb, which is ${values.inFlightMb}`,
    );
  }
  return {
    maxEnvelopeBytes: values.maxEnvelopeBytes,
    maxJsonDepth: values.maxJsonDepth,
    maxTargetBytes: values.maxTargetBytes,
    maxHeaderBytes: values.maxHeaderBytes,
    maxInFlightBytes: values.inFlightMb * MB,
    maxUserInFlightBytes: values.userInFlightMb * MB,
    maxWorkerInFlightBytes: values.workerInFlightMb * MB,
    inFlightWaitMs: values.inFlightWaitMs,
    stallMs: values.stallSeconds * 1_000,
    headersMs: values.headersSeconds * 1_000,
    transferMs: values.transferSeconds * 1_000,
    idleMs: values.idleSeconds * 1_000,
    maxConnections: values.maxConnections,
    maxAddressConnections: values.maxAddressConnections,
    maxUserConnections: values.maxUserConnections,
    maxPipelinedRequests: values.maxPipelinedRequests,
    maxKeylessPipelinedRequests: values.maxKeylessPipelinedRequests,
    maxEventStreams: values.maxEventStreams,
    maxUserStreams: values.maxUserStreams,
    maxConnectionStreams: values.maxConnectionStreams,
    trustedProxies: values.trustedProxy,
    forwardedHeaders: values.forwardedHeaders,
  };
}
