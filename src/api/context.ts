// What routes and hooks of the API are made from: the services of the platform with all defaults, and the parts that
// the routes share. Each part is made after those that it needs.
import type { IncomingMessage } from 'node:http';
import { Registry } from 'prom-client';
import { FairScheduler } from '../base/fair-scheduler.ts';
import type { Endpoints } from '../control/endpoints/endpoints.ts';
import { type KeyHolder, KeyWatch } from '../control/keys/keys.ts';
import { allows } from '../control/keys/rights.ts';
import { countUse } from '../control/limits/quotas.ts';
import { LIST_BYTES, type NamedRecords } from '../control/user-resources.ts';
import { readActivity } from '../queue/activity/activity.ts';
import type { WorkerLink } from '../wire/link/worker-link.ts';
import { ProblemError } from '../wire/problem.ts';
import { nameParameter } from '../wire/routes/route.ts';
import { RESOURCES } from '../wire/routes/routes.ts';
import type { Forwarder } from './forwarding/forwarder.ts';
import { BEARER, readToken } from './http/auth.ts';
import { ClientOrigins } from './http/client-origin.ts';
import type { CallerWatches } from './http/guard.ts';
import type { NamedKinds } from './http/requests.ts';
import type { HttpBounds } from './limits/bounds.ts';
import type { Connections } from './limits/connections.ts';
import { Flows } from './limits/flows.ts';
import { type ApiMetrics, createMetrics } from './metrics/metrics.ts';
import { SOUND_STORE } from './metrics/store-status.ts';
import { Overviews } from './overviews.ts';
import { checkReports } from './report-check.ts';
import { type EventRoutesOptions, openEvents } from './routes/event-routes.ts';
import { StreamCursors } from './routes/stream-answers.ts';
import { type ScheduleHost, Schedules } from './schedules.ts';
import type { ApiServerOptions } from './server-options.ts';
import type { WorkerRoutesOptions } from './worker/worker-routes.ts';

type Defaulted =
  | 'about'
  | 'isReady'
  | 'listBytes'
  | 'listNodes'
  | 'readActivity'
  | 'readFailed'
  | 'readUse'
  | 'registry'
  | 'scheduleHost'
  | 'store';

/** The options with all defaults. */
type ApiServices = Omit<ApiServerOptions, Defaulted | 'bounds'> & {
  [Name in Defaulted]-?: NonNullable<ApiServerOptions[Name]>;
} & { bounds: HttpBounds };

export interface ApiContext extends ApiServices {
  connections: Connections;
  isShuttingDown: () => boolean;
  origins: ClientOrigins;
  flows: Flows;
  scheduler: FairScheduler;
  metrics: ApiMetrics;
  watches: Required<CallerWatches>;
  /** Undefined without other nodes. */
  forwarder: Forwarder | undefined;
  overviews: Overviews;
  schedules: Schedules;
  events: EventRoutesOptions;
  cursors: StreamCursors;
  /** Undefined if the endpoint does not exist. */
  linkTo: (endpointId: string, podId: string | null) => WorkerLink | undefined;
  /** For all carriers of the worker link. */
  workers: WorkerRoutesOptions;
  /** The user of a valid key or session. Does not check whether the request is allowed. */
  findUser: (request: IncomingMessage) => string | undefined;
  /** What paths may name instead of giving its ID. */
  named: NamedKinds;
}

export type BoundedOptions = ApiServerOptions & { bounds: HttpBounds };

export function openContext(options: BoundedOptions, connections: Connections): ApiContext {
  const services = completeServices(options);
  const { bounds, clock, endpoints, log, queue } = services;
  const origins = new ClientOrigins(bounds);
  const flows = new Flows({ ...bounds, clock });
  const scheduler = new FairScheduler();
  const metrics = openMetrics(services);
  const watches = openWatches(services);
  const forwarder = openForwarder(services, metrics);
  const overviews = new Overviews({
    endpoints,
    clock,
    read: services.readActivity,
    readFailed: services.readFailed,
  });
  const schedules = new Schedules({ ...services, host: services.scheduleHost });
  const events = openEvents({ ...services, overviews, forwarder, watches });
  metrics.countEvents(events.hub);
  const cursors = new StreamCursors({ queue, log, clock });
  const isShuttingDown = () => connections.isShuttingDown;
  const linkTo: ApiContext['linkTo'] = (endpointId, podId) =>
    endpoints.has(endpointId) ? queue.link(endpointId, podId) : undefined;
  const workers = openWorkers(services, { flows, forwarder, linkTo, metrics, scheduler });
  const findUser = findKnownUser(services, origins);
  const named = listNamed(services);
  const ofApi = { connections, isShuttingDown, origins, flows, scheduler, metrics, watches };
  const ofRoutes = {
    forwarder,
    overviews,
    schedules,
    events,
    cursors,
    linkTo,
    workers,
    findUser,
    named,
  };
  return { ...services, ...ofApi, ...ofRoutes };
}

