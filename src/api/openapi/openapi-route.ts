// Serves GET /openapi.json. Needs no key, because the document contains no user's data.
import { JSON_MEDIA_TYPE, sendShared } from '../http/byte-reply.ts';
import type { OperationHandler } from '../routes/operation-routes.ts';
import { createOpenApi } from './openapi.ts';

/** @param version of the package */
export function handleOpenApi(version: string): OperationHandler {
  let document: Buffer | undefined;
  return async (_request, reply) => {
    // Built on the first request, because few clients request it.
    document ??= Buffer.from(JSON.stringify(createOpenApi(version)));
    return sendShared(reply, { mediaType: JSON_MEDIA_TYPE, pieces: [document] });
  };
}
