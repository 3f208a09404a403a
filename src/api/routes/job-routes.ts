// Serves the job operations of clients by calls to the queue; stream-routes.ts serves streams.
import type { FastifyReply, FastifyRequest } from 'fastify';
import { yieldToUrgent } from '../../base/slices.ts';
import type { ChangePlace } from '../../queue/job-changes.ts';
import { type JobCriteria, MAX_PREVIEWED } from '../../queue/job-lists.ts';
import type { ReadRecord } from '../../queue/jobs.ts';
import type { Queues } from '../../queue/queues.ts';
import {
  CHANGED_STATUSES,
  ERROR_CODES,
  JOB_STATUSES,
  type JobStatus,
  LIMITS,
} from '../../wire/job/job.ts';
import type { ChangedJobs } from '../../wire/job/job-records.ts';
import {
  changeRequest,
  failedJobsRequest,
  idempotencyHeader,
  JOB_ID_PART,
} from '../../wire/job/job-schemas.ts';
import { JOB_OPERATIONS } from '../../wire/operations/job-operations.ts';
import { ProblemError } from '../../wire/problem.ts';
import { pauseRequest, resumeRequest } from '../../wire/resources/pause.ts';
import { type JOB_ROUTES, STREAM_HEADERS } from '../../wire/routes/routes.ts';
import { hashRequest, readSubmission } from '../body/body.ts';
import { forgetBody, useBody } from '../body/body-reader.ts';
import { requireScope } from '../http/auth.ts';
import { JSON_MEDIA_TYPE, sendBytes, sendJson, sendLoaded } from '../http/byte-reply.ts';
import { findNewJob, isRepeated } from '../http/forwarded.ts';
import { type CallerWatches, watchCaller } from '../http/guard.ts';
import { openWait } from '../http/problem-reply.ts';
import {
  describeNext,
  type IntegerRange,
  type QueryValues,
  readChoice,
  readInteger,
  readPageRequest,
  readResourceBody,
  readTags,
  readText,
  readTrace,
  readUser,
  refuseParameter,
} from '../http/requests.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import type { RateGate } from '../limits/rate-limit.ts';
import { readAfter, submitJobs } from './job-batch.ts';
import {
  type BoundOperation,
  bindOperations,
  type OperationHandlers,
  type OperationRoute,
} from './operation-routes.ts';

export type EndpointRoute = OperationRoute<typeof JOB_ROUTES.runJob.path>;
export type JobRoute = OperationRoute<typeof JOB_ROUTES.getJobStatus.path>;

export interface JobRoutesOptions {
  queue: Queues;
  watches: CallerWatches;
  bounds: Pick<HttpBounds, 'maxEnvelopeBytes' | 'maxJsonDepth'>;
  /** Default: no limit for users. */
  rateGate?: RateGate | undefined;
}

type JobHandlers = OperationHandlers<typeof JOB_OPERATIONS>;

/** `streamJob`: see stream-routes.ts. */
export function bindJobs(
  options: JobRoutesOptions,
  { streamJob }: Pick<JobHandlers, 'streamJob'>,
): BoundOperation[] {
  return bindOperations(JOB_OPERATIONS, {
    ...handleSubmissions(options),
    ...handleReading(options),
    ...handleChanging(options),
    streamJob,
  });
}

function handleSubmissions(
  options: JobRoutesOptions,
): Pick<JobHandlers, 'runJob' | 'runJobs' | 'runJobSync'> {
  const { queue, watches } = options;
  return {
    runJob: async (request, reply) => {
      const { id, status } = await useBody(request, () => submit(options, request, 'run'));
      return sendJson(reply, { id, status });
    },
    runJobs: async (request, reply) => {
      const answer = await useBody(request, () => submitJobs(options, request, reply));
      return sendJson(reply, answer);
    },
    runJobSync: async (request, reply) => {
      const waitMs = readInteger(request.query, 'wait', LIMITS.waitMs) ?? LIMITS.waitMs.default;
      const { id } = await useBody(request, () => submit(options, request, 'runsync'));
      forgetBody(request);
      // The same commit may have given the job to a worker, which waits for it.
      await yieldToUrgent();
      const key = { endpointId: request.params.endpoint, id };
      return sendEnd(request, reply, {
        queue,
        watches,
        key,
        waitMs,
        show: ({ pieces }) => pieces,
        cancelsWhenGone: readCancelOnDisconnect(request.query),
      });
    },
  };
}

