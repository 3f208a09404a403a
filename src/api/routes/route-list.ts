// The routes of Millrace's own API: a new one is an operation with its handler, and a line here if its file is new.
// Those of other protocols are in adapters.ts, those of workers in worker/.
import { UserKeys } from '../../control/keys/user-keys.ts';
import { forCallers } from '../../control/user-resources.ts';
import { endpoints as endpointResource } from '../../wire/resources/endpoint.ts';
import type { ApiContext } from '../context.ts';
import { bindBatches } from './batch-routes.ts';
import { bindEvents } from './event-routes.ts';
import { bindFlows } from './flow-routes.ts';
import { bindJobs } from './job-routes.ts';
import type { BoundOperation } from './operation-routes.ts';
import {
  bindKeys,
  bindPods,
  bindResource,
  bindSchedules,
  serveCallers,
} from './resource-routes.ts';
import { bindSessions } from './session-routes.ts';
import { handleStream } from './stream-routes.ts';
import { bindCatalog, bindNodes, bindSystem } from './system-routes.ts';
import { bindActivity, bindBilling, bindLimits, bindScaler } from './usage-routes.ts';
import { bindVersions } from './version-routes.ts';

type Bind = (context: ApiContext) => BoundOperation[];

const ROUTES: readonly Bind[] = [
  (context) => bindJobs(context, { streamJob: handleStream(context) }),
  bindFlows,
  bindBatches,
  (context) => bindKeys(new UserKeys(context)),
  ({ endpoints }) => bindResource(endpointResource, serveCallers(forCallers(endpoints))),
  ({ pods }) => bindPods(pods),
  ({ sessions, ...context }) => (sessions ? bindSessions({ ...context, sessions }) : []),
  ({ schedules }) => bindSchedules(schedules),
  bindLimits,
  bindNodes,
  bindActivity,
  ({ events }) => bindEvents(events),
  bindSystem,
];

/** Those of a platform with a catalog and stored resources. */
const RESOURCE_ROUTES: readonly ((
  resources: NonNullable<ApiContext['resources']>,
  context: ApiContext,
) => BoundOperation[])[] = [
  ({ served }) =>
    served.flatMap(({ resource, verbs }) => bindResource(resource, serveCallers(verbs))),
  bindCatalog,
  ({ decisions }, { endpoints }) => bindScaler(decisions, endpoints),
  ({ versions }) => bindVersions(versions),
  ({ billing }) => bindBilling(billing),
];

export function bindAll(context: ApiContext): BoundOperation[] {
  const { resources } = context;
  const ofResources = RESOURCE_ROUTES.map((bind) => (resources ? bind(resources, context) : []));
  return [...ROUTES.map((bind) => bind(context)), ...ofResources].flat();
}
