// RunPod's protocols as an adapter of the API, and the operations of an endpoint for clients of RunPod's API, which use
// the same queue and jobs as Millrace's own paths. worker-routes.ts has the operations for workers.
import type { FastifyInstance, FastifyRequest, HTTPMethods } from 'fastify';
import { z } from 'zod';
import type { Submission } from '../../queue/admission.ts';
import type { ReadRecord } from '../../queue/jobs.ts';
import type { Queues } from '../../queue/queues.ts';
import { addMembers, type ComposeRecord, describeJob, progressOf } from '../../queue/records.ts';
import type { StreamPage } from '../../queue/reports/streams.ts';
import type { AttemptError } from '../../wire/job/attempt.ts';
import { isTerminal, LIMITS, MAX_S3_CONFIG_LENGTH } from '../../wire/job/job.ts';
import { executionTimeoutMs, ttlMs, webhook } from '../../wire/job/job-schemas.ts';
import type { ProblemCode } from '../../wire/problem.ts';
import type { Route } from '../../wire/routes/route.ts';
import { JOB_ROUTES, RUNPOD_BASE } from '../../wire/routes/routes.ts';
import type { Adapter, AdapterParts } from '../adapter.ts';
import { hashRequest, readWithInput, type SubmissionBounds } from '../body/body.ts';
import { forgetBody, useBody } from '../body/body-reader.ts';
import { JSON_MEDIA_TYPE, joinAsArray, sendJson } from '../http/byte-reply.ts';
import { findNewJob } from '../http/forwarded.ts';
import { abortWhenGone, type ErrorForm } from '../http/problem-reply.ts';
import { readInteger, readTrace, readUser } from '../http/requests.ts';
import {
  type EndpointRoute,
  type JobRoute,
  readIdempotencyKey,
  readJobKey,
  retryJob,
  sendEnd,
  sendRecord,
  setTtl,
} from '../routes/job-routes.ts';
import { addBodyScope, NO_BODY_BYTES, toFastifyRoute } from '../routes/operation-routes.ts';
import { sendNext } from '../routes/stream-answers.ts';
import { addBatchRoutes, createBatchForm, RUNPOD_BATCH_FORM } from './batches.ts';
import { addRunpodWorkerRoutes } from './worker-routes.ts';

/** Name of the format in job attachments. */
export const RUNPOD_FORMAT = 'runpod';

/** The error is a text. While the job runs, its progress replaces the output. */
const composeRunpodRecord: ComposeRecord = <Output>(
  ...[job, now, output]: Parameters<typeof describeJob<Output>>
) => {
  const head = describeJob(job, now, output);
  if (job.error) head['error'] = encodeError(job.error, job.workerId);
  const shown = output ?? progressOf(job);
  return addMembers<Output | Uint8Array>(head, shown ? { output: shown } : {});
};

/**
 * For thrown errors: JSON with the member names of RunPod's Python workers, which clients parse.
 * Every other error is its message, and so is an error that arrived as text.
 */
function encodeError({ code, message, stack, type }: AttemptError, workerId: string | null) {
  if (type === undefined && stack === undefined) return message;
  return JSON.stringify({
    error_type: type ?? code,
    error_message: message,
    error_traceback: stack ?? '',
    error_code: code,
    worker_id: workerId,
  });
}

/** Codes for which this API has no status of its own. Other codes keep theirs. */
const STATUSES: Partial<Record<ProblemCode, number>> = {
  conflict: 400,
  invalid: 400,
};

/** JSON with one text, and the few statuses of that API. */
const RUNPOD_ERRORS: ErrorForm = {
  mediaType: JSON_MEDIA_TYPE,
  status: ({ code, status }) => STATUSES[code] ?? status,
  body: ({ message }) => ({ error: message }),
};

export const runpod: Adapter = {
  serves: (url) => url.startsWith(`${RUNPOD_BASE}/`),
  errors: RUNPOD_ERRORS,
  addRoutes(app, parts) {
    addBodyScope(app, '*', (scope) => {
      addSubmitting(scope, parts);
      addReading(scope, parts);
      addChanging(scope, parts);
      addBatchRoutes(scope, parts);
    });
    addBodyScope(app, '*', (scope) => addRunpodWorkerRoutes(scope, parts));
  },
  recordFormats: { [RUNPOD_FORMAT]: composeRunpodRecord },
  batchForms: { [RUNPOD_BATCH_FORM]: createBatchForm(RUNPOD_FORMAT) },
};