export interface ShownRecord {
  queue: Queues;
  key: ReturnType<typeof readJobKey>;
  show: (record: ReadRecord) => Uint8Array[];
}

export function sendRecord(
  reply: FastifyReply,
  { key, queue, show }: ShownRecord,
): Promise<FastifyReply> {
  return sendLoaded(reply, {
    measure: () => queue.jobs.recordBytes(key),
    load: async () => ({
      mediaType: JSON_MEDIA_TYPE,
      pieces: show(await queue.jobs.record(key)),
    }),
  });
}

export interface AwaitedRecord extends ShownRecord {
  waitMs: number;
  watches: CallerWatches;
  /** Cancels the job if the client disconnects while it waits. Default false. */
  cancelsWhenGone?: boolean;
}

/** Created once, as the reason of an abort. */
const KEY_ENDED = new DOMException('The key has ended', 'AbortError');

/**
 * Sends a job's record when the job has ended, or as it is after the wait. @throws ProblemError `unauthorized` if the
 * caller's key becomes invalid meanwhile
 */
export async function sendEnd(
  request: FastifyRequest,
  reply: FastifyReply,
  { cancelsWhenGone = false, waitMs, watches, ...record }: AwaitedRecord,
): Promise<FastifyReply> {
  const { key, queue } = record;
  const wait = openWait(reply.raw);
  const { signal } = wait;
  const stop = watchCaller(watches, request, () => wait.abort(KEY_ENDED));
  await queue.jobs.untilEnd(key, waitMs, signal).finally(stop);
  if (signal.aborted) {
    // Thousands of clients may disconnect at once: do not read a record that nobody receives.
    if (signal.reason !== KEY_ENDED) {
      if (cancelsWhenGone) await cancelForGone(queue, key);
      return reply.hijack();
    }
    const detail = `the API key has been revoked or has expired while the call waited; job ${key.id} goes on`;
    throw new ProblemError('unauthorized', detail);
  }
  try {
    return await sendRecord(reply, record);
  } catch (error) {
    if (!(error instanceof ProblemError) || error.code !== 'unavailable') throw error;
    const { message, retryAfterMs = 0 } = error;
    throw new ProblemError('unavailable', `${message} Read the status of job ${key.id}.`, {
      retryAfterMs,
    });
  }
}

/** @throws ProblemError `invalid` */
export function readCancelOnDisconnect(query: QueryValues): boolean {
  return readChoice(query, 'cancelOnDisconnect', BOOLEANS) === 'true';
}

/** The client has gone. Not if the platform closes the connections, because it stops or another node takes over. */
export async function cancelForGone(queue: Queues, key: ShownRecord['key']): Promise<void> {
  if (queue.isClosingAt(key.endpointId)) return;
  // Nobody waits for the answer; a job that has ended stays as it is.
  await queue.jobs.cancel(key).catch(() => {});
}

async function submit(
  { bounds, queue }: JobRoutesOptions,
  call: FastifyRequest<EndpointRoute>,
  mode: 'run' | 'runsync',
) {
  const { body = Buffer.alloc(0), headers, params } = call;
  const { input, request } = await readSubmission(body, { owner: readUser(call), ...bounds });
  const { after, policy = {}, webhook } = request;
  const key = readIdempotencyKey(call, request.idempotencyKey);
  const idempotency =
    key === undefined ? undefined : { key, requestHash: await hashRequest(body, input) };
  return queue.submissions.submit({
    endpointId: params.endpoint,
    mode,
    input,
    policy,
    idempotency,
    webhook,
    after: readAfter(after, call.holder),
    trace: readTrace(headers),
    newJob: findNewJob(call.raw),
  });
}

/** @throws ProblemError `invalid` for a header that is malformed, repeated, or differs from the member */
export function readIdempotencyKey(
  { raw }: FastifyRequest<EndpointRoute>,
  member: string | undefined,
): string | undefined {
  if (raw.headers['idempotency-key'] === undefined) return member;
  const [header = '', ...others] = raw.headersDistinct['idempotency-key'] ?? [];
  const refuse = (problem: string): never => {
    const errors = [`Idempotency-Key: ${problem}`];
    throw new ProblemError('invalid', `the header Idempotency-Key ${problem}`, { errors });
  };
  if (others.length > 0) return refuse('must be sent once');
  const { error } = idempotencyHeader.safeParse(header);
  if (error) return refuse(error.issues.map(({ message }) => message).join(', '));
  if (member !== undefined && member !== header) {
    return refuse('must be equal to idempotencyKey in the body; send one of them');
  }
  return header;
}

