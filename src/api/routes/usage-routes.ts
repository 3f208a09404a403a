// Serves what a user uses: the activity of endpoints with their time series and failed jobs, the decisions of their
// scaler, the bill, and the rates and quotas.
import type { Billing } from '../../control/billing/billing.ts';
import type { Endpoints } from '../../control/endpoints/endpoints.ts';
import type { KeyHolder } from '../../control/keys/keys.ts';
import { isOperator } from '../../control/keys/rights.ts';
import { describeQuotas } from '../../control/limits/quotas.ts';
import type { Decisions } from '../../control/scaling/decisions.ts';
import { ERROR_CODES } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  ACTIVITY_OPERATIONS,
  FAILED_LIMIT,
  MAX_POINTS,
  MAX_SEARCH,
  MIN_STEP_MS,
} from '../../wire/resources/activity.ts';
import {
  BILLED_KINDS,
  BILLING_GROUPS,
  BILLING_OPERATIONS,
  BILLING_STEPS,
} from '../../wire/resources/billing.ts';
import { LIMITS_OPERATIONS, type LimitsRecord } from '../../wire/resources/limits.ts';
import { SCALER_OPERATIONS } from '../../wire/resources/scaling.ts';
import type { ApiContext } from '../context.ts';
import { sendJson } from '../http/byte-reply.ts';
import {
  describeNext,
  type QueryValues,
  readChoice,
  readInteger,
  readPageRequest,
  readTags,
  readText,
  readUser,
  refuseParameter,
  requireHolder,
} from '../http/requests.ts';
import { type BoundOperation, bindOperations } from './operation-routes.ts';

const HOUR_MS = 3_600_000;
const ANY_TIME = { min: 0, max: 8_640_000_000_000 };
/** Default steps, and the most points that each gives. */
const STEPS_MS = [60_000, 300_000, 900_000];
const USUAL_POINTS = 360;

/** @throws ProblemError `invalid` */
function readSearch(query: QueryValues): string | undefined {
  const text = readText(query, 'text');
  if (text === undefined || text.length <= MAX_SEARCH) return text;
  throw refuseParameter('text', `must have at most ${MAX_SEARCH} characters`);
}

export function bindActivity({
  clock,
  overviews,
  queue,
}: Pick<ApiContext, 'clock' | 'overviews' | 'queue'>): BoundOperation[] {
  return bindOperations(ACTIVITY_OPERATIONS, {
    getOverview: async (request, reply) =>
      sendJson(reply, await overviews.read(requireHolder(request))),
    listFailedJobs: async (request, reply) => {
      const { query } = request;
      const { before, limit } = readPageRequest(request, FAILED_LIMIT);
      const listing = {
        endpoint: readText(query, 'endpoint'),
        before,
        limit,
        errorCode: readChoice(query, 'errorCode', ERROR_CODES),
        tags: readTags(query),
        since: readInteger(query, 'since', ANY_TIME),
        until: readInteger(query, 'until', ANY_TIME),
        text: readSearch(query),
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

export function bindScaler(
  decisions: Pick<Decisions, 'list'>,
  endpoints: Pick<Endpoints, 'get'>,
): BoundOperation[] {
  return bindOperations(SCALER_OPERATIONS, {
    listScalerDecisions: async (request, reply) => {
      const { endpoint: endpointId } = request.params;
      endpoints.get(readUser(request), endpointId);
      const page = await decisions.list({ endpointId, ...readPageRequest(request) });
      return sendJson(reply, { decisions: page.decisions, ...describeNext(page.next) });
    },
  });
}

export function bindBilling(billing: Pick<Billing, 'show'>): BoundOperation[] {
  return bindOperations(BILLING_OPERATIONS, {
    getBilling: async (request, reply) => {
      const { query } = request;
      const { next, ...page } = await billing.show({
        ...readPageRequest(request),
        userId: chooseUser(requireHolder(request), readText(query, 'userId')),
        step: readChoice(query, 'step', BILLING_STEPS) ?? 'day',
        group: readChoice(query, 'group', BILLING_GROUPS) ?? 'each',
        kind: readChoice(query, 'kind', BILLED_KINDS),
        id: readText(query, 'id'),
        from: readInteger(query, 'from', ANY_TIME),
        to: readInteger(query, 'to', ANY_TIME),
      });
      return sendJson(reply, { ...page, ...describeNext(next) });
    },
  });
}

/** Undefined: all users. @throws ProblemError `forbidden` */
function chooseUser(holder: KeyHolder, userId = holder.userId): string | undefined {
  if (isOperator(holder)) return userId === '*' ? undefined : userId;
  // A user may have the name `*`.
  if (userId === holder.userId) return userId;
  const detail = 'the bills of other users are for the operator of the platform only';
  throw new ProblemError('forbidden', detail);
}

export function bindLimits({
  clock,
  quotas,
  rateGate,
  readUse,
}: Pick<ApiContext, 'clock' | 'quotas' | 'rateGate' | 'readUse'>): BoundOperation[] {
  return bindOperations(LIMITS_OPERATIONS, {
    getLimits: async (request, reply) => {
      const userId = readUser(request);
      const use = await readUse(userId);
      const at = clock.now();
      const rates = (rateGate?.listUse(request) ?? []).map(({ msBeforeNext, ...rate }) => ({
        ...rate,
        endsAt: Math.ceil(at + msBeforeNext),
      }));
      const limits: LimitsRecord = { at, userId, rates, quotas: describeQuotas(use, quotas) };
      return sendJson(reply, limits);
    },
  });
}
