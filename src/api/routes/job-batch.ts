// Submits the jobs of one request, and describes what became of each.
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Queues } from '../../queue/queues.ts';
import type { RunJobsAnswer } from '../../wire/job/job.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { JOB_ROUTES } from '../../wire/routes/routes.ts';
import { type JobBody, readJobs } from '../body/jobs-body.ts';
import { readTrace, readUser } from '../http/requests.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import type { RateGate } from '../limits/rate-limit.ts';
import { findNewJob } from '../nodes/forwarded.ts';
import type { OperationRoute } from './operation-routes.ts';

export interface JobBatchOptions {
  queue: Pick<Queues, 'submissions'>;
  bounds: Pick<HttpBounds, 'maxEnvelopeBytes' | 'maxJsonDepth'>;
  rateGate?: RateGate | undefined;
}

type BatchRequest = FastifyRequest<OperationRoute<typeof JOB_ROUTES.runJobs.path>>;

/**
 * The body must stay in memory until this has ended. @throws ProblemError if the request is refused as a whole; then it
 * has submitted no job
 */
export async function submitJobs(
  { bounds, queue, rateGate }: JobBatchOptions,
  request: BatchRequest,
  reply: FastifyReply,
): Promise<RunJobsAnswer> {
  const { body = Buffer.alloc(0), headers, params, raw } = request;
  if (headers['idempotency-key'] !== undefined) throw refuseKey();
  const jobs = await readJobs(body, { owner: readUser(request), ...bounds });
  const newJobs = findNewJob(raw);
  // A repeated request may have had its effect: it was counted then.
  if (rateGate && !newJobs?.isRepeated) await countJobs(rateGate, { request, reply, jobs });
  const submitted = await queue.submissions.submitMany({
    endpointId: params.endpoint,
    jobs: jobs.map(toSubmission),
    trace: readTrace(headers),
    newJobs,
  });
  return {
    jobs: submitted.map((each) =>
      each instanceof ProblemError ? { error: each.toProblem() } : each,
    ),
  };
}

function toSubmission({ input, request, requestHash }: JobBody) {
  const { idempotencyKey: key, policy = {}, webhook } = request;
  const idempotency = key === undefined || !requestHash ? undefined : { key, requestHash };
  return { input, policy, webhook, idempotency };
}

interface CountedRequest {
  request: FastifyRequest;
  reply: FastifyReply;
  jobs: readonly JobBody[];
}

/** The request itself was counted as one call. @throws ProblemError `rate_limited`, `invalid` */
async function countJobs(
  rateGate: RateGate,
  { jobs, reply, request }: CountedRequest,
): Promise<void> {
  const { maxCalls } = rateGate;
  if (jobs.length > maxCalls) {
    const detail = `The request has ${jobs.length} jobs, each of which counts as a call; the rate limit allows ${maxCalls}. Send fewer jobs in one request.`;
    throw new ProblemError('invalid', detail, {
      errors: [`jobs: must have at most ${maxCalls} jobs`],
    });
  }
  await rateGate.admitAs(jobs.length, request, reply);
}

function refuseKey(): ProblemError {
  const problem = 'must not be sent with several jobs';
  return new ProblemError(
    'invalid',
    `the header Idempotency-Key ${problem}; set the idempotencyKey of each job`,
    { errors: [`Idempotency-Key: ${problem}`] },
  );
}
