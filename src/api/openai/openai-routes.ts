// The OpenAI API of an endpoint: each request becomes a job with the input that RunPod's vLLM workers take,
// `{ openai_route, openai_input }`, and the job's output becomes the answer.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Log } from '../../base/log.ts';
import type { Queues } from '../../queue/queues.ts';
import { isTerminal, LIMITS } from '../../wire/job/job.ts';
import { JSON_TYPE } from '../../wire/operations/operation.ts';
import { ProblemError } from '../../wire/problem.ts';
import { OPENAI_PATH, OPENAI_ROUTES, RUNPOD_BASE } from '../../wire/routes/routes.ts';
import type { Adapter, AdapterParts } from '../adapter.ts';
import { readMember } from '../body/body.ts';
import { forgetBody, useBody } from '../body/body-reader.ts';
import { sendLoaded } from '../http/byte-reply.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import { readTrace, readUser } from '../http/requests.ts';
import { addBodyScope } from '../routes/operation-routes.ts';
import { RUNPOD_FORMAT } from '../runpod/runpod.ts';
import {
  answerError,
  composeAnswer,
  describeStop,
  OPENAI_ERRORS,
  type OpenAiAnswer,
  pickModel,
} from './answers.ts';
import { OPENAI_FORM, openAiForm } from './batch-form.ts';
import { addBatchRoutes } from './batch-routes.ts';
import { type JobKey, sendStream } from './stream.ts';

/** How long a client waits for its answer, or for the first chunk of it: as OpenAI's clients do, ms. */
const ANSWER_MS = 600_000;
/** A job whose request was lost in a crash of the platform ends then. No stream is longer, ms. */
const REQUEST_MS = 3_600_000;

const MAX_ROUTE = /^[A-Za-z0-9][\w.~/-]{0,199}$/;

interface OpenAiRoute {
  Params: { endpoint: string; '*': string };
  Body: Buffer | undefined;
}

/** A request as the handler gets it. */
interface OpenAiCall {
  /** Such as `/v1/chat/completions`. */
  route: string;
  body: Buffer;
  isStream: boolean;
}

/** Below both bases: `/v2/<endpoint>` and `/runpod/v2/<endpoint>`. */
const BELOW = new RegExp(`^(?:${RUNPOD_BASE})?/v2/[^/?]+${OPENAI_PATH}/`);

export const openAi: Adapter = {
  serves: (url) => BELOW.test(url),
  errors: OPENAI_ERRORS,
  batchForms: { [OPENAI_FORM]: openAiForm },
  addRoutes: addOpenAiRoutes,
};

function addOpenAiRoutes(app: FastifyInstance, options: AdapterParts): void {
  const { access } = OPENAI_ROUTES.postOpenAi;
  addBatchRoutes(app, options);
  addBodyScope(app, JSON_TYPE, (scope) => {
    for (const base of ['', RUNPOD_BASE]) {
      const url = `${base}/v2/:endpoint${OPENAI_PATH}/v1`;
      const config = { access, endsWithKey: true } as const;
      scope.route<OpenAiRoute>({
        method: 'POST',
        url: `${url}/*`,
        config,
        bodyLimit: LIMITS.runBodyBytes,
        handler: (request, reply) => post(request, reply, options),
      });
      scope.route<OpenAiRoute>({
        method: 'GET',
        url: `${url}/models`,
        config,
        handler: (request, reply) => readModels(request, reply, options),
      });
      scope.route<OpenAiRoute>({
        method: 'GET',
        url: `${url}/models/*`,
        config,
        handler: (request, reply) =>
          readModels(request, reply, options, (answer) => pickModel(answer, request.params['*'])),
      });
    }
  });
}

async function post(
  request: FastifyRequest<OpenAiRoute>,
  reply: FastifyReply,
  options: AdapterParts,
): Promise<FastifyReply> {
  const name = request.params['*'];
  if (!MAX_ROUTE.test(name)) throw new ProblemError('not_found', 'Path not found.');
  const gone = abortWhenGone(reply.raw);
  const { isStream, key } = await useBody(request, async () => {
    const call = await readCall(request, `/v1/${name}`, options);
    return { isStream: call.isStream, key: await submit(request, call, options) };
  });
  forgetBody(request);
  const answering = { ...options, key, gone };
  return isStream ? stream(reply, answering) : answer(reply, request, answering);
}

