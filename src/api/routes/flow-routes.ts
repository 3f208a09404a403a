// Serves the operations of flows by calls to the queue.
import { hash } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { NamedRecords } from '../../control/user-resources.ts';
import type { NewFlowJob } from '../../queue/flows/flow-insertion.ts';
import type { FlowSelection } from '../../queue/flows/flows.ts';
import { type FlowJobRequest, LIMITS } from '../../wire/job/job.ts';
import { flowJobRequest, flowRequest, flowSelection } from '../../wire/job/job-schemas.ts';
import { FLOW_OPERATIONS } from '../../wire/operations/flow-operations.ts';
import type { FLOW_ROUTES } from '../../wire/routes/routes.ts';
import { check, parseJson } from '../body/body.ts';
import { useBody } from '../body/body-reader.ts';
import { requireScope } from '../http/auth.ts';
import { sendJson } from '../http/byte-reply.ts';
import { findNewJob } from '../http/forwarded.ts';
import {
  describeNext,
  readPageRequest,
  readTrace,
  readUser,
  requireHolder,
} from '../http/requests.ts';
import { countJobs, type JobsForm, readJobsOf } from './job-batch.ts';
import { type JobRoutesOptions, readIdempotencyKey } from './job-routes.ts';
import { type BoundOperation, bindOperations, type OperationRoute } from './operation-routes.ts';

interface FlowRoutesOptions extends JobRoutesOptions {
  endpoints: NamedRecords;
}

type FlowRoute = OperationRoute<typeof FLOW_ROUTES.getFlow.path>;

export function bindFlows(options: FlowRoutesOptions): BoundOperation[] {
  const { endpoints, queue, rateGate } = options;
  const { flows } = queue;
  return bindOperations(FLOW_OPERATIONS, {
    runFlow: (request, reply) =>
      useBody(request, async () => {
        const { body = Buffer.alloc(0), headers, params, raw } = request;
        const bounds = { owner: readUser(request), ...options.bounds };
        const { around, jobs } = await readJobsOf(FORM, body, bounds);
        const newFlow = findNewJob(raw);
        // A repeated request may have had its effect: it was counted then.
        if (rateGate && !newFlow?.isRepeated) await countJobs(rateGate, { request, reply, jobs });
        const key = readIdempotencyKey(request, around?.idempotencyKey);
        const { userId } = requireHolder(request);
        const find = (given: string) => endpoints.resolve(userId, given);
        const flow = {
          endpointId: params.endpoint,
          jobs: jobs.map((job) => toFlowJob(job, { endpointId: params.endpoint, find })),
          idempotency:
            key === undefined ? undefined : { key, requestHash: hash('sha256', body, 'base64url') },
          trace: readTrace(headers),
          newFlow,
        };
        for (const id of new Set(flow.jobs.map(({ endpointId }) => endpointId))) {
          requireScope(request.holder, 'jobs:write', id);
        }
        return sendJson(reply, await flows.submit(flow));
      }),
    listFlows: async (request, reply) => {
      const { before, limit } = readPageRequest(request);
      const listing = { endpointId: request.params.endpoint, before, limit };
      const { flows: found, next } = await flows.list(listing);
      return sendJson(reply, { flows: found, ...describeNext(next) });
    },
    getFlow: async (request, reply) => sendJson(reply, await flows.read(readFlowKey(request))),
    cancelFlow: async (request, reply) => {
      const changed = await flows.cancel(readFlowKey(request), readSelection(request));
      return sendJson(reply, { changed });
    },
    retryFlow: async (request, reply) => {
      const changed = await flows.retry(readFlowKey(request), readSelection(request));
      return sendJson(reply, { changed });
    },
  });
}

const AROUND = flowRequest.extend({ jobs: z.array(z.unknown()) });

const FORM: JobsForm<FlowJobRequest, { idempotencyKey?: string }> = {
  most: LIMITS.jobsOfFlow,
  checkJob: (value, path) => check(value, flowJobRequest, path),
  bare: undefined,
  isHashed: () => false,
  checkAround: (value, hasJobs) => check(value, hasJobs ? AROUND : flowRequest),
};

interface Place {
  endpointId: string;
  /** Returns the ID for an ID or a name. */
  find: (given: string) => string;
}

function toFlowJob(
  { input, request }: { input: Uint8Array; request: FlowJobRequest },
  { endpointId, find }: Place,
): NewFlowJob {
  const { after = [], endpoint, name, policy = {}, webhook } = request;
  return {
    ...{ input, name, policy, webhook },
    endpointId: endpoint === undefined ? endpointId : find(endpoint),
    after: after.map((each) => {
      const edge = typeof each === 'string' ? { job: each } : each;
      return { onFailure: 'fail', ...edge };
    }),
  };
}

function readFlowKey({ params }: FastifyRequest<FlowRoute>) {
  return { endpointId: params.endpoint, id: params.flow };
}

/** The key needs the scope for all endpoints of the flow: what becomes of one job changes others. */
function readSelection({ body, holder }: FastifyRequest<FlowRoute>): FlowSelection {
  return {
    names: body && body.length > 0 ? check(parseJson(body), flowSelection).jobs : undefined,
    judgeEndpoint: (id) => requireScope(holder, 'jobs:write', id),
  };
}
