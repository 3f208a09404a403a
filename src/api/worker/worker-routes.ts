// Serves the worker's five verbs over HTTP: converts each request to a call of the worker link.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { z } from 'zod';
import type { ByteBudget } from '../../base/byte-budget.ts';
import type { FairScheduler } from '../../base/fair-scheduler.ts';
import { yieldToUrgent } from '../../base/slices.ts';
import {
  decodeFrames,
  encodeFrames,
  FRAMES_MEDIA_TYPE,
  type Frame,
  FrameBoundError,
  FrameError,
} from '../../wire/link/frames.ts';
import type {
  Lease,
  Report,
  WorkerBye,
  WorkerIdentity,
  WorkerLink,
} from '../../wire/link/worker-link.ts';
import {
  isCompletedReport,
  renewRequest,
  reportHeader,
  takeRequest,
  workerBye,
  workerHello,
  workerIdentity,
} from '../../wire/link/worker-link-schemas.ts';
import { hasMoreValues, MAX_REPORTS, MAX_VALUES } from '../../wire/message-bounds.ts';
import { describeIssues, ProblemError } from '../../wire/problem.ts';
import { WORKER_HEADERS, WORKER_ROUTES } from '../../wire/routes/routes.ts';
import { check, parseInSlices } from '../body/body.ts';
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
   * Undefined if the endpoint does not exist. `podId`: the pod of the worker's key. `authorization`: the key
   * itself, on carriers whose calls are not forwarded as a whole.
   */
  linkTo: (
    endpointId: string,
    podId: string | null,
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
    // If the key is revoked while a take waits, its worker must not get a job any more.
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
      const caller = readCaller(request.headers);
      const reports = readReports(request.body ?? NO_BYTES);
      const link = requireLink(options, request);
      const report = () => link.report({ ...caller, reports });
      const replies = await useBody(request, report);
      // Clients that wait for the ends of these jobs get their answers first.
      await yieldToUrgent();
      return sendJson(reply, replies);
    },
  });
}

/** @throws ProblemError `malformed`, or `invalid` also for more values than any verb needs */
async function readVerb<S extends z.ZodType>(
  { body = NO_BYTES, params }: FastifyRequest<EndpointRoute>,
  schema: S,
): Promise<z.infer<S>> {
  if (hasMoreValues(body, MAX_VALUES)) {
    throw new ProblemError('invalid', `the message has more than ${MAX_VALUES} values`);
  }
  return check(await parseInSlices(body, params.endpoint), schema);
}

function requireLink(
  { linkTo }: WorkerRoutesOptions,
  { holder, params }: FastifyRequest<EndpointRoute>,
): WorkerLink {
  const link = linkTo(params.endpoint, holder?.podId ?? null);
  if (link) return link;
  throw new ProblemError('not_found', `endpoint ${params.endpoint} not found`);
}

/** @throws ProblemError `invalid` */
function readCaller(
  headers: Readonly<Record<string, string | string[] | undefined>>,
): WorkerIdentity {
  const incarnation = headers[WORKER_HEADERS.incarnation.toLowerCase()];
  const checked = workerIdentity.safeParse({
    workerId: headers[WORKER_HEADERS.worker.toLowerCase()],
    incarnation: /^\d{1,16}$/.test(String(incarnation)) ? Number(incarnation) : undefined,
  });
  if (checked.success) return checked.data;
  const names = `${WORKER_HEADERS.worker} and ${WORKER_HEADERS.incarnation}`;
  throw new ProblemError('invalid', `the headers ${names} are required`, {
    errors: describeIssues(checked.error, 'headers'),
  });
}

/** @throws ProblemError `malformed`, or `invalid` that names the report */
function readReports(body: Buffer): Report[] {
  return decode(body).map(({ header, body: payload }, index) => {
    if (isCompletedReport(header)) return { ...header, body: payload };
    const checked = reportHeader.safeParse(header);
    if (checked.success) return { ...checked.data, body: payload };
    const errors = describeIssues(checked.error, 'header').map((e) => `reports[${index}].${e}`);
    throw new ProblemError('invalid', `The report is invalid: ${errors[0]}`, { errors });
  });
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
