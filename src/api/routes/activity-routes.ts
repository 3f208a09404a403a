// Serves the overview of endpoints, and time series of one.
import type { Clock } from '../../base/clock.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { Queues } from '../../queue/queues.ts';
import { ERROR_CODES } from '../../wire/job/job.ts';
import {
  ACTIVITY_OPERATIONS,
  FAILED_LIMIT,
  MAX_POINTS,
  MIN_STEP_MS,
} from '../../wire/resources/activity.ts';
import { sendJson } from '../http/byte-reply.ts';
import {
  type QueryValues,
  readChoice,
  readInteger,
  readPageRequest,
  readText,
  refuseParameter,
  requireHolder,
} from '../http/requests.ts';
import type { Overviews } from '../overviews.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';

const HOUR_MS = 3_600_000;
const ANY_TIME = { min: 0, max: 8_640_000_000_000 };
/** Default steps, and the most points that each gives. */
const STEPS_MS = [60_000, 300_000, 900_000];
const USUAL_POINTS = 360;

export interface ActivityRoutesOptions {
  queue: Queues;
  endpoints: Endpoints;
  overviews: Overviews;
  clock: Clock;
}

export function bindActivity(options: ActivityRoutesOptions): BoundOperation[] {
  const { clock, overviews, queue } = options;
  return bindOperations(ACTIVITY_OPERATIONS, {
    getOverview: async (request, reply) =>
      sendJson(reply, await overviews.read(requireHolder(request))),
    listFailedJobs: async (request, reply) => {
      const { query } = request;
      const { before, limit } = readPageRequest(request, FAILED_LIMIT);
      const listing = {
        ...{ endpoint: readText(query, 'endpoint'), before, limit },
        errorCode: readChoice(query, 'errorCode', ERROR_CODES),
      };
      return sendJson(reply, await overviews.listFailed(requireHolder(request), listing));
    },
    getEndpointActivity: async (request, reply) =>
      sendJson(reply, await overviews.one(request.params.endpoint)),
    getEndpointSeries: async (request, reply) => {
      const range = readRange(request.query, clock.now());
      const points = await queue.activity.series(request.params.endpoint, range);
      return sendJson(reply, { from: range.from, to: range.to, step: range.stepMs, points });
    },
  });
}

/** Whole steps, so that a series that is read again soon is the same. @throws ProblemError `invalid` */
function readRange(query: QueryValues, now: number): { from: number; to: number; stepMs: number } {
  const to = readInteger(query, 'to', ANY_TIME) ?? now;
  const from = readInteger(query, 'from', ANY_TIME) ?? Math.max(0, to - HOUR_MS);
  if (from >= to) throw refuseParameter('from', 'must be before `to`');
  const stepMs =
    readInteger(query, 'step', { min: MIN_STEP_MS, max: 168 * HOUR_MS }) ?? chooseStep(to - from);
  if (stepMs % MIN_STEP_MS !== 0) throw refuseParameter('step', 'must be a multiple of 60000');
  const begin = Math.floor(from / stepMs) * stepMs;
  const end = Math.ceil(to / stepMs) * stepMs;
  if ((end - begin) / stepMs > MAX_POINTS) {
    throw refuseParameter('step', `gives more than ${MAX_POINTS} points; send a longer step`);
  }
  return { from: begin, to: end, stepMs };
}

function chooseStep(ms: number): number {
  return STEPS_MS.find((step) => ms / step <= USUAL_POINTS) ?? HOUR_MS;
}
