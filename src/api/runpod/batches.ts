// RunPod's batches: drafts to which requests are added, then batches of the queue in RunPod's form.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { BatchForm } from '../../queue/batches/batch-form.ts';
import {
  BATCH_PREFIX,
  FILE_PREFIX,
  type Results,
  type StoredBatch,
  type StoredFile,
} from '../../queue/batches/batch-record.ts';
import { LineSplitter } from '../../queue/batches/file-lines.ts';
import { ReadRecord } from '../../queue/jobs.ts';
import type { Queues } from '../../queue/queues.ts';
import { addMembers, type ComposeRecord } from '../../queue/records.ts';
import { BATCH_LIMITS } from '../../wire/job/batch.ts';
import { LIMITS } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import { RUNPOD_BASE } from '../../wire/routes/routes.ts';
import type { AdapterParts } from '../adapter.ts';
import { check, parseInSlices, readWithInput } from '../body/body.ts';
import { useBody } from '../body/body-reader.ts';
import { JSON_MEDIA_TYPE, sendBytes, sendJson } from '../http/byte-reply.ts';
import { type QueryValues, readInteger, readUser } from '../http/requests.ts';
import { DEFAULT_BOUNDS } from '../limits/bounds.ts';
import { NO_BODY_BYTES } from '../routes/operation-routes.ts';

export const RUNPOD_BATCH_FORM = 'runpod';

const { maxEnvelopeBytes, maxJsonDepth } = DEFAULT_BOUNDS;

const batchLine = z.object({
  id: z.string().max(BATCH_LIMITS.customIdCharacters),
  input: z.custom((value) => value !== undefined, 'is missing'),
});

/** `format`: of the records of jobs. */
export function createBatchForm(format: string): BatchForm {
  return {
    attachment: { format, handlerData: null },
    names: { customId: 'id', target: '' },
    async readLine(line, owner) {
      const bounds = { owner, maxEnvelopeBytes, maxJsonDepth };
      const { input, request } = await readWithInput(line, batchLine, bounds);
      return { customId: request.id, target: '', input };
    },
    async writeResult({ customId: id, end }) {
      if (end instanceof ReadRecord) {
        const compose: ComposeRecord = (job, _now, output) =>
          addMembers(
            {
              ...{ id, status: job.status },
              ...(job.error && { error: job.error.message }),
              ...{ startedAt: toIso(job.startedAt), completedAt: toIso(job.endedAt) },
            },
            output ? { output } : {},
          );
        return { isFailed: end.status !== 'COMPLETED', pieces: end.compose(compose) };
      }
      const status = end.code === 'job_removed' ? 'FAILED' : 'CANCELLED';
      const line = JSON.stringify({ id, status, error: end.message });
      return { isFailed: true, pieces: [Buffer.from(line)] };
    },
  };
}

function toIso(ms: number | null): string | null {
  return ms === null ? null : new Date(ms).toISOString();
}

interface BatchRoute {
  Params: { endpoint: string; batch: string };
  Querystring: QueryValues;
  Body: Buffer | undefined;
}
type Request = FastifyRequest<BatchRoute>;

const request = z.object({ input: z.unknown() }).refine(({ input }) => input !== undefined, {
  path: ['input'],
  error: 'is missing',
});
const requests = z.array(request).max(BATCH_LIMITS.lines);
const added = z.object({ requests });

const BASE = `${RUNPOD_BASE}/v2/:endpoint/batch`;
const WRITE = { access: 'jobs:write' } as const;
const READ = { access: 'jobs:read' } as const;

/** Bodies arrive as Buffers. */
export function addBatchRoutes(app: FastifyInstance, { queue }: AdapterParts): void {
  const { batches, files } = queue;
  app.route<BatchRoute>({
    ...{ method: 'POST', url: BASE, config: WRITE, bodyLimit: LIMITS.runBodyBytes },
    handler: (call, reply) =>
      useBody(call, async () => {
        const given = check(await parseInSlices(bodyOf(call), readUser(call)), requests);
        const { endpoint: endpointId } = call.params;
        const file = { endpointId, name: 'draft.jsonl', form: RUNPOD_BATCH_FORM, isDraft: true };
        const { id } = await files.upload(file, writeLines(given, 0));
        return sendJson(reply, { id: toBatchId(id), status: 'DRAFT' });
      }),
  });
  app.route<BatchRoute>({
    ...{ method: 'POST', url: `${BASE}/:batch/requests`, config: WRITE },
    bodyLimit: LIMITS.runBodyBytes,
    handler: (call, reply) =>
      useBody(call, async () => {
        const given = check(await parseInSlices(bodyOf(call), readUser(call)), added);
        const file = await files.append(draftKey(call), (lines) =>
          writeLines(given.requests, lines),
        );
        return sendJson(reply, describeDraft(file));
      }),
  });
  app.route<BatchRoute>({
    ...{ method: 'POST', url: `${BASE}/:batch/finalize`, config: WRITE, bodyLimit: NO_BODY_BYTES },
    handler: async (call, reply) => {
      const { endpointId, id: fileId } = draftKey(call);
      return sendJson(reply, describe(await batches.create({ endpointId, fileId })));
    },
  });
  app.route<BatchRoute>({
    ...{ method: 'POST', url: `${BASE}/:batch/cancel`, config: WRITE, bodyLimit: NO_BODY_BYTES },
    handler: async (call, reply) => sendJson(reply, describe(await batches.cancel(keyOf(call)))),
  });
  app.route<BatchRoute>({
    ...{ method: 'GET', url: `${BASE}/:batch`, config: READ },
    handler: async (call, reply) => sendJson(reply, await show(queue, call)),
  });
  app.route<BatchRoute>({
    ...{ method: 'GET', url: BASE, config: READ },
    handler: async ({ params, query }, reply) => {
      const limit = readInteger(query, 'limit', { min: 1, max: BATCH_LIMITS.listed }) ?? 50;
      const listing = { endpointId: params.endpoint, before: undefined, limit };
      const { batches: found } = await batches.list(listing);
      return sendJson(reply, { batches: found.map(describe) });
    },
  });
  app.route<BatchRoute>({
    ...{ method: 'GET', url: `${BASE}/:batch/requests`, config: READ },
    handler: async (call, reply) => {
      const offset = readInteger(call.query, 'offset', { min: 0, max: BATCH_LIMITS.lines }) ?? 0;
      const limit = readInteger(call.query, 'limit', { min: 1, max: 100 }) ?? 50;
      const batch = await batches.read(keyOf(call));
      const lines = await readResults(queue, batch, { offset, limit });
      const hasMore = offset + lines.length < batch.completed + batch.failed;
      const rest = JSON.stringify({ total: batch.total, offset, limit, hasMore }).slice(1);
      const text = `{"requests":[${lines.join(',')}],${rest}`;
      return sendBytes(reply, { mediaType: JSON_MEDIA_TYPE, pieces: [Buffer.from(text)] });
    },
  });
}

