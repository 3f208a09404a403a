// Serves the worker's five verbs over HTTP: converts each request to a call of the worker link.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { ByteBudget } from '../../base/byte-budget.ts';
import type { FairScheduler } from '../../base/fair-scheduler.ts';
import { yieldToUrgent } from '../../base/slices.ts';
import type { KeyHolder } from '../../control/keys/keys.ts';
import type { Field } from '../../wire/link/fields.ts';
import {
  decodeFrames,
  encodeFrames,
  FRAMES_MEDIA_TYPE,
  type Frame,
  FrameBoundError,
  FrameError,
} from '../../wire/link/http-form.ts';
import {
  type Lease,
  type ReportRequest,
  renewRequest,
  reportHeaders,
  takeRequest,
  type WorkerBye,
  type WorkerLink,
  workerBye,
  workerHello,
} from '../../wire/link/worker-link.ts';
import { hasMoreValues, MAX_REPORTS, MAX_VALUES } from '../../wire/message-bounds.ts';
import { ProblemError } from '../../wire/problem.ts';
import { WORKER_HEADERS, WORKER_ROUTES } from '../../wire/routes/routes.ts';
import { parseInSlices } from '../body/body.ts';
import { useBody } from '../body/body-reader.ts';
import { sendJson, sendLoaded } from '../http/byte-reply.ts';
import { abortWhenGone } from '../http/problem-reply.ts';
import type { EndpointRoute } from '../routes/job-routes.ts';
import { toFastifyRoute } from '../routes/operation-routes.ts';
import type { WorkerAllowance } from './worker-allowance.ts';

/** A renewal may name a thousand leases. */
const VERB_BODY_BYTES = 4 * 1_048_576;
/** An output of 20 MB travels with other collected reports. */
const REPORT_BODY_BYTES = 64 * 1_048_576;

const NO_BYTES = Buffer.alloc(0);

/** The link of a worker on a carrier. */
export interface ServedLink extends WorkerLink {
  /** URL that the worker is told after its last call: of the node that has answered. Default: the worker is told none. */
  readonly ownerUrl?: string | undefined;
}

export interface WorkerRoutesOptions {
  /**
   * Undefined if the endpoint does not exist. `holder`: of the worker's key. `authorization`: the key
   * itself, on carriers whose calls are not forwarded as a whole.
   */
  linkTo: (
    endpointId: string,
    holder: KeyHolder | undefined,
    authorization?: string,
  ) => ServedLink | undefined;
  /** A supervisor reports that a worker died or could not be started. */
  noteCrash: (endpointId: string, bye: WorkerBye) => void;
  /** Default: no limit of calls and worker IDs. */
  allowance?: WorkerAllowance | undefined;
  /** Budget for the bytes of workers' calls, shared with other carriers. Default: each has its own. */
  budget?: ByteBudget | undefined;
  /** Bound the calls of one iteration of the event loop, shared with other carriers. Default: each has its own. */
  scheduler?: FairScheduler | undefined;
}

