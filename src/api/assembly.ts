// Puts the API together: the framework with its checks, and the routes of every carrier and adapter.
import type { IncomingMessage } from 'node:http';
import { type FastifyInstance, type FastifyRequest, fastify } from 'fastify';
import { Registry } from 'prom-client';
import { FairScheduler } from '../base/fair-scheduler.ts';
import type { Endpoints } from '../control/endpoints/endpoints.ts';
import { KeyWatch } from '../control/keys/keys.ts';
import { UserKeys } from '../control/keys/user-keys.ts';
import { countUse } from '../control/limits/quotas.ts';
import type { NamedRecords } from '../control/name-index.ts';
import { forCallers, LIST_BYTES } from '../control/user-resources.ts';
import { readActivity } from '../queue/activity/activity.ts';
import type { Queues } from '../queue/queues.ts';
import { FRAMES_MEDIA_TYPE } from '../wire/link/frames.ts';
import type { WorkerLink } from '../wire/link/worker-link.ts';
import { JSON_TYPE } from '../wire/operations/operation.ts';
import { endpoints as endpointResource } from '../wire/resources/endpoint.ts';
import { nameParameter } from '../wire/routes/route.ts';
import { RESOURCES } from '../wire/routes/routes.ts';
import { ADAPTERS } from './adapters.ts';
import { createBodyReader } from './body/body-reader.ts';
import { openEvents } from './events/open-events.ts';
import { Forwarder } from './forwarding/forwarder.ts';
import {
  addForwardingHooks,
  countServed,
  lookUpUnknownNames,
  mayBeLost,
  noteLost,
  passLost,
  tellOwner,
} from './forwarding/forwarding-hooks.ts';
import { completeForwardingBounds } from './forwarding/forwarding-options.ts';
import { createNodeLink } from './forwarding/node-link.ts';
import { BEARER } from './http/auth.ts';
import { ClientOrigins } from './http/client-origin.ts';
import { allowOrigins } from './http/cors.ts';
import { answerUnknownRoutes, collectRoutes, guard, type ServedRoute } from './http/guard.ts';
import { endWithProblem, ProblemReplies, SAFE_HEADERS } from './http/problem-reply.ts';
import type { NamedKinds } from './http/requests.ts';
import { readToken } from './http/session-cookie.ts';
import { findExcess, type HttpBounds, measureHead } from './limits/bounds.ts';
import type { Connections } from './limits/connections.ts';
import { Flows } from './limits/flows.ts';
import { createListener, describeClientError } from './listener.ts';
import { type ApiMetrics, createMetrics } from './metrics/metrics.ts';
import { SOUND_STORE } from './metrics/store-status.ts';
import { Overviews } from './overviews.ts';
import { foldTarget } from './proxy/message-head.ts';
import { addLbRoutes } from './proxy/proxy.ts';
import { checkReports } from './report-check.ts';
import { addConsole } from './routes/console-routes.ts';
import { bindEvents } from './routes/event-routes.ts';
import { bindJobs } from './routes/job-routes.ts';
import { addBodyScope, addOperations, type BoundOperation } from './routes/operation-routes.ts';
import { bindPods } from './routes/pod-routes.ts';
import { bindKeys, bindResource, serveCallers } from './routes/resource-routes.ts';
import { type AboutPlatform, bindSessions } from './routes/session-routes.ts';
import { StreamCursors } from './routes/stream-answers.ts';
import { handleStream } from './routes/stream-routes.ts';
import { bindCatalog, bindNodes, bindSystem } from './routes/system-routes.ts';
import { bindActivity, bindBilling, bindLimits, bindScaler } from './routes/usage-routes.ts';
import { bindVersions } from './routes/version-routes.ts';
import type { ApiServerOptions } from './server-options.ts';
import {
  addReportRoute,
  addWorkerVerbRoutes,
  type WorkerRoutesOptions,
} from './worker/worker-routes.ts';

/** Routes have no fastify schemas, so its compilers, 100 files, need not be loaded. */
const NO_COMPILERS = {
  buildValidator: () => refuseSchemas,
  buildSerializer: () => refuseSchemas,
};

function refuseSchemas(): never {
  throw new Error('A route has a schema; operations check their requests with zod');
}

export interface Assembly {
  app: FastifyInstance;
  routes: readonly ServedRoute[];
  workers: WorkerRoutesOptions;
  /** Undefined without other nodes. */
  forwarder: Forwarder | undefined;
  /** Steps that run before requests are rejected. */
  stopSteps: readonly (() => Promise<void>)[];
}

type AssemblyOptions = ApiServerOptions & { bounds: HttpBounds };