/** @throws ProblemError `method_not_allowed` */
function refuseHeadWithTtl(reply: FastifyReply): never {
  reply.header('allow', 'GET');
  const detail = 'HEAD must not change the job; send GET to set ttl.';
  throw new ProblemError('method_not_allowed', detail);
}

function handleReading({
  queue,
  watches,
}: JobRoutesOptions): Pick<
  JobHandlers,
  | 'getJobStatus'
  | 'getPauses'
  | 'getEndpointHealth'
  | 'getInputSchema'
  | 'listJobs'
  | 'getJob'
  | 'getJobLog'
  | 'getFailedJob'
> {
  return {
    getJobStatus: async (request, reply) => {
      const key = readJobKey(request.params);
      if (request.method === 'HEAD' && request.query['ttl'] !== undefined) refuseHeadWithTtl(reply);
      const waitMs = readInteger(request.query, 'wait', LIMITS.waitMs);
      await setTtl(queue, request);
      const shown: ShownRecord = { queue, key, show: ({ pieces }) => pieces };
      if (waitMs === undefined) return sendRecord(reply, shown);
      return sendEnd(request, reply, { ...shown, watches, waitMs });
    },
    getPauses: async (request, reply) =>
      sendJson(reply, { pauses: await queue.listPauses(request.params.endpoint) }),
    getEndpointHealth: async (request, reply) =>
      sendJson(reply, await queue.health(request.params.endpoint)),
    getInputSchema: async (request, reply) =>
      sendJson(reply, await queue.inputSchema(request.params.endpoint)),
    listJobs: async (request, reply) => {
      const { params, query } = request;
      const hasPreviews = readChoice(query, 'previews', BOOLEANS) === 'true';
      const page = readPageRequest(request);
      const { jobs, next } = await queue.jobs.list({
        endpointId: params.endpoint,
        status: readChoice(query, 'status', JOB_STATUSES),
        hasPreviews,
        ...readJobFilter(query),
        ...page,
        limit: hasPreviews ? Math.min(page.limit, MAX_PREVIEWED) : page.limit,
      });
      return sendJson(reply, { jobs, ...describeNext(next) });
    },
    getJob: async (request, reply) => {
      const key = readJobKey(request.params);
      const input = readChoice(request.query, 'input', BOOLEANS);
      if (input === 'false') return sendJson(reply, await queue.jobs.outline(key));
      return sendLoaded(reply, {
        measure: () => queue.jobs.inputBytes(key),
        load: async () => ({ mediaType: JSON_MEDIA_TYPE, pieces: await queue.jobs.details(key) }),
      });
    },
    getFailedJob: async (request, reply) => {
      const key = readJobKey(request.params);
      return sendLoaded(reply, {
        measure: () => queue.deadLetters.measure(key),
        load: async () => ({
          mediaType: JSON_MEDIA_TYPE,
          pieces: await queue.deadLetters.details(key),
        }),
      });
    },
    getJobLog: async (request, reply) => {
      const range = { min: 0, max: Number.MAX_SAFE_INTEGER };
      const after = readInteger(request.query, 'after', range) ?? 0;
      const log = await queue.jobs.log(readJobKey(request.params), after);
      reply.header(STREAM_HEADERS.next, log.next).header(STREAM_HEADERS.status, log.status);
      // The note is not part of the log, so positions for `after` do not count it.
      const note = log.dropped > 0 ? [describeDropped(log.dropped)] : [];
      return sendBytes(reply, { mediaType: 'application/x-ndjson', pieces: [log.lines, ...note] });
    },
  };
}

function handleChanging({
  queue,
}: JobRoutesOptions): Pick<
  JobHandlers,
  | 'cancelJob'
  | 'retryJob'
  | 'purgeQueue'
  | 'pauseQueue'
  | 'resumeQueue'
  | 'changeJobs'
  | 'resubmitJobs'
  | 'deleteFailedJobs'
