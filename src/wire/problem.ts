// The errors of the API as a closed list, in the form of application/problem+json, and the sentences about members
// that fail validation: each names the path and the fault.
import type { z } from 'zod';

/** code: [HTTP status, title]. Programs read the code, people the title. */
export const PROBLEMS = {
  malformed: [400, 'Malformed request'],
  rule_broken: [400, 'Request conflicts with the rules'],
  unauthorized: [401, 'Unauthorized'],
  forbidden: [403, 'Forbidden'],
  not_found: [404, 'Not found'],
  method_not_allowed: [405, 'Method not allowed'],
  request_timeout: [408, 'Request timeout'],
  conflict: [409, 'Conflict'],
  quota_exceeded: [409, 'Quota exceeded'],
  over_capacity: [409, 'Not enough capacity'],
  over_budget: [409, 'Budget used up'],
  stale_incarnation: [409, 'A newer process uses this worker ID'],
  unknown_worker: [409, 'Worker has not said hello'],
  payload_too_large: [413, 'Payload too large'],
  target_too_long: [414, 'Path and query too long'],
  unsupported_media_type: [415, 'Unsupported media type'],
  invalid: [422, 'Validation failed'],
  queue_full: [429, 'Queue is full'],
  rate_limited: [429, 'Rate limit exceeded'],
  headers_too_large: [431, 'Headers too large'],
  internal: [500, 'Internal error'],
  worker_failed: [502, 'The worker failed'],
  unavailable: [503, 'Service unavailable'],
  worker_timed_out: [504, 'The worker did not answer in time'],
} as const satisfies Record<string, readonly [status: number, title: string]>;

export type ProblemCode = keyof typeof PROBLEMS;

/** The body of every error response. `code` is Millrace's addition to the specification. */
export interface Problem {
  title: string;
  status: number;
  detail: string;
  code: ProblemCode;
  /** Validation errors; each names the path and the problem. */
  errors?: string[];
}

export interface ProblemOptions {
  errors?: string[];
  /** Becomes the `Retry-After` header, rounded up to seconds. */
  retryAfterMs?: number;
  cause?: unknown;
}

/** An error whose message may be shown to the caller. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError';
  readonly code: ProblemCode;
  readonly errors: string[] | undefined;
  readonly retryAfterMs: number | undefined;

  constructor(code: ProblemCode, detail: string, options: ProblemOptions = {}) {
    super(detail, { cause: options.cause });
    this.code = code;
    this.errors = options.errors;
    this.retryAfterMs = options.retryAfterMs;
  }

  get status(): number {
    return PROBLEMS[this.code][0];
  }

  toProblem(): Problem {
    const [status, title] = PROBLEMS[this.code];
    const problem: Problem = { title, status, detail: this.message, code: this.code };
    if (this.errors) problem.errors = this.errors;
    return problem;
  }
}

/** A caller who sent only errors does not need all of them. */
export const MAX_DESCRIBED = 20;
/** Characters of a path that are shown. */
const MAX_PATH_LENGTH = 200;

/**
 * Returns one string for each of the first 20 errors, and one that counts the rest; `root` stands
 * for an empty path. `start`: path of the checked value.
 */
export function describeIssues(
  error: z.ZodError,
  root = 'body',
  start: readonly PropertyKey[] = [],
): string[] {
  const described: string[] = [];
  let count = 0;
  const add = (path: readonly PropertyKey[], message: string) => {
    count += 1;
    if (count <= MAX_DESCRIBED) {
      described.push(`${formatPath([...start, ...path], root)}: ${message}`);
    }
  };
  for (const issue of error.issues) {
    if (issue.code !== 'unrecognized_keys') add(issue.path, issue.message);
    else for (const key of issue.keys) add([...issue.path, key], 'is unknown');
  }
  const left = count - described.length;
  return left > 0 ? [...described, `${root}: ${left} more errors`] : described;
}

export function formatPath(path: readonly PropertyKey[], root = 'body'): string {
  let text = '';
  for (const part of path) {
    if (typeof part === 'number') text += `[${part}]`;
    else text += text === '' ? String(part) : `.${String(part)}`;
  }
  if (text === '') return root;
  return text.length > MAX_PATH_LENGTH ? `${text.slice(0, MAX_PATH_LENGTH)}…` : text;
}