/** runpod-python gives up a stream request after 10 s, so the response must come earlier, ms. */
const STREAM_WAIT_MS = 8_000;

/** RunPod documents `?ttl=6000`, which is below the minimum of its `policy.ttl`. */
const STATUS_TTL_MS = { min: 1_000, max: LIMITS.ttlMs.max };

function addSubmitting(app: FastifyInstance, parts: AdapterParts): void {
  const { queue, watches } = parts;
  app.route<EndpointRoute>({
    ...place(JOB_ROUTES.runJob),
    bodyLimit: LIMITS.runBodyBytes,
    handler: async (request, reply) => {
      const { id, status } = await useBody(request, () => submit(parts, request, 'run'));
      return sendJson(reply, { id, status });
    },
  });

  app.route<EndpointRoute>({
    ...place(JOB_ROUTES.runJobSync),
    bodyLimit: LIMITS.runsyncBodyBytes,
    handler: async (request, reply) => {
      const waitMs = readWait(request) ?? LIMITS.waitMs.default;
      const { id } = await useBody(request, () => submit(parts, request, 'runsync'));
      forgetBody(request);
      const key = { endpointId: request.params.endpoint, id };
      return sendEnd(request, reply, {
        queue,
        watches,
        key,
        waitMs,
        show,
      });
    },
  });
}

async function submit(
  { bounds, queue }: AdapterParts,
  call: FastifyRequest<EndpointRoute>,
  mode: 'run' | 'runsync',
) {
  const { body = Buffer.alloc(0), headers, params } = call;
  const submission = await readRunpodSubmission(body, { owner: readUser(call), ...bounds });
  const key = readIdempotencyKey(call, undefined);
  const idempotency =
    key === undefined ? undefined : { key, requestHash: await hashRequest(body, submission.input) };
  return queue.submissions.submit({
    ...submission,
    endpointId: params.endpoint,
    mode,
    idempotency,
    trace: readTrace(headers),
    newJob: findNewJob(call.raw),
  });
}

function addReading(app: FastifyInstance, { clock, cursors, queue, watches }: AdapterParts): void {
  // Some clients use GET, others POST with a meaningless body.
  const method: HTTPMethods[] = ['GET', 'POST'];
  const options = { method, bodyLimit: NO_BODY_BYTES };

  app.route<JobRoute>({
    ...place(JOB_ROUTES.getJobStatus),
    ...options,
    handler: async (request, reply) => {
      await setTtl(queue, request, STATUS_TTL_MS);
      const key = readJobKey(request.params);
      return sendRecord(reply, {
        queue,
        key,
        show,
      });
    },
  });

  app.route<JobRoute>({
    ...place(JOB_ROUTES.getJobStatus),
    ...options,
    url: `${RUNPOD_BASE}/v2/:endpoint/status-sync/:job`,
    handler: async (request, reply) => {
      const waitMs = readWait(request) ?? LIMITS.waitMs.default;
      const key = readJobKey(request.params);
      return sendEnd(request, reply, {
        queue,
        watches,
        key,
        waitMs,
        show,
      });
    },
  });

  app.route<JobRoute>({
    ...place(JOB_ROUTES.streamJob),
    ...options,
    config: { access: JOB_ROUTES.streamJob.access, endsWithKey: true },
    handler: async (request, reply) => {
      return sendNext(reply, {
        queue,
        cursors,
        clock,
        show: encodePage,
        ...readJobKey(request.params),
        waitMs: readWait(request) ?? STREAM_WAIT_MS,
        signal: abortWhenGone(reply.raw),
      });
    },
  });

  app.route<EndpointRoute>({
    ...place(JOB_ROUTES.getEndpointHealth),
    handler: async (request, reply) =>
      sendJson(reply, await readHealth(queue, request.params.endpoint)),
  });
}

