// /v1/endpoints: each user's own, made, listed, changed, deleted. Their jobs have routes of their own.
import type { FastifyInstance } from 'fastify';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import { endpointCreation, endpointUpdate } from '../../wire/resources/endpoint.ts';
import { resourceRoutes } from '../../wire/routes.ts';
import { checkNoBody } from '../http/body.ts';
import { describeNext, readPage } from '../http/paging.ts';
import { RESOURCE_BODY_BYTES, readResource, readUser } from '../http/resource-requests.ts';
import { type EndpointRoute, NO_BODY_BYTES, sendJson } from './job-routes.ts';

type EndpointsRoute = Omit<EndpointRoute, 'Params'>;

export interface EndpointRoutesOptions {
  endpoints: Endpoints;
}

/** `app` has to give bodies as Buffers, of no other media type than application/json. */
export function addEndpointBodyRoutes(
  app: FastifyInstance,
  { endpoints }: EndpointRoutesOptions,
): void {
  const options = {
    bodyLimit: RESOURCE_BODY_BYTES,
    config: { access: 'endpoints:write' },
  } as const;

  app.post<EndpointsRoute>(resourceRoutes.endpoints, options, async (request, reply) => {
    const creation = readResource(request.body, endpointCreation);
    const endpoint = await endpoints.create(readUser(request), creation);
    reply.code(201).header('location', resourceRoutes.endpoint(endpoint.id));
    return sendJson(reply, endpoint);
  });

  app.patch<EndpointRoute>(
    resourceRoutes.endpoint(':endpoint'),
    options,
    async (request, reply) => {
      const update = readResource(request.body, endpointUpdate);
      const { endpoint: id } = request.params;
      return sendJson(reply, await endpoints.update(readUser(request), id, update));
    },
  );
}

/** `app` has to give bodies as Buffers, of whatever media type. */
export function addEndpointRoutes(
  app: FastifyInstance,
  { endpoints }: EndpointRoutesOptions,
): void {
  app.get<EndpointsRoute>(
    resourceRoutes.endpoints,
    { config: { access: 'endpoints:read' } },
    async (request, reply) => {
      const listing = { userId: readUser(request), ...readPage(request) };
      const { endpoints: page, next } = endpoints.page(listing);
      return sendJson(reply, { endpoints: page, ...describeNext(next) });
    },
  );

  app.get<EndpointRoute>(
    resourceRoutes.endpoint(':endpoint'),
    { config: { access: 'endpoints:read' } },
    async (request, reply) =>
      sendJson(reply, endpoints.get(readUser(request), request.params.endpoint)),
  );

  app.delete<EndpointRoute>(
    resourceRoutes.endpoint(':endpoint'),
    { bodyLimit: NO_BODY_BYTES, config: { access: 'endpoints:write' } },
    async (request, reply) => {
      checkNoBody(request.body);
      await endpoints.remove(readUser(request), request.params.endpoint);
      return reply.code(204).send();
    },
  );
}
