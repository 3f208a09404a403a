// Translates the end of a stream, or the platform's refusal of one question, into a LinkError.
import { type Metadata, type StatusObject, status } from '@grpc/grpc-js';
import { adviseTrust, TRUST_ADVICE } from '../../base/net/request-hints.ts';
import { LINK_ERROR_CODES, LinkError, type LinkErrorCode } from '../../wire/link/worker-link.ts';
import { METADATA } from '../../wire/link/worker-stream.ts';

/** An endpoint, or the whole service, may be missing while a platform is being set up. */
const NOT_FOUND_RETRY_MS = 10_000;
/** Upper bound of any requested wait: a timer of more than 24 days would fire at once. */
const MAX_RETRY_AFTER_MS = 3_600_000;

const HUNG_UP =
  'closed while opening; check whether the port needs TLS or another client certificate';
/** Texts of the library for a peer that hangs up or speaks another protocol. */
const HINTS = new Map([
  ['Failed to connect', HUNG_UP],
  ['read ECONNRESET', HUNG_UP],
  ['Protocol error', 'the server does not speak HTTP/2; check that the port is the gRPC port'],
]);

/**
 * UNAUTHENTICATED and PERMISSION_DENIED: `unauthorized`. INVALID_ARGUMENT, FAILED_PRECONDITION and
 * OUT_OF_RANGE: `invalid`. All others are temporary; a missing endpoint or service is retried
 * slowly.
 */
export function toStatusError({ code, details, metadata }: StatusObject, via = ''): LinkError {
  const name = status[code] ?? String(code);
  const retryAfterMs =
    readRetryAfterMs(metadata) ?? (isMissing(code) ? NOT_FOUND_RETRY_MS : undefined);
  const why = describeDetails(details);
  // A proxy's 404 is UNIMPLEMENTED, so NOT_FOUND comes from a platform.
  const endpointMissing = code === status.NOT_FOUND;
  const linkCode = judge(code);
  // Otherwise the platform has answered.
  const clause = linkCode === 'unavailable' && !endpointMissing ? via : '';
  return new LinkError(linkCode, `stream ended: ${name} ${why}${clause}`, {
    retryAfterMs,
    endpointMissing,
  });
}

/**
 * Without a connection, the library's text contains the time and lines of OpenSSL, so that the same
 * failure would look new each time.
 */
function describeDetails(details: string): string {
  const [, said] =
    /^No connection established\. Last error: (.*)\. Resolution note:/s.exec(details) ?? [];
  if (said === undefined) {
    const isRedirect = /^Received HTTP status code 30[12378]$/.test(details);
    return isRedirect ? `${details}; the server redirects, use the URL of the gRPC port` : details;
  }
  const reason = said.replace(/\s*\(\d{4}-[\dT:.-]+Z\)$/, '').replace(/^Error: /, '');
  const [, tls] = /^[0-9A-F]+:error:[0-9A-F]+:[^:]*:[^:]*:([^:]+):/.exec(reason) ?? [];
  return `no connection: ${tls === undefined ? (HINTS.get(reason) ?? adviseTrust(reason, TRUST_ADVICE)) : `TLS: ${tls}`}`;
}

function judge(code: status): LinkErrorCode {
  switch (code) {
    case status.UNAUTHENTICATED:
    case status.PERMISSION_DENIED:
      return 'unauthorized';
    case status.INVALID_ARGUMENT:
    case status.FAILED_PRECONDITION:
    case status.OUT_OF_RANGE:
      return 'invalid';
    default:
      return 'unavailable';
  }
}

function isMissing(code: status): boolean {
  return code === status.NOT_FOUND || code === status.UNIMPLEMENTED;
}

function readRetryAfterMs(metadata: Metadata): number | undefined {
  const [text] = metadata.get(METADATA.retryAfterMs);
  return typeof text === 'string' && /^\d{1,9}$/.test(text) ? limit(Number(text)) : undefined;
}

function limit(retryAfterMs: number): number {
  return Math.min(Math.max(0, retryAfterMs), MAX_RETRY_AFTER_MS);
}

/** Translates a `Refusal`; an unknown code counts as temporary. */
export function toRefusalError(verb: string, refusal: unknown): LinkError {
  const members = new Map<string, unknown>(Object.entries(Object(refusal)));
  const code = LINK_ERROR_CODES.find((word) => word === members.get('code'));
  const detail = members.get('detail');
  const retryAfterMs = members.get('retryAfterMs');
  return new LinkError(
    code ?? 'unavailable',
    `${verb}: ${typeof detail === 'string' ? detail : ''}`,
    {
      retryAfterMs:
        typeof retryAfterMs === 'number' && retryAfterMs >= 0 ? limit(retryAfterMs) : undefined,
    },
  );
}