/** Bodies are ignored: typed clients send meaningless ones. */
function addChanging(app: FastifyInstance, { queue }: AdapterParts): void {
  const bodyLimit = NO_BODY_BYTES;

  app.route<JobRoute>({
    ...place(JOB_ROUTES.cancelJob),
    bodyLimit,
    handler: async (request, reply) =>
      sendJson(reply, await queue.jobs.cancel(readJobKey(request.params))),
  });

  app.route<JobRoute>({
    ...place(JOB_ROUTES.retryJob),
    bodyLimit,
    handler: async (request, reply) => sendJson(reply, await retryJob(queue, request)),
  });

  app.route<EndpointRoute>({
    ...place(JOB_ROUTES.purgeQueue),
    bodyLimit,
    handler: async (request, reply) => {
      const removed = await queue.jobs.purge(request.params.endpoint);
      return sendJson(reply, { removed, status: 'completed' });
    },
  });
}

const show = (record: ReadRecord) => record.compose(composeRunpodRecord);

/** The same operation below RunPod's base. */
function place(route: Route) {
  return { ...toFastifyRoute(route), url: `${RUNPOD_BASE}${route.path}` };
}

function readWait({ query }: FastifyRequest<EndpointRoute>): number | undefined {
  return readInteger(query, 'wait', LIMITS.waitMs);
}

/** Some clients stop at the first final status, even if more chunks follow that response. */
function encodePage({ chunks, complete, status }: StreamPage): Uint8Array[] {
  const shown = isTerminal(status) && !complete ? 'IN_PROGRESS' : status;
  return [Buffer.from(`{"status":"${shown}","stream":`), ...joinAsArray(chunks), Buffer.from('}')];
}

/**
 * `ready` are the idle workers. The queue knows nothing about starting, throttled or unhealthy
 * ones.
 */
async function readHealth(queue: Queues, endpointId: string): Promise<object> {
  const { jobs, workers } = await queue.health(endpointId);
  const { idle, running } = workers;
  const others = { initializing: 0, throttled: 0, unhealthy: 0 };
  return { jobs, workers: { idle, ready: idle, running, ...others } };
}

/** Low priority: below everything that clients of either API can request. */
const LOW_PRIORITY = -1;

/** Typed clients send members without a value as null or as an empty text. */
const emptyAsNone = (value: unknown) => (value === null || value === '' ? undefined : value);
const optional = <S extends z.ZodType>(schema: S) => z.preprocess(emptyAsNone, schema.optional());

const s3Config = z
  .object({
    accessId: optional(z.string()),
    accessSecret: optional(z.string()),
    bucketName: optional(z.string()),
    endpointUrl: optional(z.string()),
    objectPath: optional(z.string()),
  })
  .refine(
    (value) => JSON.stringify(value).length <= MAX_S3_CONFIG_LENGTH,
    `must be at most ${MAX_S3_CONFIG_LENGTH} characters of JSON`,
  );

const request = z.object({
  input: z.custom((value) => value !== undefined, 'is missing'),
  policy: optional(
    z.object({
      executionTimeout: optional(executionTimeoutMs),
      ttl: optional(ttlMs),
      lowPriority: optional(z.boolean()),
    }),
  ),
  webhook: optional(webhook),
  s3Config: optional(s3Config),
});

/** `input` may be JSON of any type. @throws ProblemError `malformed`, `payload_too_large`, `invalid` */
async function readRunpodSubmission(
  body: Buffer,
  bounds: SubmissionBounds,
): Promise<Pick<Submission, 'input' | 'policy' | 'webhook' | 'attachment'>> {
  const { input, request: found } = await readWithInput(body, request, bounds);
  const { executionTimeout, lowPriority, ttl } = found.policy ?? {};
  return {
    input,
    policy: {
      ...(executionTimeout !== undefined && { executionTimeout }),
      ...(ttl !== undefined && { ttl }),
      ...(lowPriority && { priority: LOW_PRIORITY }),
    },
    webhook: found.webhook,
    attachment: {
      format: RUNPOD_FORMAT,
      handlerData: found.s3Config ? JSON.stringify(found.s3Config) : null,
    },
  };
}
