// Puts the framework together: the server with its checks of every request, and the routes of every carrier and adapter.
import type { Socket } from 'node:net';
import { type FastifyInstance, type FastifyRequest, fastify } from 'fastify';
import { FRAMES_MEDIA_TYPE } from '../wire/link/http-form.ts';
import { JSON_TYPE } from '../wire/operations/operation.ts';
import { ADAPTERS } from './adapters.ts';
import { createBodyReader } from './body/body-reader.ts';
import type { ApiContext } from './context.ts';
import { allowOrigins } from './http/cors.ts';
import { answerUnknownRoutes, collectRoutes, guard, type ServedRoute } from './http/guard.ts';
import { completeInnerRequests } from './http/inner-request.ts';
import { endWithProblem, ProblemReplies, SAFE_HEADERS } from './http/problem-reply.ts';
import { findExcess, measureHead } from './limits/bounds.ts';
import { createListener, describeClientError } from './listener.ts';
import { foldTarget } from './proxy/message-head.ts';
import { addLbRoutes } from './proxy/proxy.ts';
import { addConsole } from './routes/console-routes.ts';
import { addBodyScope, addOperations } from './routes/operation-routes.ts';
import { bindAll } from './routes/route-list.ts';
import { addReportRoute, addWorkerVerbRoutes } from './worker/worker-routes.ts';

export interface Assembly {
  app: FastifyInstance;
  routes: readonly ServedRoute[];
  /** Steps that run before requests are rejected. */
  stopSteps: readonly (() => Promise<void>)[];
}

export function assemble(context: ApiContext): Assembly {
  const app = createApp(context);
  completeInnerRequests(app);
  allowOrigins(app, context.corsOrigins ?? []);
  answerUnknownRoutes(app);
  const routes = collectRoutes(app);
  addChecks(app, context);
  const stopSteps = addRoutes(app, context);
  return { app, routes, stopSteps };
}

function createApp(context: ApiContext): FastifyInstance {
  const { bounds, clock, connections, flows, listBytes, log, origins, queue } = context;
  const isClosing = () => queue.isClosing;
  const problems = new ProblemReplies({ log, clock, origins, isClosing, formFor: findErrorForm });
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
      return createListener(listen, { ...context, budget: flows.clients }, connections);
    },
    frameworkErrors: (error, request, reply) =>
      problems.send(findExcess(measureHead(request.raw), bounds) ?? error, request, reply),
    clientErrorHandler: (error, socket) => answerClientError(error, socket, context),
  });
  app.decorate('listBytes', listBytes);
  app.decorateRequest('holder', undefined);
  app.decorateRequest('session', undefined);
  app.decorateRequest('rateCounts', undefined);
  app.decorate('flows', flows);
  app.decorate('origins', origins);
  const schedule = ({ holder, raw }: FastifyRequest) =>
    context.scheduler.take(() =>
      holder ? { group: 'users', owner: holder.userId } : connections.laneOf(raw.socket),
    );
  app.decorate('readBody', createBodyReader({ ...bounds, flows, clock, schedule }));
  answerErrors(app, problems, context);
  return app;
}

/** Routes have no fastify schemas, so its compilers, 100 files, need not be loaded. */
const NO_COMPILERS = {
  buildValidator: () => refuseSchemas,
  buildSerializer: () => refuseSchemas,
};

function refuseSchemas(): never {
  throw new Error('A route has a schema; operations check their requests with zod');
}

/** Unknown paths and methods are answered in the error format of their API. */
function findErrorForm(url: string) {
  return ADAPTERS.find((adapter) => adapter.serves(url))?.errors;
}

function answerClientError(
  error: NodeJS.ErrnoException,
  socket: Socket,
  { bounds, clock, connections, scheduler }: ApiContext,
): void {
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
  );
}

function answerErrors(
  app: FastifyInstance,
  problems: ProblemReplies,
  { forwarder, queue }: ApiContext,
): void {
  app.setErrorHandler((error, request, reply) => {
    const taken = forwarder?.takeLost(request, reply, { error, queue });
    if (!taken) problems.send(error, request, reply);
    void taken?.then((left) => {
      if (left !== undefined) problems.send(left, request, reply);
    });
  });
}

/** In the order in which a request passes them. */
function addChecks(app: FastifyInstance, context: ApiContext): void {
  const { forwarder, watches } = context;
  const { keyWatch, sessionWatch } = watches;
  app.addHook('onClose', async () => {
    keyWatch.close();
    sessionWatch?.close();
  });
  forwarder?.addChecks(app, context);
  const forward = forwarder?.pass.bind(forwarder);
  guard(app, { ...context, ...watches, forward });
  forwarder?.followServed(app);
}

/** Returns the steps that run before requests are rejected. */
function addRoutes(app: FastifyInstance, context: ApiContext): (() => Promise<void>)[] {
  const {
    balancer,
    events,
    forwarder,
    log,
    version,
    workerAllowance: allowance,
    workers,
  } = context;
  addBodyScope(app, JSON_TYPE, (scope) => addWorkerVerbRoutes(scope, workers));
  addBodyScope(app, FRAMES_MEDIA_TYPE, (scope) => addReportRoute(scope, workers));
  if (balancer) addLbRoutes(app, { ...context, balancer });
  addConsole(app, { folder: context.consoleFolder, log, version });
  addOperations(app, bindAll(context));
  const steps = [async () => forwarder?.stop(), async () => events.hub.stop()];
  const onStop = (step: () => Promise<void>) => void steps.push(step);
  for (const adapter of ADAPTERS) adapter.addRoutes(app, { ...context, allowance, onStop });
  return steps;
}
