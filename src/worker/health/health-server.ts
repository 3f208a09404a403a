// Serves health checks and metrics of a worker or a supervisor over HTTP. It uses no framework, to keep
// the process small.
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Log } from '../../base/log.ts';
import { http } from '../../base/net/node-http.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { WorkerHealth } from '../worker.ts';

const JSON_TYPE = 'application/json; charset=utf-8';
const PROBLEM_TYPE = 'application/problem+json';
const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** A probe sends a few hundred bytes; a slower client must not keep its connection. */
const REQUEST_MS = 10_000;

export interface HealthServerOptions {
  host: string;
  /** 0 selects a free port. */
  port: number;
  /** Answer of `/healthz`. */
  liveness: () => Promise<Probe>;
  /** Answer of `/readyz`. */
  readiness: () => Promise<Probe>;
  /** In Prometheus text format. */
  collectMetrics: () => Promise<string>;
  log: Log;
}

/** The answer of a probe: status 200 if healthy, else 503. */
export interface Probe {
  isHealthy: boolean;
  body: object;
}

export interface HealthServer {
  readonly host: string;
  readonly port: number;
  /** Also closes open connections; never rejects. */
  close(): Promise<void>;
}

/** The address cannot be used; the message says which and why. */
export class HealthPortError extends Error {
  override readonly name = 'HealthPortError';
}

interface HealthResponse {
  status: number;
  type: string;
  body: string;
}

/** Resolves when the server listens. @throws HealthPortError */
export async function openHealthServer(options: HealthServerOptions): Promise<HealthServer> {
  const { host, port, log } = options;
  const server = http.createServer({ requestTimeout: REQUEST_MS }, (request, response) => {
    void serve(request, response, options);
  });
  await listen(server, { host, port });
  server.on('error', (error) => log.warn({ err: error }, 'health port failed'));
  const bound = server.address();
  return {
    host,
    port: typeof bound === 'object' && bound ? bound.port : port,
    close: () => close(server),
  };
}

function listen(server: Server, { host, port }: { host: string; port: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    const refuse = (error: NodeJS.ErrnoException) => {
      const reason = error.code === 'EADDRINUSE' ? 'the port is in use' : error.message;
      reject(new HealthPortError(`cannot listen on ${host} port ${port}: ${reason}`));
    };
    server.once('error', refuse);
    server.listen({ host, port }, () => {
      server.removeListener('error', refuse);
      resolve();
    });
  });
}

function close(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

async function serve(
  request: IncomingMessage,
  response: ServerResponse,
  options: HealthServerOptions,
): Promise<void> {
  const [path = ''] = (request.url ?? '').split('?');
  const { status, type, body } = await answer(request.method ?? '', path, options);
  response.writeHead(status, {
    'content-type': type,
    'content-length': Buffer.byteLength(body),
    'cache-control': 'no-store',
    ...(status === 405 && { allow: 'GET, HEAD' }),
  });
  response.end(request.method === 'HEAD' ? undefined : body);
}

async function answer(
  method: string,
  path: string,
  options: HealthServerOptions,
): Promise<HealthResponse> {
  const isKnown = path === '/healthz' || path === '/readyz' || path === '/metrics';
  if (!isKnown) {
    return answerProblem(
      new ProblemError('not_found', 'unknown path; use /healthz, /readyz or /metrics'),
    );
  }
  if (method !== 'GET' && method !== 'HEAD') {
    return answerProblem(
      new ProblemError('method_not_allowed', `${path} accepts GET and HEAD only`),
    );
  }
  try {
    if (path === '/metrics') {
      return { status: 200, type: METRICS_TYPE, body: await options.collectMetrics() };
    }
    return answerProbe(await (path === '/healthz' ? options.liveness() : options.readiness()));
  } catch (error) {
    options.log.error({ err: error, path }, 'health request failed');
    return answerProblem(new ProblemError('internal', 'see the log for the reason'));
  }
}

export function probeWorker(
  health: () => WorkerHealth,
): Pick<HealthServerOptions, 'liveness' | 'readiness'> {
  return {
    liveness: async () => probeLiveness(health()),
    readiness: async () => {
      const body = health();
      return { isHealthy: body.ready, body };
    },
  };
}

/**
 * Alive until the worker cannot continue. An unavailable platform or a drain must not cause a
 * restart, which would lose the jobs.
 */
function probeLiveness({ state, reason }: WorkerHealth): Probe {
  if (state !== 'failed') return { isHealthy: true, body: { status: 'ok', state } };
  return { isHealthy: false, body: { status: 'failed', state, reason } };
}

function answerProbe({ body, isHealthy }: Probe): HealthResponse {
  return { status: isHealthy ? 200 : 503, type: JSON_TYPE, body: JSON.stringify(body) };
}

function answerProblem(problem: ProblemError): HealthResponse {
  const { status } = problem;
  return { status, type: PROBLEM_TYPE, body: JSON.stringify(problem.toProblem()) };
}
