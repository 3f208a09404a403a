// An endpoint's operations for clients of RunPod's API. They use the same queue and jobs as
// Millrace's own paths.
import type { FastifyInstance, FastifyRequest, HTTPMethods } from 'fastify';
import type { Clock } from '../../base/clock.ts';
import type { Queues } from '../../queue/queues.ts';
import type { StreamPage } from '../../queue/reports/streams.ts';
import { isTerminal, LIMITS } from '../../wire/job/job.ts';
import type { Route } from '../../wire/routes/route.ts';
import { JOB_ROUTES, RUNPOD_BASE } from '../../wire/routes/routes.ts';
import { hashRequest } from '../body/body.ts';
import { forgetBody, useBody } from '../body/body-reader.ts';
import { joinAsArray, sendJson } from '../http/byte-reply.ts';
import { findNewJob } from '../http/forwarded.ts';
import type { CallerWatches } from '../http/guard.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import { readInteger, readTrace, readUser } from '../http/requests.ts';
import type { HttpBounds } from '../limits/bounds.ts';
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
import { NO_BODY_BYTES, toFastifyRoute } from '../routes/operation-routes.ts';
import { type StreamCursors, sendNext } from '../routes/stream-answers.ts';
import { composeRunpodRecord, readRunpodSubmission } from './client-forms.ts';

/** runpod-python gives up a stream request after 10 s, so the response must come earlier, ms. */
const STREAM_WAIT_MS = 8_000;

/** RunPod documents `?ttl=6000`, which is below the minimum of its `policy.ttl`. */
const STATUS_TTL_MS = { min: 1_000, max: LIMITS.ttlMs.max };

export interface RunpodClientRoutesOptions {
  queue: Queues;
  watches: CallerWatches;
  cursors: StreamCursors;
  clock: Clock;
  bounds: Pick<HttpBounds, 'maxEnvelopeBytes' | 'maxJsonDepth'>;
}

/** `app` must provide bodies as Buffers for every content type, and RunPod's error format. */
export function addRunpodClientRoutes(
  app: FastifyInstance,
  options: RunpodClientRoutesOptions,
): void {
  addSubmitting(app, options);
  addReading(app, options);
  addChanging(app, options);
}

function addSubmitting(app: FastifyInstance, options: RunpodClientRoutesOptions): void {
  const { queue, watches } = options;
  app.route<EndpointRoute>({
    ...place(JOB_ROUTES.runJob),
    bodyLimit: LIMITS.runBodyBytes,
    handler: async (request, reply) => {
      const { id, status } = await useBody(request, () => submit(options, request, 'run'));
      return sendJson(reply, { id, status });
    },
  });

  app.route<EndpointRoute>({
    ...place(JOB_ROUTES.runJobSync),
    bodyLimit: LIMITS.runsyncBodyBytes,
    handler: async (request, reply) => {
      const waitMs = readWait(request) ?? LIMITS.waitMs.default;
      const { id } = await useBody(request, () => submit(options, request, 'runsync'));
      forgetBody(request);
      const key = { endpointId: request.params.endpoint, id };
      return sendEnd(request, reply, {
        queue,
        watches,
        key,
        waitMs,
        show: (record) => record.compose(composeRunpodRecord),
      });
    },
  });
}

async function submit(
  { bounds, queue }: RunpodClientRoutesOptions,
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

function addReading(
  app: FastifyInstance,
  { clock, cursors, queue, watches }: RunpodClientRoutesOptions,
): void {
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
        show: (record) => record.compose(composeRunpodRecord),
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
        show: (record) => record.compose(composeRunpodRecord),
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
function addChanging(app: FastifyInstance, { queue }: RunpodClientRoutesOptions): void {
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
