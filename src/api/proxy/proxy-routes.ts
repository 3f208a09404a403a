// The routes of load-balancing endpoints: waits for a worker and forwards the request to it.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { http } from '../../base/net/node-http.ts';
import type { Balancer } from '../../control/balancing/balancer.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import { ProblemError } from '../../wire/problem.ts';
import { LB_ROUTE } from '../../wire/routes/routes.ts';
import type { ClientOrigins } from '../http/client-origin.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import { cutPrefix, cutTarget } from './path.ts';
import { forward } from './proxy.ts';
import { findUpgrade } from './upgrade.ts';

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

/** The server must fold targets; see path.ts. */
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
    const turn = await balancer.enter({ endpointId, signal: gone });
    try {
      const end = await forward({
        ...{ request, reply, gone, log, clock, origins, dispatcher: turn.dispatcher },
        target: cutTarget(request.originalUrl),
        prefix: cutPrefix(request.originalUrl),
        headersLimitMs: endpoints.find(endpointId)?.settings.executionTimeoutMs ?? 0,
        upgrade: findUpgrade(request.raw),
      });
      if (end === 'over') return;
      turn.noteUnreachable();
      log.warn({ endpoint: endpointId, pod: turn.podId }, 'connecting to a worker failed');
    } finally {
      turn.end();
    }
  }
  throw new ProblemError('worker_failed', `${MAX_ATTEMPTS} workers could not be connected to`);
}
