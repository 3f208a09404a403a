// Scopes of routes whose bodies are Buffers.
import type { FastifyInstance } from 'fastify';

/** Of operations that take no body: enough for an empty object with some space. */
export const NO_BODY_BYTES = 1_024;

/** Routes whose bodies are Buffers, of one media type or any (`*`); other types get 415. */
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
