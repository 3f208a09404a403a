// Client of endpoints and their scaling decisions. client.ts has their jobs.
import type { EndpointRecord } from '../wire/resources/endpoint.ts';
import type { DecisionRecord } from '../wire/resources/scaling.ts';
import { fillPath } from '../wire/routes/route.ts';
import { SCALER_ROUTES } from '../wire/routes/routes.ts';
import type { ApiCaller } from './api-caller.ts';
import type { EndpointChange, NewEndpoint } from './requests.ts';
import { connectList, connectResources, type Listed, type Resources } from './resource-calls.ts';
import { connectVersions, type VersionsClient } from './versions.ts';

export interface EndpointsClient extends Resources<EndpointRecord, NewEndpoint, EndpointChange> {
  /** Returns the last scaling decisions. */
  decisions(id: string): Listed<DecisionRecord>;
  /** Versions of the endpoint's handler. */
  versions(id: string): VersionsClient;
}

export function connectEndpoints(caller: ApiCaller): EndpointsClient {
  return {
    ...connectResources(caller, 'endpoints'),
    decisions: (endpoint) =>
      connectList({
        caller,
        path: fillPath(SCALER_ROUTES.listScalerDecisions, { endpoint }),
        member: 'decisions',
      }),
    versions: (endpoint) => connectVersions(caller, endpoint),
  };
}
