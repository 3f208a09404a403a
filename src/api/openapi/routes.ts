// GET /openapi.json: what the platform can be asked, for programs. Open, as it tells of no user.
import { JSON_MEDIA_TYPE, sendShared } from '../http/byte-reply.ts';
import type { OperationHandler } from '../routes/operation-routes.ts';
import { createOpenApi } from './openapi.ts';

/** @param version of the package */
export function handleOpenApi(version: string): OperationHandler {
  let document: Buffer | undefined;
  return async (_request, reply) => {
    // Few ask for it: a platform starts without.
    document ??= Buffer.from(JSON.stringify(createOpenApi(version)));
    return sendShared(reply, { mediaType: JSON_MEDIA_TYPE, pieces: [document] });
  };
}
