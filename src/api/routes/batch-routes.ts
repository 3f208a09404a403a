// Serves the operations of batches in Millrace's own form by calls to the queue.
import type { FastifyRequest } from 'fastify';
import { describeBatch } from '../../queue/batches/batches.ts';
import { BATCH_LIMITS } from '../../wire/job/batch.ts';
import { BATCH_OPERATIONS } from '../../wire/operations/batch-operations.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { BATCH_ROUTES } from '../../wire/routes/routes.ts';
import { OWN_FORM } from '../batch-form.ts';
import { streamBody, UPLOAD_CLAIM_BYTES } from '../body/streamed-body.ts';
import type { ApiContext } from '../context.ts';
import { sendFile } from '../files.ts';
import { sendJson } from '../http/byte-reply.ts';
import {
  describeNext,
  readChoice,
  readInteger,
  readPageRequest,
  readText,
} from '../http/requests.ts';
import { type BoundOperation, bindOperations, type OperationRoute } from './operation-routes.ts';

type BatchRoute = OperationRoute<typeof BATCH_ROUTES.getBatch.path>;

export function bindBatches({ bounds, clock, queue }: ApiContext): BoundOperation[] {
  const { batches, files } = queue;
  return bindOperations(BATCH_OPERATIONS, {
    runBatch: async (request, reply) => {
      const { endpoint: endpointId } = request.params;
      const windowMs = readInteger(request.query, 'window', BATCH_LIMITS.windowMs);
      const given = readText(request.query, 'name') ?? 'batch.jsonl';
      const name = given.slice(0, BATCH_LIMITS.fileNameCharacters);
      const body = streamBody(request, {
        ...{ clock, stallMs: bounds.stallMs },
        ...{ maxBytes: BATCH_LIMITS.fileBytes, claimBytes: UPLOAD_CLAIM_BYTES },
      });
      const file = await files.upload({ endpointId, name, form: OWN_FORM }, body);
      try {
        const batch = await batches.create({ endpointId, fileId: file.id, windowMs });
        return sendJson(reply, describeBatch(batch));
      } catch (error) {
        await files.delete(file);
        throw error;
      }
    },
    listBatches: async (request, reply) => {
      const { before, limit } = readPageRequest(request);
      const ended = readChoice(request.query, 'ended', ['true', 'false']);
      const { batches: found, next } = await batches.list({
        ...{ endpointId: request.params.endpoint, before, limit },
        ended: ended === undefined ? undefined : ended === 'true',
      });
      return sendJson(reply, { batches: found.map(describeBatch), ...describeNext(next) });
    },
    getBatch: async (request, reply) =>
      sendJson(reply, describeBatch(await batches.read(readKey(request)))),
    cancelBatch: async (request, reply) =>
      sendJson(reply, describeBatch(await batches.cancel(readKey(request)))),
    getBatchResults: async (request, reply) => {
      const key = readKey(request);
      const { endedAt, errors, output } = await batches.read(key);
      if (endedAt === null) {
        throw new ProblemError('conflict', `batch ${key.id} has not ended; its results come then`);
      }
      const isFailed = readChoice(request.query, 'failed', ['true', 'false']) === 'true';
      const { id, lines } = isFailed ? errors : output;
      if (lines === 0) return sendFile(reply, queue, { ...EMPTY, endpointId: key.endpointId });
      return sendFile(reply, queue, await files.read({ ...key, id }));
    },
  });
}

const EMPTY = { id: '', name: 'results.jsonl', bytes: 0, parts: 0 };

function readKey({ params }: FastifyRequest<BatchRoute>) {
  return { endpointId: params.endpoint, id: params.batch };
}
