// OpenAI's files and batches, below the OpenAI API of an endpoint: records of the queue in OpenAI's form.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { StoredBatch, StoredFile } from '../../queue/batches/batch-record.ts';
import { BATCH_LIMITS } from '../../wire/job/batch.ts';
import {
  OPENAI_BATCH_OPERATIONS,
  openAiBatchCreation,
  openAiExpiry,
  readWindow,
} from '../../wire/operations/openai-operations.ts';
import { JSON_TYPE } from '../../wire/operations/operation.ts';
import { ProblemError } from '../../wire/problem.ts';
import { RUNPOD_BASE } from '../../wire/routes/routes.ts';
import type { AdapterParts } from '../adapter.ts';
import { check, parseJson } from '../body/body.ts';
import { findBoundary, readField, readForm } from '../body/multipart.ts';
import { streamBody, UPLOAD_CLAIM_BYTES } from '../body/streamed-body.ts';
import { sendFile } from '../files.ts';
import { sendJson } from '../http/byte-reply.ts';
import { type QueryValues, readInteger, readText, refuseParameter } from '../http/requests.ts';
import { addBodyScope, addStreamScope, NO_BODY_BYTES } from '../routes/operation-routes.ts';
import { OPENAI_FORM } from './batch-form.ts';

/** A form around a file. */
const FORM_BYTES = 1_048_576;
const MULTIPART_TYPE = 'multipart/form-data';

interface BatchRoute {
  Params: { endpoint: string; file: string; batch: string };
  Querystring: QueryValues;
  Body: Buffer | undefined;
}
type Request = FastifyRequest<BatchRoute>;

export function addBatchRoutes(app: FastifyInstance, options: AdapterParts): void {
  const { queue } = options;
  const add = (
    scope: FastifyInstance,
    operation: (typeof OPENAI_BATCH_OPERATIONS)[keyof typeof OPENAI_BATCH_OPERATIONS],
    handler: (request: Request, reply: FastifyReply) => Promise<FastifyReply>,
    bodyLimit = NO_BODY_BYTES,
  ) => {
    const { access, method, path } = operation;
    for (const base of ['', RUNPOD_BASE]) {
      const config = { access, operation };
      scope.route<BatchRoute>({ method, url: `${base}${path}`, config, bodyLimit, handler });
    }
  };
  const routes = OPENAI_BATCH_OPERATIONS;
  addStreamScope(app, MULTIPART_TYPE, (scope) => {
    const maxBytes = BATCH_LIMITS.fileBytes + FORM_BYTES;
    const upload = (request: Request, reply: FastifyReply) => uploadFile(request, reply, options);
    add(scope, routes.uploadOpenAiFile, upload, maxBytes);
  });
  addBodyScope(app, JSON_TYPE, (scope) => {
    add(
      scope,
      routes.createOpenAiBatch,
      async (request, reply) => {
        const { body = Buffer.alloc(0), params } = request;
        const given = check(parseJson(body), openAiBatchCreation);
        const batch = await queue.batches.create({
          endpointId: params.endpoint,
          fileId: given.input_file_id,
          target: given.endpoint,
          windowMs: readWindow(given.completion_window),
          metadata: given.metadata,
          retentionMs: given.output_expires_after && given.output_expires_after.seconds * 1_000,
        });
        return sendJson(reply, describeBatch(batch));
      },
      BODY_BYTES,
    );
  });
  addBodyScope(app, '*', (scope) => {
    add(scope, routes.cancelOpenAiBatch, async (request, reply) =>
      sendJson(reply, describeBatch(await queue.batches.cancel(readBatchKey(request)))),
    );
    add(scope, routes.getOpenAiBatch, async (request, reply) =>
      sendJson(reply, describeBatch(await queue.batches.read(readBatchKey(request)))),
    );
    add(scope, routes.listOpenAiBatches, async ({ params, query }, reply) => {
      const { endpoint: endpointId } = params;
      const after = readText(query, 'after');
      const before = after && (await queue.batches.read({ endpointId, id: after })).position;
      const listing = { endpointId, before: before || undefined, limit: readLimit(query) };
      const { batches, next } = await queue.batches.list(listing);
      return sendJson(reply, describeList(batches.map(describeBatch), next));
    });
    add(scope, routes.listOpenAiFiles, async ({ params, query }, reply) => {
      const { endpoint: endpointId } = params;
      const after = readText(query, 'after');
      if ((readText(query, 'order') ?? 'desc') !== 'desc') {
        throw refuseParameter('order', 'must be desc: the newest file is the first');
      }
      const before = after && (await queue.files.read({ endpointId, id: after })).position;
      const listing = { endpointId, before: before || undefined, limit: readLimit(query) };
      const { files, next } = await queue.files.list(listing);
      const purpose = readText(query, 'purpose');
      const wanted = files.filter((file) => purpose === undefined || file.purpose === purpose);
      return sendJson(reply, describeList(wanted.map(describeFile), next));
    });
    add(scope, routes.getOpenAiFile, async (request, reply) =>
      sendJson(reply, describeFile(await queue.files.read(readFileKey(request)))),
    );
    add(scope, routes.deleteOpenAiFile, async (request, reply) => {
      const key = readFileKey(request);
      await queue.files.delete(key);
      return sendJson(reply, { id: key.id, object: 'file', deleted: true });
    });
    add(scope, routes.getOpenAiFileContent, async (request, reply) =>
      sendFile(reply, queue, await queue.files.read(readFileKey(request))),
    );
  });
}

