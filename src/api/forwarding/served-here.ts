// Hooks of a node around the guard: names that the node does not know yet are looked up first, and requests that it
// serves are counted, so that it hands an endpoint over only after their end.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Keys } from '../../control/keys/keys.ts';
import type { Sessions } from '../../control/sessions/sessions.ts';
import { BEARER, LOCAL_HOLDER, readEndpoint } from '../http/auth.ts';
import { readSessionToken } from '../http/session-cookie.ts';
import type { Placement } from './placement.ts';
import { findSubject } from './subject.ts';

export interface LookupOptions {
  keys: Pick<Keys, 'authenticate'>;
  sessions?: Pick<Sessions, 'use'> | undefined;
  endpoints: Pick<Endpoints, 'isKnown'>;
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

interface KnownNames {
  authorization: string | undefined;
  endpoint: string | undefined;
  /** Of a session. */
  token?: string | undefined;
}

/** Whether this node does not know the key or the endpoint. Without one, there is nothing to look up. */
export function isUnknown(
  { authorization, endpoint, token }: KnownNames,
  { endpoints, keys, sessions }: Omit<LookupOptions, 'placement'>,
): boolean {
  let userId: string | undefined = LOCAL_HOLDER.userId;
  if (authorization !== undefined) {
    userId = keys.authenticate(authorization.replace(BEARER, ''))?.userId;
  } else if (token !== undefined && sessions) userId = sessions.use(token)?.holder.userId;
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
