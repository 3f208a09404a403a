// Endpoints and why they have the workers that they have, for programs. Their jobs are client.ts's.
import type { z } from 'zod';
import type { DecisionRecord, decisionList } from '../wire/resources/decision.ts';
import type { EndpointRecord, endpointList } from '../wire/resources/endpoint.ts';
import { resourceRoutes } from '../wire/routes.ts';
import type { ApiCaller } from './api-caller.ts';
import type { EndpointChange, NewEndpoint } from './requests.ts';
import { connectList, connectResources, type Listed, type Resources } from './resources.ts';

export interface Endpoints extends Resources<EndpointRecord, NewEndpoint, EndpointChange> {
  /** The last decisions about the number of its workers. */
  decisions(id: string): Listed<DecisionRecord>;
}

export function connectEndpoints(caller: ApiCaller): Endpoints {
  const { endpoint: pathOf, endpoints: path } = resourceRoutes;
  return {
    ...connectResources<z.infer<typeof endpointList>, EndpointRecord, NewEndpoint, EndpointChange>({
      caller,
      path,
      pathOf,
      pick: ({ endpoints }) => endpoints,
    }),
    decisions: (id) =>
      connectList({
        caller,
        path: resourceRoutes.scaler(encodeURIComponent(id)),
        pick: ({ decisions }: z.infer<typeof decisionList>) => decisions,
      }),
  };
}