const BODY_BYTES = 65_536;

function writeWindow(ms: number): string {
  if (ms % 3_600_000 === 0) return `${ms / 3_600_000}h`;
  return ms % 60_000 === 0 ? `${ms / 60_000}m` : `${Math.round(ms / 1_000)}s`;
}

function readLimit(query: QueryValues): number {
  const limit = readInteger(query, 'limit', { min: 1, max: 10_000 }) ?? 20;
  return Math.min(limit, BATCH_LIMITS.listed);
}

async function uploadFile(
  request: Request,
  reply: FastifyReply,
  { bounds, clock, queue }: AdapterParts,
): Promise<FastifyReply> {
  const boundary = findBoundary(request.headers['content-type']);
  if (boundary === undefined) {
    throw new ProblemError('malformed', 'Content-Type has no boundary; send multipart/form-data.');
  }
  const maxBytes = BATCH_LIMITS.fileBytes + FORM_BYTES;
  const body = streamBody(request, {
    ...{ clock, maxBytes, stallMs: bounds.stallMs, claimBytes: UPLOAD_CLAIM_BYTES },
  });
  const { endpoint: endpointId } = request.params;
  const fields = new Map<string, string>();
  let stored: StoredFile | undefined;
  try {
    const parts = readForm(body, boundary);
    for (;;) {
      const { done, value: part } = await parts.next();
      if (done) break;
      if (part.name !== 'file') {
        fields.set(part.name, await readField(part));
        continue;
      }
      const name = (part.fileName ?? 'file.jsonl').slice(0, BATCH_LIMITS.fileNameCharacters);
      // The other fields may come behind the file.
      const content = async function* () {
        yield* part.content;
        for await (const other of parts) fields.set(other.name, await readField(other));
        checkPurpose(fields);
      };
      const readRetention = () => readExpiry(fields);
      const file = { endpointId, name, form: OPENAI_FORM, readRetention };
      stored = await queue.files.upload(file, content());
      break;
    }
  } finally {
    await body.return(undefined);
  }
  if (!stored) throw refuseFields(['file: is missing']);
  return sendJson(reply, describeFile(stored));
}

function checkPurpose(fields: ReadonlyMap<string, string>): void {
  const purpose = fields.get('purpose');
  if (purpose === 'batch') return;
  throw refuseFields([
    `purpose: is ${JSON.stringify(purpose ?? null)?.slice(0, 100)}; files here have the purpose batch`,
  ]);
}

/** @throws ProblemError `invalid` */
function readExpiry(fields: ReadonlyMap<string, string>): number | undefined {
  const seconds = fields.get('expires_after[seconds]');
  if (seconds === undefined) return undefined;
  const anchor = fields.get('expires_after[anchor]');
  return check({ anchor, seconds: Number(seconds) }, openAiExpiry).seconds * 1_000;
}

function refuseFields(errors: string[]): ProblemError {
  return new ProblemError('invalid', `The form is invalid: ${errors[0]}`, { errors });
}

function readFileKey({ params }: Request) {
  return { endpointId: params.endpoint, id: params.file };
}

function readBatchKey({ params }: Request) {
  return { endpointId: params.endpoint, id: params.batch };
}

function describeList(data: readonly { id: string }[], next: number | undefined): object {
  return {
    ...{ object: 'list', data, has_more: next !== undefined },
    ...{ first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null },
  };
}

function describeFile({ bytes, createdAt, expiresAt, id, name, purpose }: StoredFile) {
  return {
    ...{ id, object: 'file', bytes, created_at: inSeconds(createdAt) },
    ...{ expires_at: inSeconds(expiresAt), filename: name, purpose, status: 'processed' },
  };
}

const STATUSES = {
  running: 'in_progress',
  cancelling: 'cancelling',
  expiring: 'finalizing',
  completed: 'completed',
  cancelled: 'cancelled',
  expired: 'expired',
} as const;

function describeBatch(batch: StoredBatch) {
  const { createdAt, endedAt, expiresAt, state, stoppedAt } = batch;
  const at = (ms: number | null) => (ms === null ? null : inSeconds(ms));
  const when = (isSo: boolean, ms: number | null) => (isSo ? at(ms) : null);
  const wasCancelled = state === 'cancelling' || state === 'cancelled';
  const hasEnded = endedAt !== null;
  return {
    id: batch.id,
    object: 'batch',
    endpoint: batch.target,
    errors: null,
    input_file_id: batch.fileId,
    completion_window: writeWindow(expiresAt - createdAt),
    status: STATUSES[state],
    output_file_id: hasEnded && batch.output.lines > 0 ? batch.output.id : null,
    error_file_id: hasEnded && batch.errors.lines > 0 ? batch.errors.id : null,
    created_at: inSeconds(createdAt),
    in_progress_at: inSeconds(createdAt),
    expires_at: inSeconds(expiresAt),
    finalizing_at: at(state === 'completed' ? endedAt : wasCancelled ? null : stoppedAt),
    completed_at: when(state === 'completed', endedAt),
    failed_at: null,
    expired_at: when(state === 'expired', endedAt),
    cancelling_at: when(wasCancelled, stoppedAt),
    cancelled_at: when(state === 'cancelled', endedAt),
    request_counts: { total: batch.total, completed: batch.completed, failed: batch.failed },
    metadata: batch.metadata,
  };
}

function inSeconds(ms: number): number {
  return Math.floor(ms / 1_000);
}