function bodyOf({ body = Buffer.alloc(0) }: Request): Buffer {
  return body;
}

/** `before`: lines that the draft has. */
async function* writeLines(
  given: readonly { input?: unknown }[],
  before: number,
): AsyncGenerator<Buffer> {
  for (const [index, { input }] of given.entries()) {
    yield Buffer.from(`${JSON.stringify({ id: `req_${before + index + 1}`, input })}\n`);
  }
}

/** A draft is a file until it is a batch of the same name. */
function toBatchId(fileId: string): string {
  return fileId.replace(FILE_PREFIX, BATCH_PREFIX);
}

function keyOf({ params }: Request) {
  return { endpointId: params.endpoint, id: params.batch };
}

function draftKey({ params }: Request) {
  const id = params.batch.replace(BATCH_PREFIX, FILE_PREFIX);
  return { endpointId: params.endpoint, id };
}

async function show({ batches, files }: Queues, call: Request): Promise<object> {
  try {
    return describe(await batches.read(keyOf(call)));
  } catch (error) {
    if (!(error instanceof ProblemError) || error.code !== 'not_found') throw error;
    const file = await files.read(draftKey(call));
    if (!file.isDraft) throw error;
    return describeDraft(file);
  }
}

function describeDraft({ createdAt, endpointId, id, lines }: StoredFile) {
  return {
    ...{ id: toBatchId(id), endpointId, status: 'DRAFT', requestTotal: lines },
    ...{ requestInProgress: 0, requestCompleted: 0, requestFailed: 0, createdAt },
  };
}

/** A batch stays FINALIZED when its requests have ended. */
function describe({
  completed,
  createdAt,
  endpointId,
  failed,
  id,
  live,
  state,
  total,
}: StoredBatch) {
  const status = state === 'cancelled' || state === 'cancelling' ? 'CANCELLED' : 'FINALIZED';
  return {
    ...{ id, endpointId, status, requestTotal: total, requestInProgress: live.length },
    ...{ requestCompleted: completed, requestFailed: failed, createdAt },
  };
}

/** Bytes of results that one page may look through. */
const MAX_SCANNED_BYTES = 64 * 1_048_576;
/** A page ends before it has more. */
const MAX_PAGE_BYTES = 2 * BATCH_LIMITS.lineBytes;

/** JSON of the requests that have ended, those that have failed last. */
async function readResults(
  { files }: Queues,
  { endpointId, errors, output }: StoredBatch,
  { limit, offset }: { offset: number; limit: number },
): Promise<string[]> {
  const found: string[] = [];
  let bytesLeft = MAX_PAGE_BYTES;
  let isFull = false;
  let skipped = 0;
  let scanned = 0;
  const scan = async (results: Results) => {
    if (skipped + results.lines <= offset) {
      skipped += results.lines;
      return;
    }
    const splitter = new LineSplitter();
    for (let index = 0; index < results.parts && !isFull; index++) {
      const part = (await files.part({ endpointId, id: results.id }, index)) ?? new Uint8Array();
      scanned += part.length;
      if (scanned > MAX_SCANNED_BYTES) {
        throw refuseBytes('The results before this offset have', MAX_SCANNED_BYTES, endpointId);
      }
      for (const { bytes, isTooLong } of splitter.split(Buffer.from(part))) {
        if (skipped < offset) {
          skipped += 1;
          continue;
        }
        bytesLeft -= bytes.length;
        isFull ||= found.length >= limit || (found.length > 0 && (isTooLong || bytesLeft < 0));
        if (isFull) break;
        if (isTooLong) {
          const what = `The result at offset ${offset + found.length} has`;
          throw refuseBytes(what, BATCH_LIMITS.lineBytes, endpointId);
        }
        found.push(bytes.toString('utf8'));
      }
    }
  };
  await scan(output);
  if (!isFull) await scan(errors);
  return found;
}

function refuseBytes(what: string, bytes: number, endpointId: string): ProblemError {
  const detail = `${what} more than ${bytes} bytes; read them with GET /v2/${endpointId}/batches/<batch>/results.`;
  return new ProblemError('payload_too_large', detail);
}
