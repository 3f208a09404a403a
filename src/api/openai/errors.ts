// The error format of the OpenAI API, and the errors that failed jobs and handlers' answers become.
import type { AttemptError, ErrorCode, JobStatus } from '../../wire/job/job.ts';
import { type ProblemCode, ProblemError } from '../../wire/problem.ts';
import { OPENAI_PATH, RUNPOD_BASE } from '../../wire/routes/routes.ts';
import { JSON_MEDIA_TYPE } from '../http/byte-reply.ts';
import type { ErrorForm } from '../http/problem-reply.ts';

/** Ends the stream with an error of the job's output, or of the wait for it. */
export class FailedStream extends Error {
  readonly shown: OpenAiError;

  constructor(shown: OpenAiError) {
    super('the stream ends with an error');
    this.shown = shown;
  }
}

export interface OpenAiError {
  status: number;
  /** As in the answer: with `message`, `type` and `code`. */
  error: object;
}

const BELOW = new RegExp(`^(?:${RUNPOD_BASE})?/v2/[^/?]+${OPENAI_PATH}/`);

export function isBelowOpenAi(url: string): boolean {
  return BELOW.test(url);
}

/** Clients of this API repeat a request after 409, so a conflict that stays is 400, like invalid bodies. */
const STATUSES: Partial<Record<ProblemCode, number>> = { conflict: 400, invalid: 400 };

/** The codes that clients of this API know. Other codes are Millrace's. */
const CODES: Partial<Record<ProblemCode, string>> = {
  unauthorized: 'invalid_api_key',
  rate_limited: 'rate_limit_exceeded',
};

export const OPENAI_ERRORS: ErrorForm = {
  mediaType: JSON_MEDIA_TYPE,
  status: ({ code, status }) => STATUSES[code] ?? status,
  body: ({ code, message, status }) =>
    composeError(STATUSES[code] ?? status, message, CODES[code] ?? code),
};

export function describeProblem(problem: ProblemError): OpenAiError {
  const { code, message } = problem;
  return describeError(OPENAI_ERRORS.status(problem), message, CODES[code] ?? code);
}

const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  429: 'rate_limit_error',
  499: 'request_cancelled',
};

/** The body of an error answer. */
export function composeError(status: number, message: string, code: string): { error: object } {
  const type = TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'server_error');
  return { error: { message, type, param: null, code } };
}

export function describeError(status: number, message: string, code: string): OpenAiError {
  return { status, ...composeError(status, message, code) };
}

/** "Client closed request": OpenAI's clients do not repeat a request after it, as they do after 409 and 500. */
const CANCELLED_STATUS = 499;

/** Errors that the request has caused, not the handler. */
const CALLERS_FAULTS: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['input_invalid']);

/** The error of a job that has ended without a result. */
export function describeFailure(status: JobStatus, error: AttemptError | null): OpenAiError {
  if (status === 'CANCELLED') {
    return describeError(CANCELLED_STATUS, 'The job was cancelled.', 'cancelled');
  }
  const { code, message } = error ?? { code: 'handler_error', message: 'The job failed.' };
  if (status === 'TIMED_OUT') return describeError(504, message, code);
  if (!CALLERS_FAULTS.has(code)) return describeError(500, message, code);
  return describeError(error?.type === 'NotFoundError' ? 404 : 400, message, code);
}

/**
 * The error in an answer of the handler: `{ error: { message, … } }`, `{ error: "text" }`, or
 * `{ object: "error", message, … }` as vLLM wrote it before. A `code` that is an HTTP status becomes the status.
 * Undefined if the answer is no error.
 */
export function findError(answer: unknown): OpenAiError | undefined {
  if (!isObject(answer)) return undefined;
  const { error, object } = answer;
  if (typeof error === 'string') return describeError(500, error, 'handler_error');
  if (isObject(error)) return { status: readStatus(error), error };
  if (object !== 'error') return undefined;
  const { object: _object, ...rest } = answer;
  return { status: readStatus(rest), error: rest };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function readStatus({ code, type }: Record<string, unknown>): number {
  const status = Number(code);
  if (Number.isInteger(status) && status >= 400 && status <= 599) return status;
  return /invalid_?request|bad_?request/i.test(String(type)) ? 400 : 500;
}

export function describeStop(): ProblemError {
  const detail = 'The platform is stopping; send the request again.';
  return new ProblemError('unavailable', detail, { retryAfterMs: 1_000 });
}