> {
  return {
    pauseQueue: async (request, reply) => {
      const {
        group = null,
        reason = null,
        until = null,
      } = readResourceBody(request.body, pauseRequest);
      const target = { endpointId: request.params.endpoint, group };
      return sendJson(reply, await queue.pauses.pause({ ...target, until, reason }));
    },
    resumeQueue: async (request, reply) => {
      const { group = null } = readResourceBody(request.body, resumeRequest);
      await queue.pauses.resume({ endpointId: request.params.endpoint, group });
      return reply.code(204).send();
    },
    changeJobs: async ({ body, params }, reply) => {
      const given = readResourceBody(body, changeRequest);
      const { asOf, change, cursor, dryRun = false } = given;
      const { id, status, ...filter } = given.filter;
      const allowed: readonly JobStatus[] = CHANGED_STATUSES[change];
      if (status !== undefined && !allowed.includes(status)) {
        throw refuseParameter('filter.status', `must be one of ${allowed.join(', ')} to ${change}`);
      }
      const { next, ...page } = await queue.jobs.changeMany({
        ...{ endpointId: params.endpoint, change, status, asOf, dryRun },
        criteria: { ...filter, idPart: id?.toLowerCase() },
        from: cursor === undefined ? undefined : readPlace(cursor, allowed),
      });
      const more = next && { cursor: `${next.status}.${next.before ?? ''}` };
      return sendJson(reply, { ...page, ...more } satisfies ChangedJobs);
    },
    resubmitJobs: async ({ body, params }, reply) => {
      const { ids } = readResourceBody(body, failedJobsRequest);
      return sendJson(reply, { jobs: await queue.deadLetters.resubmit(params.endpoint, ids) });
    },
    deleteFailedJobs: async ({ body, params }, reply) => {
      const { ids } = readResourceBody(body, failedJobsRequest);
      return sendJson(reply, { deleted: await queue.deadLetters.delete(params.endpoint, ids) });
    },
    cancelJob: async (request, reply) =>
      sendJson(reply, await queue.jobs.cancel(readJobKey(request.params))),
    retryJob: async (request, reply) => sendJson(reply, await retryJob(queue, request)),
    purgeQueue: async (request, reply) => {
      const removed = await queue.jobs.purge(request.params.endpoint);
      return sendJson(reply, { removed, status: 'completed' });
    },
  };
}

/** @throws ProblemError `invalid` */
function readPlace(cursor: string, allowed: readonly JobStatus[]): ChangePlace {
  const [, name, before = ''] = /^([A-Z_]+)\.(\d{0,16})$/.exec(cursor) ?? [];
  const status = allowed.find((known) => known === name);
  if (!status) throw refuseParameter('cursor', 'must be the cursor of an earlier response');
  return { status, before: before === '' ? undefined : Number(before) };
}

const BOOLEANS = ['true', 'false'] as const;
const ANY_TIME = { min: 0, max: 8_640_000_000_000 };

/** @throws ProblemError `invalid` */
function readJobFilter(query: QueryValues): JobCriteria {
  const since = readInteger(query, 'since', ANY_TIME);
  const until = readInteger(query, 'until', ANY_TIME);
  const idPart = readText(query, 'id');
  if (idPart !== undefined && !JOB_ID_PART.test(idPart)) {
    throw refuseParameter('id', 'must be 1 to 64 letters, digits or hyphens');
  }
  return {
    since,
    until,
    errorCode: readChoice(query, 'errorCode', ERROR_CODES),
    idPart: idPart?.toLowerCase(),
    workerId: readText(query, 'workerId'),
    tags: readTags(query),
  };
}

/** A repeated request finds that the job runs again already. */
export function retryJob(queue: Queues, { params, raw }: FastifyRequest<JobRoute>) {
  return queue.jobs.retry(readJobKey(params), { isRepeated: isRepeated(raw) });
}

/** Sets the job's time to live if the call has the query parameter `ttl`. */
export async function setTtl(
  queue: Queues,
  { holder, params, query }: FastifyRequest<JobRoute>,
  range: IntegerRange = LIMITS.ttlMs,
): Promise<void> {
  const ttlMs = readInteger(query, 'ttl', range);
  if (ttlMs === undefined) return;
  requireScope(holder, 'jobs:write', params.endpoint);
  await queue.jobs.setTtl(readJobKey(params), ttlMs);
}

export function readJobKey({ endpoint, job }: JobRoute['Params']) {
  return { endpointId: endpoint, id: job };
}

/** Returns a log line of level warn. */
function describeDropped(dropped: number): Buffer {
  const msg = `${dropped} lines are missing: the job logged too fast or too much`;
  return Buffer.from(`${JSON.stringify({ level: 40, msg, dropped })}\n`);
}
