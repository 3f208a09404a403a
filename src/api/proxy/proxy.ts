// The proxy of load-balancing endpoints: chooses a worker for a request, and another one if the first is unreachable;
// forwards the request to it and the response back, unchanged, at the pace of the slower side.
import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { type Duplex, PassThrough } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Dispatcher } from 'undici';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { http } from '../../base/net/node-http.ts';
import type { Balancer } from '../../control/balancing/balancer.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import { ProblemError } from '../../wire/problem.ts';
import { LB_ROUTE } from '../../wire/routes/routes.ts';
import type { ClientOrigins } from '../http/client-origin.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import { announcesBody, limitRest } from '../limits/exchanges.ts';
import {
  composeRequestHeaders,
  cutPrefix,
  cutTarget,
  type PassedRequest,
  passHeaders,
} from './message-head.ts';
import { findUpgrade, joinTunnel, type UpgradeRequest } from './upgrade.ts';

/** CONNECT has no path. */
const LB_METHODS = http.METHODS.filter((method) => method !== 'CONNECT');
/** Number of workers that are tried for a request that has reached none. */
const MAX_ATTEMPTS = 2;

export interface LbRoutesOptions {
  balancer: Balancer;
  endpoints: Pick<Endpoints, 'find'>;
  origins: ClientOrigins;
  log: Log;
  clock: Clock;
}

interface LbRoute {
  Params: { endpoint: string };
}

/** The server must fold targets; see message-head.ts. */
export function addLbRoutes(app: FastifyInstance, options: LbRoutesOptions): void {
  for (const method of LB_METHODS) {
    if (!app.supportedMethods.includes(method)) app.addHttpMethod(method);
  }
  app.route<LbRoute>({
    method: LB_METHODS,
    url: LB_ROUTE.path,
    config: { access: LB_ROUTE.access, endsWithKey: true },
    // Not in the handler: before it, fastify would check the body's content type, which is the
    // worker's business.
    onRequest: (request, reply) => serve(request, reply, options),
    handler: async () => {
      throw new Error('request not forwarded');
    },
  });
}

/** @throws ProblemError before the response begins */
async function serve(
  request: FastifyRequest<LbRoute>,
  reply: FastifyReply,
  { balancer, clock, endpoints, log, origins }: LbRoutesOptions,
): Promise<void> {
  const { endpoint: endpointId } = request.params;
  const gone = abortWhenGone(reply.raw);
  for (let attempt = 1; attempt <= MAX_ATTEMPTS; attempt++) {
    const call = await balancer.enter({ endpointId, signal: gone });
    try {
      const end = await forward({
        request,
        reply,
        gone,
        log,
        clock,
        origins,
        dispatcher: call.dispatcher,
        target: cutTarget(request.originalUrl),
        prefix: cutPrefix(request.originalUrl),
        headersLimitMs: endpoints.find(endpointId)?.settings.executionTimeoutMs ?? 0,
        upgrade: findUpgrade(request.raw),
      });
      if (end === 'over') return;
      call.noteUnreachable();
      log.warn({ endpoint: endpointId, pod: call.podId }, 'connecting to a worker failed');
    } finally {
      call.end();
    }
  }
  throw new ProblemError('worker_failed', `${MAX_ATTEMPTS} workers could not be connected to`);
}

/**
 * Informational responses forwarded before the final one. They are written even if the client does
 * not read.
 */
const MAX_HINTS = 20;

export interface Forwarding extends PassedRequest {
  /** Connections to the worker. */
  dispatcher: Dispatcher;
  /** Path and query for the worker. */
  target: string;
  /** The part of the path that is removed. */
  prefix: string;
  origins: ClientOrigins;
  /** From the end of the request to the headers of the response, ms. */
  headersLimitMs: number;
  /** Aborts when the client disconnects. */
  gone: AbortSignal;
  upgrade: UpgradeRequest | undefined;
  log: Log;
  clock: Clock;
}

/** `unreached`: nothing has reached the worker, and nothing of the body was read. */
export type ForwardingEnd = 'over' | 'unreached';

/**
 * Resolves when the response has been forwarded or broken off, or the client has disconnected.
 * @throws ProblemError `worker_failed`, `worker_timed_out`, `malformed`, before the response begins
 */
