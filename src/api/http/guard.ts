// Runs before and after every route: authentication, rate limits, rights, logging. Answers requests without a route.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type Clock, sleep } from '../../base/clock.ts';
import type { KeyWatch } from '../../control/keys/keys.ts';
import type { Queues } from '../../queue/queues.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { RouteAccess } from '../../wire/routes/route.ts';
import { findExcess, type HeadBounds, type HttpBounds, measureHead } from '../limits/bounds.ts';
import type { Connections } from '../limits/connections.ts';
import type { RateGate } from '../limits/rate-limit.ts';
import type { AnsweredRequest, ApiMetrics } from '../metrics/metrics.ts';
import { findUpgrade } from '../proxy/upgrade.ts';
import type { WorkerAllowance } from '../worker/worker-allowance.ts';
import { Gate, type GateOptions, type GuardedAccess, LOCAL_HOLDER } from './auth.ts';
import { findForwarded } from './forwarded.ts';
import { type NamedKinds, refuseUnknownParameters, resolveNames } from './requests.ts';

/** Retry-After for a user with too many connections, ms: others may have ended. */
const CONNECTIONS_RETRY_MS = 5_000;
/** A patient call beyond the limit tries again at least this often, ms. */
const PATIENT_RETRY_MS = 1_000;

/** One answered request, for an observer. */
export interface ServedRequest extends AnsweredRequest {
  /** Without the query. */
  path: string;
  /** Undefined without a route. */
  access: RouteAccess | undefined;
}

export interface GuardOptions extends GateOptions, CallerWatches {
  bounds: HeadBounds & Pick<HttpBounds, 'maxUserConnections'>;
  connections: Pick<Connections, 'noteUser'>;
  queue: Queues;
  clock: Clock;
  metrics: ApiMetrics;
  /** Called after the end of each response. Default: nothing is. */
  onAnswered?: ((request: ServedRequest) => void) | undefined;
  /** Records that paths may name instead of giving their IDs. */
  named: NamedKinds;
  /** Passes the request to the node that serves it. Default: this node serves every request. */
  forward?: ((request: FastifyRequest, reply: FastifyReply) => Promise<void>) | undefined;
  /** Default: no limit for users. */
  rateGate?: RateGate | undefined;
  /** Default: no limit for workers. */
  workerAllowance?: WorkerAllowance | undefined;
}

/** A registered route, such as `/v2/:endpoint/run`. */
export interface ServedRoute {
  method: string;
  url: string;
  access: RouteAccess;
}

/** Call it before routes are added: it collects them. */
export function collectRoutes(app: FastifyInstance): readonly ServedRoute[] {
  const routes: ServedRoute[] = [];
  app.addHook('onRoute', ({ config, method, url }) => {
    if (!config?.access) throw new Error(`route ${url} does not say who may call it`);
    for (const name of [method].flat()) routes.push({ method: name, url, access: config.access });
  });
  return routes;
}

/**
 * Checks of every request: Host header, platform not closing, key, rate, rights, query parameters; then the request
 * is logged. An unauthorized caller learns nothing about parameters. Calls of workers have a limit of their own. The
 * node that forwarded a request has counted it and checked its head.
 */