function completeServices(options: BoundedOptions): ApiServices {
  const { clock, endpoints, keys, pods, queue, resources } = options;
  const { served = [], versions } = resources ?? {};
  const scheduleHost = options.scheduleHost ?? hostSchedules(queue);
  return {
    ...options,
    about: options.about ?? (() => ({ engine: null, nodes: 1 })),
    isReady: options.isReady ?? (() => true),
    listBytes: options.listBytes ?? LIST_BYTES,
    listNodes: options.listNodes ?? (async () => []),
    readActivity: options.readActivity ?? ((ids) => readActivity(queue, ids)),
    readFailed:
      options.readFailed ??
      (async (ids, listing) => ({
        ...(await queue.jobs.listFailed(ids, listing)),
        unreachable: [],
      })),
    readUse:
      options.readUse ??
      ((userId) =>
        countUse(userId, { clock, endpoints, keys, pods, scheduleHost, served, versions })),
    registry: options.registry ?? new Registry(),
    scheduleHost,
    store: options.store ?? SOUND_STORE,
  };
}

/** The schedules of the queues that are here. */
function hostSchedules({ schedules }: Pick<ApiServerOptions['queue'], 'schedules'>): ScheduleHost {
  return {
    call: (endpointId, call) => schedules.call(endpointId, call),
    entries: async (userId) => ({ entries: schedules.entries(userId), isComplete: true }),
    page: (userId, page) => schedules.page(userId, page),
  };
}

function openMetrics(services: ApiServices): ApiMetrics {
  const { endpoints, forwarding, pods, queue, registry, resources, store, version } = services;
  return createMetrics({
    registry,
    queue,
    endpoints,
    store,
    version,
    listPods: pods && (() => pods.all()),
    catalog: resources?.catalog,
    readCosts: pods && (() => resources?.billing.readTotals((id) => endpoints.has(id)) ?? []),
    isLeader: () => !forwarding || forwarding.placement.find(undefined).kind === 'here',
  });
}

function openWatches({ clock, keys, sessions }: ApiServices): Required<CallerWatches> {
  const sessionWatch = sessions && new KeyWatch({ keys: sessions, clock });
  return { keyWatch: new KeyWatch({ keys, clock }), sessionWatch };
}

function openForwarder(
  { bounds, clock, forwarding, log }: ApiServices,
  metrics: ApiMetrics,
): Forwarder | undefined {
  if (!forwarding) return undefined;
  const { inFlightWaitMs, stallMs } = bounds;
  return forwarding.open({
    ...forwarding,
    inFlightWaitMs,
    stallMs,
    clock,
    log,
    note: (forwarded) => metrics.noteForwarded(forwarded),
  });
}

function openWorkers(
  { bounds, endpoints, forwarding, log, workerAllowance: allowance }: ApiServices,
  parts: Pick<ApiContext, 'flows' | 'forwarder' | 'linkTo' | 'metrics' | 'scheduler'>,
): WorkerRoutesOptions {
  const { flows, forwarder, linkTo, metrics, scheduler } = parts;
  return {
    linkTo(id, holder, authorization) {
      const link = linkTo(id, holder?.podId ?? null);
      if (!link) return undefined;
      const local = checkReports(link, {
        ...{ owner: id, maxDepth: bounds.maxJsonDepth },
        resolveChild: (given) => resolveChild(given, { endpoints, holder, own: id }),
      });
      if (!forwarder || authorization === undefined) return local;
      return forwarder.linkTo({ endpointId: id, authorization, local });
    },
    allowance,
    budget: flows.workers,
    scheduler,
    noteCrash(endpoint, { detail, incarnation, workerId }) {
      // The owner has noted it too.
      if (forwarding && forwarding.placement.find(endpoint).kind !== 'here') return;
      metrics.noteCrash(endpoint);
      log.warn({ endpoint, workerId, incarnation, detail }, 'worker process exited');
    },
  };
}

/** @throws ProblemError `invalid` if the caller's key is for other endpoints */
function resolveChild(
  given: string,
  {
    endpoints,
    holder,
    own,
  }: {
    endpoints: Pick<Endpoints, 'resolve'>;
    holder: KeyHolder | undefined;
    own: string;
  },
): string {
  if (!holder || given === own) return given;
  const id = endpoints.resolve(holder.userId, given);
  // The platform has started the worker for the owner of the endpoint.
  const mayStart = id === own || holder.podId !== null;
  if (mayStart || allows(holder, 'worker', id) || allows(holder, 'jobs:write', id)) return id;
  throw new ProblemError(
    'invalid',
    `ctx.run: the key of the worker is not valid for endpoint ${given}; it needs the scope worker or jobs:write for that one too`,
  );
}

function findKnownUser(
  { keys, sessions }: ApiServices,
  origins: ClientOrigins,
): ApiContext['findUser'] {
  return (request) => {
    const { authorization, cookie } = request.headers;
    if (authorization) return keys.authenticate(authorization.replace(BEARER, ''))?.userId;
    if (cookie === undefined) return undefined;
    const token = readToken(cookie, origins.ofRequest(request));
    return token === undefined ? undefined : sessions?.find(token)?.holder.userId;
  };
}

function listNamed({ endpoints, keys, pods, resources }: ApiServices): NamedKinds {
  const always: [string, NamedRecords | undefined][] = [
    [RESOURCES.endpoints.singular, endpoints],
    [RESOURCES.keys.singular, keys],
    [RESOURCES.pods.singular, pods],
  ];
  const stored = resources?.served.map(
    ({ resource, service }) => [nameParameter(resource.outline), service] as const,
  );
  const all = [...always, ...(stored ?? [])];
  return new Map(all.flatMap(([name, records]) => (records ? [[name, records]] : [])));
}
