// GET /openapi.json: what the platform can be asked, for programs. Open, as it tells of no user.
import type { FastifyInstance } from 'fastify';
import { sendJson } from './job-routes.ts';
import { createOpenApi, type OpenApi } from './openapi.ts';
import { OPENAPI_PATH } from './system-operations.ts';

export interface OpenApiRoutesOptions {
  /** Of the package. */
  version: string;
}

export function addOpenApiRoutes(app: FastifyInstance, { version }: OpenApiRoutesOptions): void {
  let document: OpenApi | undefined;
  app.get(OPENAPI_PATH, { config: { access: 'open' } }, async (_request, reply) => {
    // Few ask for it: a platform starts without.
    document ??= createOpenApi(version);
    return sendJson(reply, document);
  });
}