export function assemble(options: AssemblyOptions, connections: Connections): Assembly {
  const { bounds, clock, endpoints, isReady = () => true, log, queue, registry, version } = options;
  const { pods, store = SOUND_STORE } = options;
  const isClosing = () => queue.isClosing;
  const origins = new ClientOrigins(bounds);
  const problems = new ProblemReplies({ log, clock, origins, isClosing, formFor: findErrorForm });
  const metrics = createMetrics({
    registry: registry ?? new Registry(),
    queue,
    endpoints,
    store,
    version,
    listPods: pods && (() => pods.all()),
    catalog: options.resources?.catalog,
    readCosts:
      pods && (() => options.resources?.billing.readTotals((id) => endpoints.has(id)) ?? []),
    isLeader: () => {
      const { forwarding } = options;
      return !forwarding || forwarding.placement.find(undefined).kind === 'here';
    },
  });
  const scheduler = new FairScheduler();
  const flows = new Flows({ ...bounds, clock });
  const findUser = findKnownUser(options, origins);
  const listening = { ...options, scheduler, origins, findUser, budget: flows.clients };
  const app = fastify({
    logger: false,
    exposeHeadRoutes: false,
    return503OnClosing: false,
    routerOptions: { maxParamLength: 200 },
    schemaController: { compilersFactory: NO_COMPILERS },
    rewriteUrl: ({ url = '/' }) => foldTarget(url),
    serverFactory: (listener) => {
      const listen: typeof listener = (request, response) => {
        // Set first, so that an answer with a job's output or a pod's log never runs as a script of this origin.
        for (const [name, value] of SAFE_HEADERS) response.setHeader(name, value);
        listener(request, response);
      };
      return createListener(listen, listening, connections);
    },
    frameworkErrors: (error, request, reply) =>
      problems.send(findExcess(measureHead(request.raw), bounds) ?? error, request, reply),
    clientErrorHandler: (error, socket) =>
      scheduler.run(
        () => connections.laneOf(socket),
        () => {
          const isReset = error.code === 'ECONNRESET';
          // After unreadable data, nothing else on the connection can be read.
          if (socket.writableEnded && !socket.destroyed && !isReset) return;
          if (socket.writable && !isReset && !connections.isAnswering(socket)) {
            endWithProblem(socket, { problem: describeClientError(error, bounds), clock });
          } else socket.destroy();
        },
      ),
  });
  app.decorate('listBytes', options.listBytes ?? LIST_BYTES);
  app.decorateRequest('holder', undefined);
  app.decorateRequest('session', undefined);
  app.decorateRequest('rateCounts', undefined);
  app.decorate('flows', flows);
  app.decorate('origins', origins);
  const schedule = ({ holder, raw }: FastifyRequest) =>
    scheduler.take(() =>
      holder ? { group: 'users', owner: holder.userId } : connections.laneOf(raw.socket),
    );
  app.decorate('readBody', createBodyReader({ ...bounds, flows, clock, schedule }));
  const forwarder = createForwarder(options, metrics);
  app.setErrorHandler((error, request, reply) => {
    if (forwarder) noteLost(request, reply, { error, forwarder, queue });
    if (!forwarder || !mayBeLost(request, reply, { error, forwarder })) {
      problems.send(error, request, reply);
      return;
    }
    void passLost(request, reply, { error, forwarder }).then((left) => {
      if (left !== undefined) problems.send(left, request, reply);
    });
  });
  allowOrigins(app, options.corsOrigins ?? []);
  answerUnknownRoutes(app);
  const routes = collectRoutes(app);
  const keyWatch = new KeyWatch(options);
  const { sessions } = options;
  const sessionWatch = sessions && new KeyWatch({ keys: sessions, clock });
  app.addHook('onClose', async () => {
    keyWatch.close();
    sessionWatch?.close();
  });
  if (forwarder) addForwardingHooks(app, { forwarder, queue });
  const forward =
    forwarder && ((...call: Parameters<Forwarder['pass']>) => forwarder.pass(...call));
  if (options.forwarding) lookUpUnknownNames(app, { ...options, ...options.forwarding });
  const watches = { keyWatch, sessionWatch };
  guard(app, { ...options, ...watches, metrics, connections, forward, named: listNamed(options) });
  if (options.forwarding) countServed(app, options.forwarding.placement);
  if (options.forwarding?.advertised) tellOwner(app, options.forwarding.advertised);
  const linkTo = createLinks(queue, endpoints);
  const worker: WorkerRoutesOptions = {
    linkTo(id, podId, authorization) {
      const link = linkTo(id, podId);
      if (!link) return undefined;
      const local = checkReports(link, { owner: id, maxDepth: bounds.maxJsonDepth });
      if (!forwarder || authorization === undefined) return local;
      const advertised = options.forwarding?.advertised?.grpcUrl;
      return createNodeLink({ forwarder, endpointId: id, authorization, local, advertised });
    },
    allowance: options.workerAllowance,
    budget: flows.workers,
    scheduler,
    noteCrash(endpoint, { detail, incarnation, workerId }) {
      // The owner has noted it too.
      if (options.forwarding && options.forwarding.placement.find(endpoint).kind !== 'here') return;
      metrics.noteCrash(endpoint);
      log.warn({ endpoint, workerId, incarnation, detail }, 'worker process exited');
    },
  };
  addBodyScope(app, JSON_TYPE, (scope) => addWorkerVerbRoutes(scope, worker));
  addBodyScope(app, FRAMES_MEDIA_TYPE, (scope) => addReportRoute(scope, worker));
  if (options.balancer) {
    addLbRoutes(app, { ...options, balancer: options.balancer, origins });
  }
  addConsole(app, { folder: options.consoleFolder, log, version });
  const overviews = new Overviews({
    endpoints,
    clock,
    read: options.readActivity ?? ((ids) => readActivity(queue, ids)),
    readFailed:
      options.readFailed ??
      (async (ids, listing) => ({
        ...(await queue.jobs.listFailed(ids, listing)),
        unreachable: [],
      })),
  });
  const events = openEvents({ ...options, overviews, forwarder, watches });
  metrics.countEvents(events.hub);
  const cursors = new StreamCursors({ queue, log, clock });
  const streamJob = handleStream({ queue, cursors, log, clock });
  addOperations(app, [
    ...bindJobs({ queue, watches, bounds, rateGate: options.rateGate }, { streamJob }),
    ...bindResources(options),
    ...(sessions ? bindSessions({ ...options, sessions, about: readAbout(options) }) : []),
    ...bindLimits({ ...options, readUse: options.readUse ?? createUseReader(options) }),
    ...bindNodes({ clock, listNodes: options.listNodes ?? (async () => []) }),
    ...bindActivity({ queue, endpoints, overviews, clock }),
    ...bindEvents(events),
    ...bindSystem({
      endpoints,
      metrics,
      version,
      isReady,
      store,
      isShuttingDown: () => connections.isShuttingDown,
    }),
  ]);
  const stopSteps: (() => Promise<void>)[] = [
    async () => forwarder?.stop(),
    async () => events.hub.stop(),
  ];
  const onStop = (step: () => Promise<void>) => void stopSteps.push(step);
  const { allowance } = worker;
  const adapted = { queue, linkTo, allowance, watches, cursors, bounds, clock, log, onStop };
  for (const adapter of ADAPTERS) adapter.addRoutes(app, adapted);
  return { app, routes, stopSteps, workers: worker, forwarder };
}

