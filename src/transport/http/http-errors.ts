// What an HTTP answer that is no success, or none at all, means for the worker.
import { readRetryAfterMs } from '../../base/retry-after.ts';
import { LinkError, type LinkErrorCode } from '../../wire/link/worker-link.ts';
import type { WorkerVerb } from '../../wire/routes.ts';

/** An endpoint may be unknown for as long as a platform is being set up; asking often is no use. */
const NOT_FOUND_RETRY_MS = 10_000;
/** Whatever is asked for: a timer of more than 24 days would fire at once. */
const MAX_RETRY_AFTER_MS = 3_600_000;

export interface AnswerFacts {
  verb: WorkerVerb;
  status: number;
  body: Uint8Array;
  /** The header as it came. */
  retryAfter: string | undefined;
}

/**
 * 401 and 403: `unauthorized`. 409 with one of our codes: that. 404, 408, 425, 429 and 5xx:
 * `unavailable`, for they pass; an endpoint that is not there (yet) is asked for slowly. All others,
 * redirects too: `invalid`.
 */
export function toAnswerError({ verb, status, body, retryAfter }: AnswerFacts): LinkError {
  const { code, detail } = readProblem(body);
  const message = `${verb}: ${status}${detail ? ` ${detail}` : ''}`;
  const linkCode = judge(status, code);
  const askedMs = readRetryAfter(retryAfter);
  const retryAfterMs = askedMs ?? (status === 404 ? NOT_FOUND_RETRY_MS : undefined);
  return new LinkError(linkCode, message, { retryAfterMs });
}

function judge(status: number, code: string | undefined): LinkErrorCode {
  if (status === 401 || status === 403) return 'unauthorized';
  if (status === 409 && (code === 'stale_incarnation' || code === 'unknown_worker')) return code;
  if (status >= 500 || [404, 408, 425, 429].includes(status)) return 'unavailable';
  return 'invalid';
}

/** What there is of a problem's members; the body may be anybody's. */
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

/** In words, with the system's code where there is one. */
export function describeFailure(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  const code = 'code' in cause && typeof cause.code === 'string' ? cause.code : undefined;
  // A refused connection on several addresses comes as an error without words of its own.
  const first = cause instanceof AggregateError ? cause.errors[0] : undefined;
  const words = cause.message || (first instanceof Error ? first.message : cause.name);
  return code && !words.includes(code) ? `${words} (${code})` : words;
}