export function guard(app: FastifyInstance, options: GuardOptions): void {
  const { bounds, connections, forward, metrics, named, queue, rateGate, workerAllowance } =
    options;
  const gate = new Gate(options);
  const countCall = async (request: FastifyRequest, reply: FastifyReply, keyId: string) => {
    for (;;) {
      try {
        return await workerAllowance?.countCall(keyId);
      } catch (error) {
        if (!mayWait(request, error) || reply.raw.destroyed || queue.isClosing) throw error;
        await sleep(options.clock, Math.min(error.retryAfterMs ?? 0, PATIENT_RETRY_MS));
      }
    }
  };

  const identify = (request: FastifyRequest, reply: FastifyReply) => {
    const { headers, raw } = request;
    const { rawHeaders } = raw;
    const head = measureHead({ rawHeaders, url: request.originalUrl });
    const excess = findForwarded(raw) ? undefined : findExcess(head, bounds);
    if (excess) throw excess;
    if (headers.host === undefined && raw.httpVersionMinor > 0) {
      throw new ProblemError('malformed', 'The Host header is missing.');
    }
    if (queue.isClosing) {
      reply.header('connection', 'close');
      throw new ProblemError('unavailable', 'the platform is stopping', { retryAfterMs: 1_000 });
    }
    const scope = readScope(request);
    if (scope) request.holder = gate.identify(request, scope);
    if (request.session) reply.header('cache-control', 'no-store');
    const bytes = head.url.length + head.headerBytes;
    app.flows.claimHead(request, { bytes, response: reply.raw });
    if (!request.holder || connections.noteUser(raw.socket, request.holder.userId)) return;
    // This is the connection's last response.
    reply.raw.shouldKeepAlive = false;
    if (request.routeOptions.config.isPatient) return;
    throw new ProblemError(
      'rate_limited',
      `The user of this key already has ${bounds.maxUserConnections} open connections; close some or use fewer.`,
      { retryAfterMs: CONNECTIONS_RETRY_MS },
    );
  };
  const count = (request: FastifyRequest, reply: FastifyReply) => {
    if (readScope(request) !== 'worker') return rateGate?.admit(request, reply);
    return request.holder && workerAllowance && countCall(request, reply, request.holder.keyId);
  };
  const admit = (request: FastifyRequest, reply: FastifyReply) => {
    const scope = readScope(request);
    if (scope) gate.admit(request, scope);
    if (request.routeOptions.config.endsWithKey) endWithKey(request, reply, options);
    refuseUnknownParameters(request);
  };
  /** Returns a promise only if the request has to wait: most do not. */
  const check = (request: FastifyRequest, reply: FastifyReply) => {
    identify(request, reply);
    if (!findForwarded(request.raw)) {
      const counting = count(request, reply);
      if (counting || forward) return pass(request, reply, counting);
    }
    resolveNames(request, named);
    admit(request, reply);
    return undefined;
  };
  const pass = async (
    request: FastifyRequest,
    reply: FastifyReply,
    counting: Promise<void> | undefined,
  ) => {
    await counting;
    resolveNames(request, named);
    await forward?.(request, reply);
    if (!reply.sent) admit(request, reply);
  };

  app.addHook('onRequest', (request, reply, done) => {
    const checking = check(request, reply);
    if (!checking) done();
    return checking;
  });

  app.addHook('onResponse', (request, reply, done) => {
    const { method, raw, routeOptions } = request;
    const route = routeOptions.url ?? 'none';
    const answered = { method, route, status: reply.statusCode, durationMs: reply.elapsedTime };
    metrics.note(answered);
    const [path = ''] = request.originalUrl.split('?', 1);
    options.onAnswered?.({ ...answered, path, access: routeOptions.config?.access });
    // A kept-alive connection would delay the end.
    if (queue.isClosing && raw.complete) raw.socket.destroySoon();
    done();
  });
}

/** A cut connection instead of a clean end, which would look like a complete response. */
function endWithKey(request: FastifyRequest, reply: FastifyReply, watches: CallerWatches): void {
  const { raw } = request;
  const { socket } = raw;
  const stop = watchCaller(watches, request, () => socket.destroy());
  if (!stop) return;
  // Data after an upgrade is not part of the response.
  (findUpgrade(raw) ? socket : reply.raw).once('close', stop);
}

export interface CallerWatches {
  keyWatch: KeyWatch;
  /** Default: there are no sessions. */
  sessionWatch?: KeyWatch | undefined;
}

/** Calls `onEnd` when the caller's key or session becomes invalid. @returns what stops it; undefined without a key */
export function watchCaller(
  { keyWatch, sessionWatch }: CallerWatches,
  { holder, session }: Pick<FastifyRequest, 'holder' | 'session'>,
  onEnd: () => void,
): (() => void) | undefined {
  if (!holder || holder === LOCAL_HOLDER) return undefined;
  return session ? sessionWatch?.watch(session.id, onEnd) : keyWatch.watch(holder.keyId, onEnd);
}

function mayWait({ routeOptions }: FastifyRequest, error: unknown): error is ProblemError {
  const isTooOften = error instanceof ProblemError && error.code === 'rate_limited';
  return isTooOften && routeOptions.config.isPatient === true;
}

/** Undefined on open routes, and without a route. */
function readScope({ routeOptions }: FastifyRequest): GuardedAccess | undefined {
  const { access } = routeOptions.config;
  return access === 'open' ? undefined : access;
}

interface KnownPath {
  pattern: RegExp;
  methods: Set<string>;
}

/**
 * Answers requests without a route: 404, or 405 with the methods that the path supports. Call it before routes are
 * added: it collects them.
 */
export function answerUnknownRoutes(app: FastifyInstance): void {
  const known = new Map<string, KnownPath>();

  app.addHook('onRoute', ({ method, url }) => {
    const path = known.get(url) ?? { pattern: toPattern(url), methods: new Set() };
    for (const name of [method].flat()) path.methods.add(name);
    known.set(url, path);
  });

  // In `onRequest`, because no body needs to be read.
  app.addHook('onRequest', (request, reply, done) => {
    if (!request.is404) return done();
    const { method, url } = request;
    const [path = url] = url.split('?', 1);
    const methods = [...known.values()]
      .filter(({ pattern }) => pattern.test(path))
      .flatMap((found) => [...found.methods]);
    if (methods.length === 0) return done(new ProblemError('not_found', 'Path not found.'));
    reply.header('allow', methods.join(', '));
    if (method === 'OPTIONS') {
      reply.code(204).send();
      return;
    }
    const detail = `This path does not support ${method}; use ${methods.join(', ')}.`;
    return done(new ProblemError('method_not_allowed', detail));
  });
}

function toPattern(url: string): RegExp {
  return new RegExp(`^${url.replace(/:[a-z]+/g, '[^/]+').replace('*', '.*')}$`);
}