/** The user of a valid key or session. Does not check whether the request is allowed. */
function findKnownUser({ keys, sessions }: ApiServerOptions, origins: ClientOrigins) {
  return (request: IncomingMessage): string | undefined => {
    const { authorization, cookie } = request.headers;
    if (authorization) return keys.authenticate(authorization.replace(BEARER, ''))?.userId;
    if (cookie === undefined) return undefined;
    const token = readToken(cookie, origins.ofRequest(request));
    return token === undefined ? undefined : sessions?.find(token)?.holder.userId;
  };
}

function createForwarder(
  { bounds, clock, forwarding, log }: AssemblyOptions,
  metrics: ApiMetrics,
): Forwarder | undefined {
  if (!forwarding) return undefined;
  const { inFlightWaitMs, stallMs } = bounds;
  return new Forwarder({
    ...forwarding,
    inFlightWaitMs,
    stallMs,
    clock,
    log,
    bounds: completeForwardingBounds(forwarding.bounds),
    note: (forwarded) => metrics.noteForwarded(forwarded),
  });
}

function bindResources(options: ApiServerOptions): BoundOperation[] {
  const { endpoints, pods, resources } = options;
  return [
    ...bindKeys(new UserKeys(options)),
    ...bindResource(endpointResource, serveCallers(forCallers(endpoints))),
    ...bindPods(pods),
    ...(resources
      ? [
          ...resources.served.flatMap(({ resource, verbs }) =>
            bindResource(resource, serveCallers(verbs)),
          ),
          ...bindCatalog(resources),
          ...bindScaler({ ...resources, endpoints }),
          ...bindVersions(resources.versions),
          ...bindBilling(resources.billing),
        ]
      : []),
  ];
}

function createUseReader({ clock, endpoints, keys, pods, resources }: ApiServerOptions) {
  const { served = [], versions } = resources ?? {};
  return (userId: string) => countUse(userId, { clock, endpoints, keys, pods, served, versions });
}

const ABOUT_UNKNOWN: AboutPlatform = { engine: null, nodes: 1 };

function readAbout({ about = () => ABOUT_UNKNOWN }: ApiServerOptions): () => AboutPlatform {
  return about;
}

/** What paths may name instead of giving its ID. */
function listNamed({ endpoints, keys, pods, resources }: ApiServerOptions): NamedKinds {
  const own: [string, NamedRecords | undefined][] = [
    [RESOURCES.endpoints.singular, endpoints],
    [RESOURCES.keys.singular, keys],
    [RESOURCES.pods.singular, pods],
  ];
  const stored = resources?.served.map(
    ({ resource, service }) => [nameParameter(resource.outline), service] as const,
  );
  const all = [...own, ...(stored ?? [])];
  return new Map(all.flatMap(([name, records]) => (records ? [[name, records]] : [])));
}

/** Unknown paths and methods are answered in the error format of their API. */
function findErrorForm(url: string) {
  return ADAPTERS.find((adapter) => adapter.serves(url))?.errors;
}

function createLinks(queue: Queues, endpoints: Endpoints) {
  return (endpointId: string, podId: string | null): WorkerLink | undefined =>
    endpoints.has(endpointId) ? queue.link(endpointId, podId) : undefined;
}
