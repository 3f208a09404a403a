// GET /openapi.json: what the platform can be asked, for programs. Open, as it tells of no user.
import type { FastifyInstance } from 'fastify';
import { JSON_MEDIA_TYPE, sendShared } from '../http/byte-reply.ts';
import { createOpenApi } from './openapi.ts';
import { OPENAPI_PATH } from './system-operations.ts';

export interface OpenApiRoutesOptions {
  /** Of the package. */
  version: string;
}

export function addOpenApiRoutes(app: FastifyInstance, { version }: OpenApiRoutesOptions): void {
  let document: Buffer | undefined;
  app.get(OPENAPI_PATH, { config: { access: 'open' } }, async (_request, reply) => {
    // Few ask for it: a platform starts without.
    document ??= Buffer.from(JSON.stringify(createOpenApi(version)));
    return sendShared(reply, { mediaType: JSON_MEDIA_TYPE, pieces: [document] });
  });
}
