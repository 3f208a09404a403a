// Hooks of a node around the guard: names that the node does not know yet are looked up first, and requests that it
// serves are counted, so that it hands an endpoint over only after their end.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Keys } from '../../control/keys/keys.ts';
import { BEARER, LOCAL_HOLDER, readEndpoint } from '../http/auth.ts';
import type { Placement } from './placement.ts';
import { findSubject } from './subject.ts';

export interface LookupOptions {
  keys: Pick<Keys, 'authenticate'>;
  endpoints: Pick<Endpoints, 'isKnown'>;
  placement: Pick<Placement, 'lookUp'>;
}

/** Add it before the guard: another node may have created the key or the endpoint a moment ago. */
export function lookUpUnknownNames(
  app: FastifyInstance,
  { endpoints, keys, placement }: LookupOptions,
): void {
  app.addHook('onRequest', async ({ headers, params }) => {
    const names = { authorization: headers.authorization, endpoint: readEndpoint(params) };
    if (isUnknown(names, { endpoints, keys })) await placement.lookUp();
  });
}

/** Whether this node does not know the key or the endpoint. Without one, there is nothing to look up. */
export function isUnknown(
  { authorization, endpoint }: { authorization: string | undefined; endpoint: string | undefined },
  { endpoints, keys }: Pick<LookupOptions, 'endpoints' | 'keys'>,
): boolean {
  const userId =
    authorization === undefined
      ? LOCAL_HOLDER.userId
      : keys.authenticate(authorization.replace(BEARER, ''))?.userId;
  if (userId === undefined) return true;
  return endpoint !== undefined && !endpoints.isKnown(userId, endpoint);
}

/** Add it after the guard, which forwards the requests that other nodes serve. */
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

/** This node does not serve the request any more. */
export function endServed(request: FastifyRequest): void {
  counted.get(request)?.();
  counted.delete(request);
}
