// /v1/keys: made, listed, shown, rotated, revoked. Whose and which, control/ decides.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { KeyHolder } from '../../control/keys/keys.ts';
import type { UserKeys } from '../../control/keys/user-keys.ts';
import { type IssuedKeyRecord, keyCreation, keyRotation } from '../../wire/resources/key.ts';
import { resourceRoutes } from '../../wire/routes.ts';
import { check, checkNoBody } from '../http/body.ts';
import { describeNext, readPage } from '../http/paging.ts';
import { type QueryValues, readText } from '../http/query.ts';
import { readResource } from '../http/resource-requests.ts';
import { NO_BODY_BYTES, sendJson } from './job-routes.ts';

/** A hundred scopes, each bound to an endpoint, fit in. */
const KEY_BODY_BYTES = 65_536;

interface KeysRoute {
  Querystring: QueryValues;
  Body: Buffer | undefined;
}

interface KeyRoute extends KeysRoute {
  Params: { key: string };
}

export interface KeyRoutesOptions {
  userKeys: UserKeys;
}

/** `app` has to give bodies as Buffers, of no other media type than application/json. */
export function addKeyBodyRoutes(app: FastifyInstance, { userKeys }: KeyRoutesOptions): void {
  const options = { bodyLimit: KEY_BODY_BYTES, config: { access: 'keys:write' } } as const;

  app.post<KeysRoute>(resourceRoutes.keys, options, async (request, reply) => {
    const creation = readResource(request.body, keyCreation);
    return sendIssued(reply, await userKeys.issue(requireHolder(request), creation));
  });

  app.post<KeyRoute>(resourceRoutes.keyRotation(':key'), options, async (request, reply) => {
    const { body, params } = request;
    const { graceSeconds } = body?.length
      ? readResource(body, keyRotation)
      : check({}, keyRotation);
    const issued = await userKeys.rotate(requireHolder(request), params.key, graceSeconds);
    return sendIssued(reply, issued);
  });
}

/** `app` has to give bodies as Buffers, of whatever media type. */
export function addKeyRoutes(app: FastifyInstance, { userKeys }: KeyRoutesOptions): void {
  const options = { config: { access: 'keys:read' } } as const;

  app.get<KeysRoute>(resourceRoutes.keys, options, async (request, reply) => {
    const listing = { userId: readText(request.query, 'userId'), ...readPage(request) };
    const { keys, next } = userKeys.list(requireHolder(request), listing);
    return sendJson(reply, { keys, ...describeNext(next) });
  });

  app.get<KeyRoute>(resourceRoutes.key(':key'), options, async (request, reply) =>
    sendJson(reply, userKeys.find(requireHolder(request), request.params.key)),
  );

  app.delete<KeyRoute>(
    resourceRoutes.key(':key'),
    { bodyLimit: NO_BODY_BYTES, config: { access: 'keys:write' } },
    async (request, reply) => {
      checkNoBody(request.body);
      await userKeys.revoke(requireHolder(request), request.params.key);
      return reply.code(204).send();
    },
  );
}

/** The one answer that has a key in it. */
function sendIssued(reply: FastifyReply, issued: IssuedKeyRecord): Promise<FastifyReply> {
  reply.code(201).header('location', resourceRoutes.key(issued.id));
  return sendJson(reply.header('cache-control', 'no-store'), issued);
}

function requireHolder({ holder }: FastifyRequest): KeyHolder {
  if (!holder) throw new Error('a route for keys has no access check');
  return holder;
}
