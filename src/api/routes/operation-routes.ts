// Creates the routes of described operations: method, path, scope, media type and body limit come from
// the description.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import {
  JSON_TYPE,
  type Operation,
  type Operations,
  RESOURCE_BODY_BYTES,
} from '../../wire/operations/operation.ts';
import type { PathParameters, Route } from '../../wire/routes/route.ts';
import { checkNoBody } from '../body/body.ts';
import type { QueryValues } from '../http/requests.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Undefined for workers' verbs and for routes that follow another service's API. */
    operation?: Operation;
  }
}

export interface OperationRoute<Path extends string> {
  Params: PathParameters<Path>;
  Querystring: QueryValues;
  Body: Buffer | undefined;
}

export type OperationHandler<Path extends string = string> = (
  request: FastifyRequest<OperationRoute<Path>>,
  reply: FastifyReply,
) => Promise<FastifyReply>;

export type OperationHandlers<Described extends Operations> = {
  readonly [Id in keyof Described]: OperationHandler<Described[Id]['path']>;
};

/** An operation with its handler. `add` needs an `app` that provides bodies as Buffers. */
export interface BoundOperation {
  operation: Operation;
  add: (app: FastifyInstance) => void;
}

/** Binds each operation to its handler. A missing handler does not compile. */
export function bindOperations<Described extends Operations>(
  operations: Described,
  handlers: OperationHandlers<Described>,
): BoundOperation[] {
  return Object.keys(operations).flatMap((id) => {
    const operation = operations[id];
    const handle = handlers[id];
    return operation && handle ? [bindOperation(operation, handle)] : [];
  });
}

/** If the operation takes no body, the route refuses one. Otherwise the handler reads the body. */
export function bindOperation<Path extends string>(
  operation: Operation<Path>,
  handle: OperationHandler<Path>,
): BoundOperation {
  const { body, endsCleanly, isStream, method } = operation;
  const isReading = method === 'GET';
  const bodyLimit = body ? (body.maxBytes ?? RESOURCE_BODY_BYTES) : NO_BODY_BYTES;
  return {
    operation,
    add(app) {
      app.route<OperationRoute<Path>>({
        ...toFastifyRoute(operation),
        // No HEAD for streams: reading one moves its cursor.
        method: isReading && !isStream ? ['GET', 'HEAD'] : method,
        ...(!isReading && { bodyLimit }),
        config: {
          access: operation.access,
          operation,
          ...(isStream && !endsCleanly && { endsWithKey: true }),
        },
        handler: (request, reply) => {
          if (!isReading && !body) checkNoBody(request.body);
          return handle(request, reply);
        },
      });
    },
  };
}

/** Converts a route to fastify's form. */
export function toFastifyRoute({ access, method, path }: Route) {
  return { method, url: path, config: { access } };
}

/** Operations with a body take its media type, JSON by default, and no other one. */
export function addOperations(app: FastifyInstance, bound: readonly BoundOperation[]): void {
  const withBody = Map.groupBy(
    bound.filter(({ operation }) => operation.body),
    ({ operation }) => operation.body?.mediaType ?? JSON_TYPE,
  );
  const others = bound.filter(({ operation }) => !operation.body);
  for (const [mediaType, some] of withBody) {
    const [streamed, whole] = split(some);
    addBodyScope(app, mediaType, (scope) => {
      for (const { add } of whole) add(scope);
    });
    addStreamScope(app, mediaType, (scope) => {
      for (const { add } of streamed) add(scope);
    });
  }
  addBodyScope(app, '*', (scope) => {
    for (const { add } of others) add(scope);
  });
}

function split(some: readonly BoundOperation[]): [BoundOperation[], BoundOperation[]] {
  const isStreamed = ({ operation }: BoundOperation) => operation.body?.isStreamed === true;
  return [some.filter(isStreamed), some.filter((each) => !isStreamed(each))];
}

/** Body limit of operations that take no body: enough for an empty object and white space. */
export const NO_BODY_BYTES = 1_024;

/**
 * Request bodies arrive as Buffers. Adds routes for bodies of one media type, or of any (`*`); other types get 415.
 */
export function addBodyScope(
  app: FastifyInstance,
  mediaType: string,
  addRoutes: (scope: FastifyInstance) => void,
): void {
  app.register((scope, _options, registered) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser(mediaType, app.readBody);
    addRoutes(scope);
    registered();
  });
}

/** The handlers read the bodies piece by piece. */
export function addStreamScope(
  app: FastifyInstance,
  mediaType: string,
  addRoutes: (scope: FastifyInstance) => void,
): void {
  app.register((scope, _options, registered) => {
    scope.removeAllContentTypeParsers();
    // The body stays undefined.
    scope.addContentTypeParser(mediaType, async () => undefined);
    addRoutes(scope);
    registered();
  });
}
