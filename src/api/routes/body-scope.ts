// Adds groups of routes that receive their request bodies as Buffers.
import type { FastifyInstance } from 'fastify';

/** Body limit of operations that take no body: enough for an empty object and white space. */
export const NO_BODY_BYTES = 1_024;

/** Adds routes for bodies of one media type, or of any (`*`); other types get 415. */
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
