// One request on its way to a worker and its answer on the way back, both as they come: nothing is kept
// longer than the slower side needs. Which worker it is, and what follows when none was reached, is
// lb-routes.ts's.
import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { type Duplex, PassThrough } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Dispatcher } from 'undici';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { ProblemError } from '../../wire/problem.ts';
import { composeAnswerHeaders, composeRequestHeaders } from './headers.ts';
import { joinTunnel, type UpgradeRequest } from './upgrade.ts';

/** How long a client may go on sending a body of which its worker wants no more. */
const LINGER_MS = 2_000;
/** Informational answers passed on before one answer: they are written whether or not the client reads. */
const MAX_HINTS = 20;

export interface Passage {
  request: FastifyRequest;
  reply: FastifyReply;
  /** To the worker. */
  dispatcher: Dispatcher;
  /** Path and query for the worker. */
  target: string;
  /** What of the path stays here. */
  prefix: string;
  /** Whether what a peer says of its clients is believed. */
  isTrusted: (address: string) => boolean;
  /** From the end of the request to the headers of the answer, ms. */
  headersLimitMs: number;
  /** Aborts when the client is gone. */
  gone: AbortSignal;
  /** Set if the connection is to become another one than HTTP. */
  upgrade: UpgradeRequest | undefined;
  log: Log;
  clock: Clock;
}

/** `unreached`: nothing has come to the worker, and nothing of the body was read. */
export type PassageEnd = 'over' | 'unreached';

/**
 * Resolves when the answer has been passed on, or cut off, or the client is gone.
 * @throws ProblemError `worker_failed`, `worker_timed_out`, `malformed`, as long as nothing is answered
 */
export function passOn(passage: Passage): Promise<PassageEnd> {
  const { dispatcher, headersLimitMs, request, target, upgrade } = passage;
  return new Promise((resolve, reject) => {
    const exchange = new Exchange(passage, { resolve, reject });
    dispatcher.dispatch(
      {
        method: request.method,
        path: target,
        headers: composeRequestHeaders(request.raw, passage),
        body: exchange.body ?? null,
        ...{ headersTimeout: headersLimitMs, bodyTimeout: 0 },
        ...(upgrade && { upgrade: upgrade.protocol }),
      },
      exchange,
    );
  });
}

interface Settle {
  resolve: (end: PassageEnd) => void;
  reject: (problem: ProblemError) => void;
}

class Exchange implements Dispatcher.DispatchHandler {
  /** Between the two sides: a worker that breaks off does not take the client's connection along. */
  readonly body: PassThrough | undefined;
  readonly #passage: Passage;
  readonly #settle: Settle;
  readonly #response: ServerResponse;
  #controller: Dispatcher.DispatchController | undefined;
  #isAnswering = false;
  #hasWritten = false;
  #hints = 0;

