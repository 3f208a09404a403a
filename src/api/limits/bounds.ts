// All bounds on callers of the HTTP API, with their defaults; and the check of a request's head: path, query and
// headers.
import type { IncomingMessage } from 'node:http';
import { ProblemError } from '../../wire/problem.ts';
import { RUNPOD_BASE } from '../../wire/routes/routes.ts';
import type { ForwardedHeaders } from '../http/client-origin.ts';

export interface HttpBounds {
  /** Bytes of a submission's JSON besides the value of `input`. Default 65,536. */
  maxEnvelopeBytes: number;
  /** Levels of arrays and objects in an input, an output, a chunk's output or progress. Default 1,000. */
  maxJsonDepth: number;
  /** Bytes of path and query. Default 8,192; below `/runpod` the bound of headers applies instead. */
  maxTargetBytes: number;
  /** Bytes of a request's headers. Default 16,384. */
  maxHeaderBytes: number;
  /** Bytes of bodies and answers in memory, over all users. Default 512 MB. */
  maxInFlightBytes: number;
  /** The same for each user. Default 128 MB. */
  maxUserInFlightBytes: number;
  /** The same for calls of workers, half of it for one user. Default 128 MB. */
  maxWorkerInFlightBytes: number;
  /** Longest wait of a request for bytes in flight, ms. Default 5,000. */
  inFlightWaitMs: number;
  /** Longest pause of a client that must send or read, ms. Default 30,000. */
  stallMs: number;
  /**
   * From a connection's start, or a request's first byte, to the end of the headers, ms. Default
   * 20,000.
   */
  headersMs: number;
  /**
   * Until the end of the request's body, and for reading one finite response, ms. Default 600,000.
   */
  transferMs: number;
  /** An idle connection is closed after this time, ms. Default 75,000. */
  idleMs: number;
  /** Open connections. Default 10,000. */
  maxConnections: number;
  /** Open connections of one address without a valid key. Default 1,000. */
  maxAddressConnections: number;
  /** Open connections whose last valid key belongs to one user. Default 4,000. */
  maxUserConnections: number;
  /** Unanswered requests of one connection. The platform reads no further ones meanwhile. Default 100. */
  maxPipelinedRequests: number;
  /** The same for a connection that has shown no valid key. Default 4. */
  maxKeylessPipelinedRequests: number;
  /** Open event streams (`GET /v1/events`). Default 1,000. */
  maxEventStreams: number;
  /** Open gRPC streams of one user's workers. Default 2,000. */
  maxUserStreams: number;
  /** Open gRPC streams of one connection. Default 100. */
  maxConnectionStreams: number;
  /**
   * Addresses, or networks such as `10.0.0.0/8`, of reverse proxies: their forwarding headers are believed, and they
   * are exempt from the bound of one address. Default: none.
   */
  trustedProxies: readonly string[];
  /** The forwarding headers that the trusted proxies set. Default: `x-forwarded`. */
  forwardedHeaders: ForwardedHeaders;
}

const MB = 1_048_576;

export const DEFAULT_BOUNDS: HttpBounds = {
  maxEnvelopeBytes: 65_536,
  // As deep as the outputs that a worker accepts from its handlers.
  maxJsonDepth: 1_000,
  maxTargetBytes: 8_192,
  maxHeaderBytes: 16_384,
  maxInFlightBytes: 512 * MB,
  maxUserInFlightBytes: 128 * MB,
  maxWorkerInFlightBytes: 128 * MB,
  inFlightWaitMs: 5_000,
  stallMs: 30_000,
  headersMs: 20_000,
  transferMs: 600_000,
  // Longer than the minute for which load balancers keep connections, so that they close first.
  idleMs: 75_000,
  maxConnections: 10_000,
  maxAddressConnections: 1_000,
  // Three for each of the 1,000 workers that one key may have, and 1,000 for clients.
  maxUserConnections: 4_000,
  maxPipelinedRequests: 100,
  maxKeylessPipelinedRequests: 4,
  maxEventStreams: 1_000,
  // One for each of the 1,000 workers that one key may have, and one more while it reconnects.
  maxUserStreams: 2_000,
  maxConnectionStreams: 100,
  trustedProxies: [],
  forwardedHeaders: 'x-forwarded',
};

export function completeBounds(bounds: Partial<HttpBounds> = {}): HttpBounds {
  return { ...DEFAULT_BOUNDS, ...bounds };
}

export type HeadBounds = Pick<HttpBounds, 'maxTargetBytes' | 'maxHeaderBytes'>;

/** `: ` and the line break. */
const HEADER_FRAME_BYTES = 4;

export interface Head {
  url: string;
  headerBytes: number;
}

export function measureHead({ rawHeaders, url = '' }: Pick<IncomingMessage, 'rawHeaders' | 'url'>) {
  let headerBytes = (rawHeaders.length / 2) * HEADER_FRAME_BYTES;
  for (const text of rawHeaders) headerBytes += text.length;
  return { url, headerBytes };
}

/** Returns why the request is rejected, or undefined. */
export function findExcess(
  { headerBytes, url }: Head,
  { maxHeaderBytes, maxTargetBytes }: HeadBounds,
): ProblemError | undefined {
  // RunPod's workers name all their jobs in the query of a ping.
  const maxBytes = url.startsWith(RUNPOD_BASE) ? maxHeaderBytes : maxTargetBytes;
  if (url.length > maxBytes) return refuseTarget(maxBytes);
  return headerBytes > maxHeaderBytes ? refuseHeaders(maxHeaderBytes) : undefined;
}

/** For a head that Node has stopped reading. `packet`: the last data received. */
export function describeOverflow(
  packet: unknown,
  { maxHeaderBytes, maxTargetBytes }: HeadBounds,
): ProblemError {
  if (!Buffer.isBuffer(packet)) return refuseHeaders(maxHeaderBytes);
  const isStart = /^[A-Z-]+ /.test(packet.toString('latin1', 0, 32));
  const lineEnd = packet.indexOf('\r\n');
  const isLong = isStart && (lineEnd < 0 || lineEnd > maxTargetBytes);
  return isLong ? refuseTarget(maxTargetBytes) : refuseHeaders(maxHeaderBytes);
}

function refuseTarget(maxBytes: number): ProblemError {
  return new ProblemError('target_too_long', `Path and query are longer than ${maxBytes} bytes.`);
}

function refuseHeaders(maxBytes: number): ProblemError {
  return new ProblemError('headers_too_large', `The headers are larger than ${maxBytes} bytes.`);
}

/** Limits of gRPC calls without a valid key. */
export interface KeylessLimits {
  /** Bytes that one call may send. Default 65,536. */
  bytes: number;
  /** How long a call may last, ms; an answered health `Watch` has no limit. Default 5,000. */
  ms: number;
  /** Open calls of one address. Default 100. */
  calls: number;
  /** Open health `Watch` calls of one address. Default 100. */
  watches: number;
}

export const DEFAULT_KEYLESS_LIMITS: KeylessLimits = {
  bytes: 65_536,
  ms: 5_000,
  calls: 100,
  watches: 100,
};
