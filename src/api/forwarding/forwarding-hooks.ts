// Hooks of a node around the guard: refuse what another node serves, look up names that the node does not know yet, count
// the requests that it serves, and tell workers the URL of their owner.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Queues } from '../../queue/queues.ts';
import { RUNPOD_BASE, WORKER_HEADERS, WORKER_ROUTES } from '../../wire/routes/routes.ts';
import { isUnknown, type NameSources, readEndpoint, readSessionToken } from '../http/auth.ts';
import { findForwarded, NODE_HEADERS, NOT_OWNER_STATUS } from '../http/forwarded.ts';
import { isAwaitingContinue } from '../limits/exchanges.ts';
import type { Forwarder } from './forwarder.ts';
import type { AdvertisedUrls, Placement } from './forwarding-options.ts';
import { findSubject } from './subject.ts';

export interface Served {
  queue: Pick<Queues, 'isClosing'>;
}

/** Add them before the guard: a request is forwarded once, and refused before its key is read. */
export function addForwardingHooks(
  app: FastifyInstance,
  { forwarder, queue }: Served & { forwarder: Forwarder },
): void {
  app.addHook('onRequest', (request, reply, done) => {
    if (!findForwarded(request.raw)) return done();
    const isServed = !queue.isClosing && forwarder.isHere(request);
    // Overrides a worker's header of the same name.
    reply.header(NODE_HEADERS.answer, isServed ? 'owner' : 'not_owner');
    if (isServed) return done();
    // The other node may or may not send the body.
    if (isAwaitingContinue(request.raw)) reply.header('connection', 'close');
    reply.code(NOT_OWNER_STATUS).send();
  });
}

export interface LookupOptions extends NameSources {
  placement: Pick<Placement, 'lookUp'>;
}

/** Add it before the guard: another node may have created the key or the endpoint a moment ago. */
export function lookUpUnknownNames(
  app: FastifyInstance,
  { endpoints, keys, placement, sessions }: LookupOptions,
): void {
  app.addHook('onRequest', async (request) => {
    const { authorization } = request.headers;
    const token = authorization === undefined ? readSessionToken(request) : undefined;
    const names = { authorization, token, endpoint: readEndpoint(request.params) };
    if (isUnknown(names, { endpoints, keys, sessions })) await placement.lookUp();
  });
}

/**
 * Counts requests, so that the node hands an endpoint over only after their end. Add it after the guard, which
 * forwards the requests that other nodes serve.
 */
export function countServed(app: FastifyInstance, placement: Pick<Placement, 'begin'>): void {
  app.addHook('onRequest', (request, reply, done) => {
    const subject = findSubject(request);
    // The client may have disconnected while the hooks before waited; then no event follows.
    if (subject.kind !== 'local' && !reply.raw.closed) {
      const endpoint = subject.kind === 'endpoint' ? subject.endpointId : undefined;
      counted.set(request, placement.begin(endpoint));
      reply.raw.once('close', () => endServed(request));
    }
    done();
  });
}

/** Ends of counted requests. */
const counted = new WeakMap<FastifyRequest, () => void>();

/** This node no longer serves the request. */
export function endServed(request: FastifyRequest): void {
  counted.get(request)?.();
  counted.delete(request);
}

/**
 * Tells workers the URL of the node that has answered them, so that their next calls need no forwarding: with each
 * call that another node has forwarded, and with each hello. Add it after the guard, which forwards the requests that
 * other nodes serve.
 */
export function tellOwner(app: FastifyInstance, advertised: AdvertisedUrls): void {
  app.addHook('onRequest', (request, reply, done) => {
    const { config, url: route = '' } = request.routeOptions;
    // RunPod's workers know no other address than the configured one.
    if (config.access !== 'worker' || route.startsWith(RUNPOD_BASE)) return done();
    const { grpcUrl, url } = advertised;
    const isForwarded = findForwarded(request.raw) !== undefined;
    const isHello = route === WORKER_ROUTES.hello.path;
    if (url !== undefined && (isForwarded || isHello)) reply.header(WORKER_HEADERS.owner, url);
    if (grpcUrl !== undefined && isForwarded) reply.header(NODE_HEADERS.grpcUrl, grpcUrl);
    done();
  });
}