  constructor(passage: Passage, settle: Settle) {
    this.#passage = passage;
    this.#settle = settle;
    this.#response = passage.reply.raw;
    if (hasBody(passage.request)) {
      this.body = new PassThrough();
      // What went wrong is told by the connection that it was for.
      this.body.on('error', () => {});
    }
    passage.gone.addEventListener('abort', this.#abort, { once: true });
  }

  /** Called when there is a connection: from here on the worker may have seen something. */
  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    const { gone, request } = this.#passage;
    if (gone.aborted) {
      this.#abort();
      return;
    }
    if (!this.body) return;
    if (request.headers.expect !== undefined) this.#response.writeContinue();
    request.raw.pipe(this.body);
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    if (status < 200) {
      this.#passHint(status, headers);
      return;
    }
    this.#answer(status, headers);
    this.#response.on('drain', () => controller.resume());
    // An event stream says that it is there before it has anything to say; others save the packet.
    process.nextTick(() => {
      if (!this.#hasWritten && !this.#response.destroyed) this.#response.flushHeaders();
    });
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#response.destroyed) return;
    this.#hasWritten = true;
    if (!this.#response.write(chunk)) controller.pause();
  }

  onResponseEnd(_controller: Dispatcher.DispatchController, trailers: IncomingHttpHeaders): void {
    if (!this.#response.destroyed) {
      this.#hasWritten = true;
      this.#response.addTrailers(trailers);
      this.#response.end();
      this.#limitRest();
    }
    this.#end('over');
  }

  onRequestUpgrade(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
    worker: Duplex,
  ): void {
    const { clock, upgrade } = this.#passage;
    if (!upgrade) throw new Error('worker switched protocols without an upgrade request');
    this.#answer(status, { ...headers, connection: undefined });
    this.#response.end();
    const { socket } = upgrade;
    const end = () => this.#end('over');
    joinTunnel({ client: socket, worker, head: upgrade.takeEarly(), clock }).then(end, end);
  }

  /** Undici has no controller for what it refuses itself. */
  onResponseError(_controller: Dispatcher.DispatchController | null, error: Error): void {
    const { gone, reply } = this.#passage;
    if (gone.aborted) {
      if (!reply.sent) reply.hijack();
    } else if (this.#isAnswering) {
      // A clean end would pass for a whole answer.
      this.#response.destroy();
    } else if (this.#controller || isRefusal(error)) {
      this.#fail(error);
      return;
    } else {
      this.#end('unreached');
      return;
    }
    this.#end('over');
  }

  /** The headers that the platform has set itself stand above the worker's. */
  #answer(status: number, headers: IncomingHttpHeaders): void {
    this.#isAnswering = true;
    const { reply, request, upgrade } = this.#passage;
    const response = reply.hijack().raw;
    for (const [name, value] of composeAnswerHeaders(headers)) response.setHeader(name, value);
    for (const [name, value] of Object.entries(reply.getHeaders())) {
      if (value !== undefined) response.setHeader(name, value);
    }
    if (status === 101 && upgrade) {
      response.setHeader('connection', 'upgrade').setHeader('upgrade', upgrade.protocol);
    }
    const isChunked = request.method !== 'HEAD' && !response.hasHeader('content-length');
    if (headers.trailer !== undefined && isChunked && request.raw.httpVersionMinor > 0) {
      response.setHeader('trailer', headers.trailer);
    }
    response.writeHead(status);
  }

  #passHint(status: number, { link }: IncomingHttpHeaders): void {
    if (this.#passage.request.raw.httpVersionMinor === 0 || this.#hints >= MAX_HINTS) return;
    this.#hints += 1;
    if (status === 102) this.#response.writeProcessing();
    if (status !== 103 || link === undefined) return;
    try {
      this.#response.writeEarlyHints({ link });
    } catch {
      // A form of link that Node does not write: it is no more than a hint.
    }
  }

  readonly #abort = (): void => {
    this.#controller?.abort(new Error('the client disconnected'));
  };

  #fail(error: Error): void {
    const { headersLimitMs, log, request } = this.#passage;
    const code = 'code' in error && error.code !== undefined ? String(error.code) : error.name;
    this.#release();
    if (code === 'UND_ERR_INVALID_ARG') {
      const detail = 'the request has a path or a header that cannot be forwarded';
      this.#settle.reject(new ProblemError('malformed', detail));
      return;
    }
    // The error itself holds what the worker had sent.
    const about = { code, reason: error.message, path: request.url };
    log.warn(about, 'worker did not answer a request');
    if (code === 'UND_ERR_HEADERS_TIMEOUT') {
      const detail = `no answer began within ${headersLimitMs} ms`;
      this.#settle.reject(new ProblemError('worker_timed_out', detail));
      return;
    }
    const detail = `the connection to the worker broke before it answered (${code})`;
    this.#settle.reject(new ProblemError('worker_failed', detail));
  }

  #end(end: PassageEnd): void {
    this.#release();
    this.#settle.resolve(end);
  }

  /** What is still to come of the request's body is thrown away. */
  #release(): void {
    const { gone, request } = this.#passage;
    gone.removeEventListener('abort', this.#abort);
    if (!this.body || !this.#controller) return;
    request.raw.unpipe(this.body);
    request.raw.resume();
  }

  /** The worker has said all it has to say; a client that sends on holds the connection up. */
  #limitRest(): void {
    const { clock, request } = this.#passage;
    const { raw } = request;
    if (raw.complete) return;
    this.#response.once('finish', () => {
      const cancel = clock.after(LINGER_MS, () => raw.socket.destroy());
      raw.socket.once('close', cancel);
      raw.once('end', cancel);
    });
  }
}

function hasBody({ headers }: FastifyRequest): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/** Undici's own, before it has connected to anything. */
function isRefusal(error: Error): boolean {
  return 'code' in error && error.code === 'UND_ERR_INVALID_ARG';
}
