// Options of `serve` that bound what callers of the HTTP API may send and hold open.

import { FORWARDED_HEADERS, listAddresses } from '../../api/http/client-origin.ts';
import { DEFAULT_BOUNDS, type HttpBounds } from '../../api/limits/bounds.ts';
import { choice, integer, list, type OptionValues, UsageError } from '../options.ts';

const MB = 1_048_576;

interface BoundOption {
  min: number;
  max: number;
  default: number;
  help: string;
}

function bound(placeholder: string, option: BoundOption) {
  return integer({ ...option, placeholder, section: 'advanced' });
}

const DAY_S = 86_400;
const MAX_MB = 1_048_576;

export const httpBoundOptions = {
  maxEnvelopeBytes: bound('BYTES', {
    min: 1_024,
    max: 20 * MB,
    default: DEFAULT_BOUNDS.maxEnvelopeBytes,
    help: 'maximum size of all fields of a run or runsync request except `input`, bytes; beyond it 413',
  }),
  maxJsonDepth: bound('N', {
    min: 64,
    max: 100_000,
    default: DEFAULT_BOUNDS.maxJsonDepth,
    help: 'maximum number of levels of arrays and objects in an input, an output or progress; beyond it 422',
  }),
  maxTargetBytes: bound('BYTES', {
    min: 1_024,
    max: 65_536,
    default: DEFAULT_BOUNDS.maxTargetBytes,
    help: 'maximum size of the path and query of a request, bytes; beyond it 414; below /runpod only --max-header-bytes applies',
  }),
  maxHeaderBytes: bound('BYTES', {
    min: 4_096,
    max: MB,
    default: DEFAULT_BOUNDS.maxHeaderBytes,
    help: 'maximum size of the headers of a request, bytes; beyond it 431',
  }),
  inFlightMb: bound('MB', {
    min: 32,
    max: MAX_MB,
    default: DEFAULT_BOUNDS.maxInFlightBytes / MB,
    help: 'memory for the request bodies and responses of all users, MB; beyond it requests wait',
  }),
  userInFlightMb: bound('MB', {
    min: 32,
    max: MAX_MB,
    default: DEFAULT_BOUNDS.maxUserInFlightBytes / MB,
    help: 'memory for the request bodies and responses of each user, MB; at most --in-flight-mb',
  }),
  workerInFlightMb: bound('MB', {
    min: 64,
    max: MAX_MB,
    default: DEFAULT_BOUNDS.maxWorkerInFlightBytes / MB,
    help: 'memory reserved for the request bodies and responses of workers over HTTP and gRPC, MB; the workers of one user use at most half; beyond it calls wait',
  }),
  inFlightWaitMs: bound('MS', {
    min: 0,
    max: 60_000,
    default: DEFAULT_BOUNDS.inFlightWaitMs,
    help: 'how long a request waits while one of the --*in-flight-mb limits is reached, ms; then 503',
  }),
  stallSeconds: bound('S', {
    min: 1,
    max: DAY_S,
    default: DEFAULT_BOUNDS.stallMs / 1_000,
    help: 'maximum pause of a client that sends a request or reads a response, over HTTP or gRPC, s; then 408, a reset stream or a closed connection',
  }),
  headersSeconds: bound('S', {
    min: 1,
    max: DAY_S,
    default: DEFAULT_BOUNDS.headersMs / 1_000,
    help: 'how long a client may take to send its headers, s; then 408',
  }),
  transferSeconds: bound('S', {
    min: 10,
    max: DAY_S,
    default: DEFAULT_BOUNDS.transferMs / 1_000,
    help: 'maximum time to transfer one request or one response, s; event streams are exempt',
  }),
  idleSeconds: bound('S', {
    min: 1,
    max: DAY_S,
    default: DEFAULT_BOUNDS.idleMs / 1_000,
    help: 'how long an idle connection stays open, s',
  }),
  maxConnections: bound('N', {
    min: 10,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxConnections,
    help: 'maximum number of open connections, for the HTTP port and for the gRPC port; beyond it the oldest without a valid key is closed',
  }),
  maxAddressConnections: bound('N', {
    min: 1,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxAddressConnections,
    help: 'maximum number of open connections of one address without a valid key, for the HTTP port and for the gRPC port; beyond it new ones are closed; loopback is exempt',
  }),
  maxUserConnections: bound('N', {
    min: 10,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxUserConnections,
    help: 'maximum number of open connections with valid keys of one user, for the HTTP port and for the gRPC port; beyond it the oldest without a request is closed; without one, the new one gets 429',
  }),
  maxPipelinedRequests: bound('N', {
    min: 1,
    max: 10_000,
    default: DEFAULT_BOUNDS.maxPipelinedRequests,
    help: 'maximum number of unanswered requests on one HTTP connection; the platform reads further ones after it has answered',
  }),
  maxKeylessPipelinedRequests: bound('N', {
    min: 1,
    max: 10_000,
    default: DEFAULT_BOUNDS.maxKeylessPipelinedRequests,
    help: 'the same for a connection that has shown no valid key',
  }),
  maxEventStreams: bound('N', {
    min: 1,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxEventStreams,
    help: 'maximum number of open event streams (GET /v1/events) of all callers; beyond it 429',
  }),
  maxUserStreams: bound('N', {
    min: 1,
    max: 1_000_000,
    default: DEFAULT_BOUNDS.maxUserStreams,
    help: 'maximum number of open gRPC streams of workers of one user; beyond it RESOURCE_EXHAUSTED',
  }),
  maxConnectionStreams: bound('N', {
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
};

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
