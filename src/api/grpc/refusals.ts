// Translates errors for gRPC: to the status of a rejected stream, or to the refusal of one
// question.
import { randomUUID } from 'node:crypto';
import { Metadata, status } from '@grpc/grpc-js';
import type { Log } from '../../base/log.ts';
import type { LinkErrorCode } from '../../wire/link/worker-link.ts';
import { METADATA } from '../../wire/link/worker-stream.ts';
import { type ProblemCode, ProblemError } from '../../wire/problem.ts';
import { toProblem } from '../http/problem-reply.ts';

const STATUSES: Partial<Record<ProblemCode, status>> = {
  malformed: status.INVALID_ARGUMENT,
  invalid: status.INVALID_ARGUMENT,
  unauthorized: status.UNAUTHENTICATED,
  forbidden: status.PERMISSION_DENIED,
  not_found: status.NOT_FOUND,
  payload_too_large: status.RESOURCE_EXHAUSTED,
  unavailable: status.UNAVAILABLE,
};

const LINK_CODES: Partial<Record<ProblemCode, LinkErrorCode>> = {
  malformed: 'invalid',
  invalid: 'invalid',
  payload_too_large: 'invalid',
  unauthorized: 'unauthorized',
  forbidden: 'unauthorized',
  stale_incarnation: 'stale_incarnation',
  unknown_worker: 'unknown_worker',
};

/** In the form that `call.destroy` expects. */
export function toStatus(problem: ProblemError): Error {
  const metadata = new Metadata();
  if (problem.retryAfterMs !== undefined) {
    metadata.set(METADATA.retryAfterMs, String(Math.ceil(problem.retryAfterMs)));
  }
  const code = STATUSES[problem.code] ?? status.INTERNAL;
  return Object.assign(new Error(problem.message), { code, details: problem.message, metadata });
}

/** Content of a `Refusal`. */
export function toRefusal(problem: ProblemError): object {
  const { code, errors, message, retryAfterMs } = problem;
  return {
    code: LINK_CODES[code] ?? 'unavailable',
    detail: errors && errors.length > 0 && code === 'malformed' ? errors.join('; ') : message,
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
}

/** An internal error is logged and shown only by its ID. */
export function showProblem(error: unknown, log: Log): ProblemError {
  const problem = toProblem(error);
  if (problem) return problem;
  const id = randomUUID();
  log.error({ err: error, errorId: id }, 'worker call failed');
  return new ProblemError('internal', `The platform failed; its log has the cause under ${id}.`);
}
