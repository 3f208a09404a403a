// Sends errors: converts them to problems and writes application/problem+json, or the error format
// of a route's clients.
import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { StoreUnavailableError } from '../../queue/queue.ts';
import { FieldFault } from '../../wire/link/fields.ts';
import { LinkError, type LinkErrorCode } from '../../wire/link/worker-link.ts';
import { type ProblemCode, ProblemError } from '../../wire/problem.ts';
import { announcesBody, isAwaitingContinue } from '../limits/exchanges.ts';
import type { ClientOrigins } from './client-origin.ts';

export const PROBLEM_MEDIA_TYPE = 'application/problem+json';

/** Default Retry-After, ms. */
const RETRY_MS = 1_000;
/** How long a client may continue to send an unread body, so that it can read the response, ms. */
const LINGER_MS = 2_000;

const LINK_PROBLEMS: Record<LinkErrorCode, ProblemCode> = {
  unauthorized: 'unauthorized',
  stale_incarnation: 'stale_incarnation',
  unknown_worker: 'unknown_worker',
  unavailable: 'unavailable',
  invalid: 'invalid',
};

/** The format of an error response. */
export interface ErrorForm {
  mediaType: string;
  status(problem: ProblemError): number;
  /** The JSON body. */
  body(problem: ProblemError): object;
}

const PROBLEM_FORM: ErrorForm = {
  mediaType: PROBLEM_MEDIA_TYPE,
  status: (problem) => problem.status,
  body: (problem) => problem.toProblem(),
};

export interface ProblemReplyOptions {
  log: Log;
  clock: Clock;
  /** Name the client of a failed request in the log. */
  origins: ClientOrigins;
  /** Whether the platform is stopping. Default: never. */
  isClosing?: () => boolean;
  /** The error format for the request's path. Default: application/problem+json. */
  formFor?: (url: string) => ErrorForm | undefined;
}

export class ProblemReplies {
  readonly #options: ProblemReplyOptions;

  constructor(options: ProblemReplyOptions) {
    this.#options = options;
  }

  /** Sends the error; an internal one is logged and shown only by its ID. */
  send(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
    const isGone = reply.raw.destroyed || request.raw.socket.destroyed;
    if (isGone && isExpected(error)) {
      // The client is gone, and thousands may disconnect at once.
      reply.code(error instanceof ProblemError ? error.status : 400).hijack();
      return;
    }
    const problem = toProblem(error) ?? this.#hide(error, request);
    const form = this.#options.formFor?.(request.url) ?? PROBLEM_FORM;
    reply.code(form.status(problem)).header('content-type', form.mediaType);
    if (problem.code === 'unauthorized')
      reply.header('www-authenticate', 'Bearer realm="millrace"');
    if (problem.retryAfterMs !== undefined) {
      reply.header('retry-after', Math.max(1, Math.ceil(problem.retryAfterMs / 1_000)));
    }
    if (hasUnreadBody(request)) this.#endBody(request, reply);
    // As bytes: fastify would add a charset to a string of a JSON type, which has none.
    reply.send(Buffer.from(JSON.stringify(form.body(problem))));
  }

  #hide(error: unknown, request: FastifyRequest): ProblemError {
    const id = randomUUID();
    const { method } = request;
    const address = this.#options.origins.ofRequest(request.raw).address;
    const route = request.routeOptions.url;
    this.#options.log.error({ err: error, errorId: id, method, route, address }, 'request failed');
    return new ProblemError('internal', `The platform failed; its log has the cause under ${id}.`);
  }

  #endBody(request: FastifyRequest, reply: FastifyReply): void {
    // A client that waits for `100 Continue` may or may not send its body, so the connection must end.
    if (isAwaitingContinue(request.raw)) reply.header('connection', 'close');
    // A stopping platform waits for no client.
    else if (!this.#options.isClosing?.()) this.#linger(request, reply);
  }

  /**
   * The response is sent before the body is read. Closing at once would reset the connection, and a
   * client that still sends would lose the response. So the rest of the body is discarded for a
   * moment.
   */
  #linger(request: FastifyRequest, reply: FastifyReply): void {
    const { raw } = request;
    const closesAfter = !reply.raw.shouldKeepAlive;
    reply.removeHeader('connection');
    // Otherwise fastify would close the connection right after the response, as the client
    // requested.
    reply.raw.shouldKeepAlive = true;
    reply.raw.once('finish', () => {
      const cancel = this.#options.clock.after(LINGER_MS, () => {
        if (!raw.complete) raw.socket.destroy();
      });
      raw.socket.once('close', cancel);
      raw.once('end', () => {
        cancel();
        // The connection may live on, through many rejected requests.
        raw.socket.off('close', cancel);
        if (closesAfter) raw.socket.destroySoon();
      });
    });
  }
}

