// Tells workers the URL of the node that has answered them, so that their next calls need no forwarding: with each call
// that another node has forwarded, and with each hello.
import type { FastifyInstance } from 'fastify';
import { RUNPOD_BASE, WORKER_HEADERS, WORKER_ROUTES } from '../../wire/routes/routes.ts';
import { findForwarded, NODE_HEADERS } from '../nodes/forwarded.ts';
import type { AdvertisedUrls } from './forwarding-options.ts';

/** Add it after the guard, which forwards the requests that other nodes serve. */
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