async function readCall(
  request: FastifyRequest<OpenAiRoute>,
  route: string,
  { bounds }: AdapterParts,
): Promise<OpenAiCall> {
  const { body = Buffer.alloc(0) } = request;
  const owner = readUser(request);
  const stream = await readMember(body, 'stream', { owner, maxJsonDepth: bounds.maxJsonDepth });
  return { route, body, isStream: stream?.toString('latin1') === 'true' };
}

async function readModels(
  request: FastifyRequest<OpenAiRoute>,
  reply: FastifyReply,
  options: AdapterParts,
  shape?: (answer: OpenAiAnswer) => OpenAiAnswer,
): Promise<FastifyReply> {
  const gone = abortWhenGone(reply.raw);
  const call = { route: '/v1/models', body: Buffer.from('{}'), isStream: false };
  const key = await submit(request, call, options);
  return answer(reply, request, { ...options, key, gone, shape });
}

/** RunPod's format of records: then no attempt begins after a client has received chunks. */
async function submit(
  { headers, params }: FastifyRequest<OpenAiRoute>,
  { body, route }: OpenAiCall,
  { queue }: AdapterParts,
): Promise<JobKey> {
  const head = `{"openai_route":${JSON.stringify(route)},"openai_input":`;
  const { id } = await queue.submissions.submit({
    endpointId: params.endpoint,
    mode: 'runsync',
    idempotency: undefined,
    input: Buffer.concat([Buffer.from(head), body, Buffer.from('}')]),
    policy: { ttl: REQUEST_MS },
    trace: readTrace(headers),
    attachment: { format: RUNPOD_FORMAT, handlerData: null },
  });
  return { endpointId: params.endpoint, id };
}

interface Answering extends AdapterParts {
  key: JobKey;
  /** Aborts when the client disconnects. */
  gone: AbortSignal;
  shape?: ((answer: OpenAiAnswer) => OpenAiAnswer) | undefined;
}

async function answer(
  reply: FastifyReply,
  request: FastifyRequest,
  { gone, key, log, queue, shape = (same) => same }: Answering,
): Promise<FastifyReply> {
  let isEnded = false;
  try {
    await queue.jobs.untilEnd(key, ANSWER_MS, gone);
    if (gone.aborted) return reply.hijack();
    return await sendLoaded(describeJob(reply, key), {
      measure: () => queue.jobs.recordBytes(key),
      load: async () => {
        const record = await queue.jobs.record(key);
        isEnded = isTerminal(record.status);
        if (!isEnded && queue.isClosingAt(key.endpointId)) throw describeStop();
        const shown = shape(await composeAnswer(record, readUser(request)));
        noteStatus(reply, shown.status);
        return shown;
      },
    });
  } finally {
    if (!isEnded) await cancel(queue, key, log);
  }
}

async function stream(reply: FastifyReply, answering: Answering): Promise<FastifyReply> {
  const { gone, key, log, queue } = answering;
  let isEnded = false;
  try {
    const end = await sendStream(describeJob(reply, key), {
      ...answering,
      signal: gone,
      firstChunkMs: ANSWER_MS,
    });
    isEnded = end.isEnded;
    if (gone.aborted && !reply.sent) return reply.hijack();
    if (!end.error) return reply;
    const { mediaType, pieces, status } = answerError(end.error);
    noteStatus(reply, status);
    return reply.header('content-type', mediaType).send(Buffer.concat(pieces));
  } finally {
    if (!isEnded) await cancel(queue, key, log);
  }
}

/** So that clients can name the job: OpenAI's show this header. */
function describeJob(reply: FastifyReply, { id }: JobKey): FastifyReply {
  return reply.header('x-request-id', id);
}

/** The queue has repeated the job already, as often as its endpoint says; a client must not do it again. */
function noteStatus(reply: FastifyReply, status: number): void {
  reply.code(status);
  if (status >= 400) reply.header('x-should-retry', 'false');
}

/** A job without a client would use a worker for nothing. */
async function cancel(queue: Queues, key: JobKey, log: Log): Promise<void> {
  try {
    await queue.jobs.cancel(key);
  } catch (error) {
    const hasEnded =
      error instanceof ProblemError && (error.code === 'conflict' || error.code === 'not_found');
    // The job's time to live ends it.
    if (!hasEnded) log.warn({ err: error, job: key.id }, 'cancelling an abandoned job failed');
  }
}