/** Other errors are logged, whether or not the client is connected. */
function isExpected(error: unknown): boolean {
  if (error instanceof ProblemError || error instanceof FieldFault) return true;
  if (!(error instanceof Error) || !('code' in error)) return false;
  return error.code === 'ECONNRESET' || String(error.code).startsWith('FST_ERR_CTP_');
}

function hasUnreadBody({ body, raw }: FastifyRequest): boolean {
  // A small body is read before Node notes that the request is complete.
  return !raw.complete && body === undefined && announcesBody(raw);
}

/** Returns the error as it may be shown, or undefined. */
export function toProblem(error: unknown): ProblemError | undefined {
  if (error instanceof ProblemError) return error;
  if (error instanceof FieldFault) {
    const fault = error.describe('message');
    const detail = `The worker's message is invalid: ${fault}`;
    return new ProblemError('invalid', detail, { errors: [fault] });
  }
  if (error instanceof LinkError) {
    const retryAfterMs = error.retryAfterMs ?? RETRY_MS;
    const options = error.code === 'unavailable' ? { retryAfterMs } : {};
    return new ProblemError(LINK_PROBLEMS[error.code], error.message, options);
  }
  if (error instanceof StoreUnavailableError) {
    return new ProblemError('unavailable', 'The store cannot be written now; try again later.', {
      retryAfterMs: RETRY_MS * 5,
      cause: error,
    });
  }
  return toProblemOfFramework(error);
}

/** Errors that fastify reports before a route runs. */
function toProblemOfFramework(error: unknown): ProblemError | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined;
  switch (error.code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return new ProblemError(
        'payload_too_large',
        'The request body is larger than this operation accepts.',
      );
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return new ProblemError(
        'unsupported_media_type',
        'Content-Type is not supported by this operation; send application/json.',
      );
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return new ProblemError(
        'malformed',
        'The length of the request body differs from its Content-Length.',
      );
    // Longer than any existing ID.
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new ProblemError('not_found', 'The path has a segment that is too long.');
    case 'FST_ERR_BAD_URL':
      return new ProblemError('malformed', 'The path is not a valid URL path.');
    // The client disconnected while sending its body: nobody reads the response.
    case 'ECONNRESET':
      return new ProblemError(
        'malformed',
        'The connection was closed before the request body was complete.',
      );
    default:
      return undefined;
  }
}

/**
 * For data that is not a request: only the socket exists. The response ends the connection; a
 * client that keeps it open or sends more is tolerated only for a moment.
 */
export function endWithProblem(
  socket: Duplex,
  { clock, problem }: { problem: ProblemError; clock: Clock },
): void {
  socket.end(writeRawProblem(problem));
  socket.resume();
  socket.once(
    'close',
    clock.after(LINGER_MS, () => socket.destroy()),
  );
}

/** Headers of every answer: browsers trust its Content-Type, and show it only to pages of this origin. */
export const SAFE_HEADERS = [
  ['X-Content-Type-Options', 'nosniff'],
  ['Cross-Origin-Resource-Policy', 'same-origin'],
] as const;

function writeRawProblem(error: ProblemError): string {
  const body = JSON.stringify(error.toProblem());
  return [
    `HTTP/1.1 ${error.status} ${error.toProblem().title}`,
    `Content-Type: ${PROBLEM_MEDIA_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    ...SAFE_HEADERS.map(([name, value]) => `${name}: ${value}`),
    'Connection: close',
    '',
    body,
  ].join('\r\n');
}

/** Created once: a new error for each abort costs more than the rest of the abort. */
const GONE = new DOMException('The client has gone', 'AbortError');

/** Aborts when the client disconnects before its response was completely written. */
export function abortWhenGone(response: ServerResponse): AbortSignal {
  return openWait(response).signal;
}

/** As `abortWhenGone`, for a wait that may also end for another reason. */
export function openWait(response: ServerResponse): AbortController {
  const gone = new AbortController();
  if (response.closed || response.destroyed) gone.abort(GONE);
  response.once('close', () => {
    if (!response.writableFinished) gone.abort(GONE);
  });
  return gone;
}
