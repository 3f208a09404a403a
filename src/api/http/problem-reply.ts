// Every error on its way out: turned into a problem, written as application/problem+json unless the
// clients of a route know another form.
import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { StoreUnavailableError } from '../../queue/queue.ts';
import { LinkError, type LinkErrorCode } from '../../wire/link/worker-link.ts';
import { type ProblemCode, ProblemError } from '../../wire/problem.ts';
import { isAwaitingContinue } from './exchanges.ts';

export const PROBLEM_MEDIA_TYPE = 'application/problem+json';

/** What a caller is told to wait when nothing better is known, ms. */
const RETRY_MS = 1_000;
/** How long a client may go on sending a body that nobody reads, so that it gets to the answer. */
const LINGER_MS = 2_000;

const LINK_PROBLEMS: Record<LinkErrorCode, ProblemCode> = {
  unauthorized: 'unauthorized',
  stale_incarnation: 'stale_incarnation',
  unknown_worker: 'unknown_worker',
  unavailable: 'unavailable',
  invalid: 'invalid',
};

/** How an error lies in its answer. */
export interface ErrorForm {
  mediaType: string;
  status(problem: ProblemError): number;
  /** What is sent as JSON. */
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
  /** The platform is stopping. Default: never. */
  isClosing?: () => boolean;
  /** The form for the request's path. Default: application/problem+json. */
  formFor?: (url: string) => ErrorForm | undefined;
}

export class ProblemReplies {
  readonly #options: ProblemReplyOptions;

  constructor(options: ProblemReplyOptions) {
    this.#options = options;
  }

  /** Answers with the error; one that is not meant to be seen is logged under an id. */
  send(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
    const isGone = reply.raw.destroyed || request.raw.socket.destroyed;
    if (isGone && isExpected(error)) {
      // Nobody reads the answer, and thousands of clients may go away at once.
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
    // As bytes: to a string of a JSON type the framework would add a charset, which has none.
    reply.send(Buffer.from(JSON.stringify(form.body(problem))));
  }

  #hide(error: unknown, request: FastifyRequest): ProblemError {
    const id = randomUUID();
    const { method } = request;
    const route = request.routeOptions.url;
    this.#options.log.error({ err: error, errorId: id, method, route }, 'request failed');
    return new ProblemError('internal', `The platform failed; its log has the cause under ${id}.`);
  }

  #endBody(request: FastifyRequest, reply: FastifyReply): void {
    // The client waits with its body and will not send it, or it will: what comes next is unclear.
    if (isAwaitingContinue(request.raw)) reply.header('connection', 'close');
    // At the platform's end nothing is waited for.
    else if (!this.#options.isClosing?.()) this.#linger(request, reply);
  }

  /**
   * The answer comes before the body was read. Closing at once would reset the connection and with
   * it, for a client that is still sending, lose the answer: the rest is thrown away for a moment.
   */
  #linger(request: FastifyRequest, reply: FastifyReply): void {
    const { raw } = request;
    const closesAfter = !reply.raw.shouldKeepAlive;
    reply.removeHeader('connection');
    // Otherwise a client that asked for the end of the connection gets it right behind the answer.
    reply.raw.shouldKeepAlive = true;
    reply.raw.once('finish', () => {
      const cancel = this.#options.clock.after(LINGER_MS, () => {
        if (!raw.complete) raw.socket.destroy();
      });
      raw.socket.once('close', cancel);
      raw.once('end', () => {
        cancel();
        // The connection may live on, through many refusals.
        raw.socket.off('close', cancel);
        if (closesAfter) raw.socket.destroySoon();
      });
    });
  }
}

/** Other errors are logged, whether or not the client is there. */
function isExpected(error: unknown): boolean {
  if (error instanceof ProblemError) return true;
  if (!(error instanceof Error) || !('code' in error)) return false;
  return error.code === 'ECONNRESET' || String(error.code).startsWith('FST_ERR_CTP_');
}

function hasUnreadBody({ headers, raw }: FastifyRequest): boolean {
  if (raw.complete) return false;
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/** The error as it may be shown, or undefined. */
export function toProblem(error: unknown): ProblemError | undefined {
  if (error instanceof ProblemError) return error;
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

/** What the HTTP framework itself refuses, before a route sees it. */
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
    // Longer than any id that was ever given out.
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new ProblemError('not_found', 'The path has a segment that is too long.');
    case 'FST_ERR_BAD_URL':
      return new ProblemError('malformed', 'The path is not a valid URL path.');
    // The client went away within its body: there is nobody left to read this.
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
 * For what is not even a request: there is only the socket. It ends with the answer, and a client that
 * holds on to it, or goes on sending, does so for a moment only.
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

function writeRawProblem(error: ProblemError): string {
  const body = JSON.stringify(error.toProblem());
  return [
    `HTTP/1.1 ${error.status} ${error.toProblem().title}`,
    `Content-Type: ${PROBLEM_MEDIA_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Connection: close',
    '',
    body,
  ].join('\r\n');
}

/** Made once: a reason of its own for each abort costs more than all that the abort does. */
const GONE = new DOMException('The client has gone', 'AbortError');

/** Aborts when the client goes away before its answer was written whole. */
export function abortWhenGone(response: ServerResponse): AbortSignal {
  const gone = new AbortController();
  if (response.closed || response.destroyed) gone.abort(GONE);
  response.once('close', () => {
    if (!response.writableFinished) gone.abort(GONE);
  });
  return gone.signal;
}
