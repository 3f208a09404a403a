// Why an endpoint has the workers that it has: the last decisions about them.
import type { FastifyInstance } from 'fastify';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Decisions } from '../../control/scaling/decisions.ts';
import { resourceRoutes } from '../../wire/routes.ts';
import { describeNext, readPage } from '../http/paging.ts';
import { readUser } from '../http/resource-requests.ts';
import { type EndpointRoute, sendJson } from './job-routes.ts';

export interface ScalerRoutesOptions {
  decisions: Pick<Decisions, 'list'>;
  endpoints: Pick<Endpoints, 'get'>;
}

/** `app` has to give bodies as Buffers, of whatever media type. */
export function addScalerRoutes(
  app: FastifyInstance,
  { decisions, endpoints }: ScalerRoutesOptions,
): void {
  app.get<EndpointRoute>(
    resourceRoutes.scaler(':endpoint'),
    { config: { access: 'endpoints:read' } },
    async (request, reply) => {
      const { endpoint: endpointId } = request.params;
      endpoints.get(readUser(request), endpointId);
      const page = await decisions.list({ endpointId, ...readPage(request) });
      return sendJson(reply, { decisions: page.decisions, ...describeNext(page.next) });
    },
  );
}