/** `app` must accept only application/json and provide bodies as Buffers. */
export function addWorkerVerbRoutes(app: FastifyInstance, options: WorkerRoutesOptions): void {
  const { bye, hello, renew, take } = WORKER_ROUTES;
  const bodyLimit = VERB_BODY_BYTES;

  app.route<EndpointRoute>({
    ...toFastifyRoute(hello),
    bodyLimit,
    handler: async (request, reply) => {
      const greeting = await readVerb(request, workerHello);
      const { holder, params } = request;
      const { allowance } = options;
      const sayHello = () => requireLink(options, request).hello(greeting);
      const name = { endpointId: params.endpoint, workerId: greeting.workerId };
      const admitted = holder && allowance?.admit(holder, name, sayHello);
      return sendJson(reply, await (admitted ?? sayHello()));
    },
  });

  app.route<EndpointRoute>({
    ...toFastifyRoute(take),
    bodyLimit,
    // If the key is revoked while a take waits, its worker must no longer get a job.
    config: { access: take.access, endsWithKey: true },
    handler: async (request, reply) => {
      const asked = await readVerb(request, takeRequest);
      const link = requireLink(options, request);
      const gone = abortWhenGone(reply.raw);
      let leases: Lease[] | undefined = await link.take(asked, gone);
      if (leases.length === 0) return reply.code(204).send();
      const load = async () => {
        // A repeated take returns the same leases, so they are not kept in memory while they wait for
        // the budget.
        const given = leases ?? (await link.take(asked, gone));
        leases = undefined;
        const frames = given.map(({ input, ...header }) => ({ header, body: input }));
        return { mediaType: FRAMES_MEDIA_TYPE, pieces: encodeFrames(frames) };
      };
      return sendLoaded(reply, { load });
    },
  });

  app.route<EndpointRoute>({
    ...toFastifyRoute(renew),
    bodyLimit,
    handler: async (request, reply) => {
      const named = await readVerb(request, renewRequest);
      const link = requireLink(options, request);
      return sendJson(reply, await link.renew(named, abortWhenGone(reply.raw)));
    },
  });

  app.route<EndpointRoute>({
    ...toFastifyRoute(bye),
    bodyLimit,
    handler: async (request, reply) => {
      const bye = await readVerb(request, workerBye);
      await requireLink(options, request).bye(bye);
      if (bye.reason === 'crashed') options.noteCrash(request.params.endpoint, bye);
      return reply.code(204).send();
    },
  });
}

/** `app` must accept only the media type of frames and provide bodies as Buffers. */
export function addReportRoute(app: FastifyInstance, options: WorkerRoutesOptions): void {
  app.route<EndpointRoute>({
    ...toFastifyRoute(WORKER_ROUTES.report),
    bodyLimit: REPORT_BODY_BYTES,
    handler: async (request, reply) => {
      const content = readReports(request);
      const link = requireLink(options, request);
      const report = () => link.report(content);
      const replies = await useBody(request, report);
      // Clients that wait for the ends of these jobs get their answers first.
      await yieldToUrgent();
      return sendJson(reply, replies);
    },
  });
}

/** @throws ProblemError `malformed`, or `invalid` for more values than any verb needs; FieldFault */
async function readVerb<T>(
  { body = NO_BYTES, params }: FastifyRequest<EndpointRoute>,
  message: Field<T>,
): Promise<T> {
  if (hasMoreValues(body, MAX_VALUES)) {
    throw new ProblemError('invalid', `the message has more than ${MAX_VALUES} values`);
  }
  return message.read(await parseInSlices(body, params.endpoint));
}

function requireLink(
  { linkTo }: WorkerRoutesOptions,
  { holder, params }: FastifyRequest<EndpointRoute>,
): WorkerLink {
  const link = linkTo(params.endpoint, holder);
  if (link) return link;
  throw new ProblemError('not_found', `endpoint ${params.endpoint} not found`);
}

/** @throws ProblemError `malformed`, `invalid`; FieldFault */
function readReports({ body, headers }: FastifyRequest<EndpointRoute>): ReportRequest {
  const workerId = headers[WORKER_HEADERS.worker.toLowerCase()];
  const incarnation = headers[WORKER_HEADERS.incarnation.toLowerCase()];
  if (workerId === undefined || !/^\d{1,16}$/.test(String(incarnation))) {
    const names = `${WORKER_HEADERS.worker} and ${WORKER_HEADERS.incarnation}`;
    throw new ProblemError('invalid', `the headers ${names} are required`);
  }
  const frames = decode(body ?? NO_BYTES);
  const { reports, ...caller } = reportHeaders.read({
    workerId,
    incarnation: Number(incarnation),
    reports: frames.map(({ header }) => header),
  });
  return {
    ...caller,
    reports: reports.map((header, index) => ({ ...header, body: frames[index]?.body ?? NO_BYTES })),
  };
}

function decode(body: Buffer): Frame[] {
  try {
    return decodeFrames(body, { frames: MAX_REPORTS, values: MAX_VALUES });
  } catch (error) {
    if (error instanceof FrameBoundError) throw new ProblemError('invalid', error.message);
    if (!(error instanceof FrameError)) throw error;
    throw new ProblemError('malformed', error.message, { cause: error });
  }
}
