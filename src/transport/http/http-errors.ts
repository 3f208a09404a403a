// Translates an HTTP error response, or a failed request, into a LinkError.

import { readRetryAfterMs } from '../../base/backoff.ts';
import { describeProxy } from '../../base/net/outgoing-proxy.ts';
import { describeRedirect } from '../../base/net/request-hints.ts';
import { LinkError, type LinkErrorCode } from '../../wire/link/worker-link.ts';
import type { WorkerVerb } from '../../wire/routes/routes.ts';

/** An endpoint may be unknown while a platform is being set up; frequent retries do not help. */
const NOT_FOUND_RETRY_MS = 10_000;
/** Upper bound of any requested wait: a timer of more than 24 days would fire at once. */
const MAX_RETRY_AFTER_MS = 3_600_000;

interface AnswerFacts {
  verb: WorkerVerb;
  status: number;
  body: Uint8Array;
  /** The header's raw value. */
  retryAfter: string | undefined;
  location: string | undefined;
  /** URL of the platform. */
  url: string;
  /** Of the operation. */
  path: string;
  /** Has carried the answer, and may have made it. */
  proxy: URL | undefined;
}

/**
 * 401 and 403: `unauthorized`. 409 with one of Millrace's codes: that code. 404, 408, 425, 429 and
 * 5xx: `unavailable`, because they are temporary; a missing endpoint is retried slowly, and is told from a 404 of a
 * proxy by Millrace's code. All others, redirects included: `invalid`.
 */
export function toAnswerError(facts: AnswerFacts): LinkError {
  const { verb, status, body, retryAfter, proxy } = facts;
  const { code, detail } = readProblem(body);
  const redirect = describeRedirect(facts);
  const via = code === undefined ? describeProxy(proxy) : '';
  const message = `${verb}: ${redirect ?? `${status}${detail ? ` ${detail}` : ''}`}${via}`;
  const linkCode = judge(status, code);
  const askedMs = readRetryAfter(retryAfter);
  const retryAfterMs = askedMs ?? (status === 404 ? NOT_FOUND_RETRY_MS : undefined);
  const endpointMissing = status === 404 && code === 'not_found';
  return new LinkError(linkCode, message, { retryAfterMs, endpointMissing });
}

function judge(status: number, code: string | undefined): LinkErrorCode {
  if (status === 401 || status === 403) return 'unauthorized';
  if (status === 409 && (code === 'stale_incarnation' || code === 'unknown_worker')) return code;
  if (status >= 500 || [404, 408, 425, 429].includes(status)) return 'unavailable';
  return 'invalid';
}

/** Reads the members of a problem, as far as present; the body may come from any server. */
function readProblem(body: Uint8Array): { code?: string; detail?: string } {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder().decode(body));
  } catch {
    return {};
  }
  if (typeof value !== 'object' || value === null) return {};
  const problem: { code?: string; detail?: string } = {};
  if ('code' in value && typeof value.code === 'string') problem.code = value.code;
  if ('detail' in value && typeof value.detail === 'string') problem.detail = value.detail;
  return problem;
}

function readRetryAfter(value: string | undefined): number | undefined {
  const ms = readRetryAfterMs(value, Date.now());
  return ms && Math.min(ms, MAX_RETRY_AFTER_MS);
}

/** Describes a failure with the system's error code, if any. */
export function describeCallFailure(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  const code = 'code' in cause && typeof cause.code === 'string' ? cause.code : undefined;
  // A connection that is refused on several addresses has an error without a message.
  const first = cause instanceof AggregateError ? cause.errors[0] : undefined;
  const words = cause.message.trim() || (first instanceof Error ? first.message : cause.name);
  return code && !words.includes(code) ? `${words} (${code})` : words;
}