function forward(forwarding: Forwarding): Promise<ForwardingEnd> {
  const { dispatcher, headersLimitMs, request, target, upgrade } = forwarding;
  return new Promise((resolve, reject) => {
    const exchange = new ProxyExchange(forwarding, { resolve, reject });
    dispatcher.dispatch(
      {
        method: request.method,
        path: target,
        headers: composeRequestHeaders(request.raw, forwarding),
        body: exchange.body ?? null,
        headersTimeout: headersLimitMs,
        bodyTimeout: 0,
        ...(upgrade && { upgrade: upgrade.protocol }),
      },
      exchange,
    );
  });
}

interface Settle {
  resolve: (end: ForwardingEnd) => void;
  reject: (problem: ProblemError) => void;
}

class ProxyExchange implements Dispatcher.DispatchHandler {
  /** Separates the two sides: a failing worker must not break the client's connection. */
  readonly body: PassThrough | undefined;
  readonly #forwarding: Forwarding;
  readonly #settle: Settle;
  readonly #response: ServerResponse;
  #controller: Dispatcher.DispatchController | undefined;
  #isAnswering = false;
  #hasWritten = false;
  #hints = 0;

  constructor(forwarding: Forwarding, settle: Settle) {
    this.#forwarding = forwarding;
    this.#settle = settle;
    this.#response = forwarding.reply.raw;
    if (announcesBody(forwarding.request)) {
      this.body = new PassThrough();
      // The connection concerned reports the error.
      this.body.on('error', () => {});
    }
    forwarding.gone.addEventListener('abort', this.#abort, { once: true });
  }

  /** Called once the connection exists: from here on the worker may have received something. */
  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    const { gone, request } = this.#forwarding;
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
      this.#forwardHint(status, headers);
      return;
    }
    this.#answer(status, headers);
    this.#response.on('drain', () => controller.resume());
    // An event stream sends its headers before its first event; other responses save the packet.
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
      limitRest(this.#forwarding.request.raw, this.#response, this.#forwarding.clock);
    }
    this.#end('over');
  }

  onRequestUpgrade(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
    worker: Duplex,
  ): void {
    const { clock, upgrade } = this.#forwarding;
    if (!upgrade) throw new Error('worker switched protocols without an upgrade request');
    this.#answer(status, { ...headers, connection: undefined });
    this.#response.end();
    const { socket } = upgrade;
    const end = () => this.#end('over');
    joinTunnel({ client: socket, worker, head: upgrade.takeEarly(), clock }).then(end, end);
  }

  /** Undici has no controller for requests that it rejects itself. */
  onResponseError(_controller: Dispatcher.DispatchController | null, error: Error): void {
    const { gone, reply } = this.#forwarding;
    if (gone.aborted) {
      if (!reply.sent) reply.hijack();
    } else if (this.#isAnswering) {
      // A clean end would look like a complete response.
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

  #answer(status: number, headers: IncomingHttpHeaders): void {
    this.#isAnswering = true;
    // Other sites may embed answers of the worker's server, unless that server forbids it.
    this.#response.removeHeader('cross-origin-resource-policy');
    passHeaders(this.#forwarding, status, headers).writeHead(status);
  }

  #forwardHint(status: number, { link }: IncomingHttpHeaders): void {
    if (this.#forwarding.request.raw.httpVersionMinor === 0 || this.#hints >= MAX_HINTS) return;
    this.#hints += 1;
    if (status === 102) this.#response.writeProcessing();
    if (status !== 103 || link === undefined) return;
    try {
      this.#response.writeEarlyHints({ link });
    } catch {
      // A Link header that Node cannot write is only a hint.
    }
  }

  readonly #abort = (): void => {
    this.#controller?.abort(new Error('the client disconnected'));
  };

  #fail(error: Error): void {
    const { headersLimitMs, log, request } = this.#forwarding;
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

  #end(end: ForwardingEnd): void {
    this.#release();
    this.#settle.resolve(end);
  }

  /** Discards the rest of the request's body. */
  #release(): void {
    const { gone, request } = this.#forwarding;
    gone.removeEventListener('abort', this.#abort);
    if (!this.body || !this.#controller) return;
    request.raw.unpipe(this.body);
    request.raw.resume();
  }
}

/** Undici's own error, before it has connected. */
function isRefusal(error: Error): boolean {
  return 'code' in error && error.code === 'UND_ERR_INVALID_ARG';
}
