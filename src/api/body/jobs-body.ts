// Reads the body of a request that submits several jobs. It is scanned once, and the bytes of each input are cut out
// unchanged: no input is ever parsed.
import { z } from 'zod';
import { runInSlices } from '../../base/slices.ts';
import { LIMITS, type RunRequest } from '../../wire/job/job.ts';
import { runJobsRequest, runRequest } from '../../wire/job/job-schemas.ts';
import { CLOSE_BRACE, CLOSE_BRACKET } from '../../wire/json-bytes.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  check,
  checkText,
  isBareInput,
  leaveOut,
  parseJson,
  refuseBeyond,
  refuseMalformed,
  type SubmissionBody,
  type SubmissionBounds,
} from './body.ts';
import {
  findJobs,
  type JobSpan,
  type JobsFinding,
  type Span,
  TooManyJobsError,
} from './jobs-scan.ts';
import { hasBytes, SLICE_BYTES } from './json-check.ts';
import { hashJson } from './request-hash.ts';

/** One job of the body. Its `input` is a view into the body. */
export interface JobBody extends SubmissionBody<RunRequest> {
  /** Same as for a `run` with this job as its body; undefined without an idempotency key. */
  requestHash: string | undefined;
}

/**
 * Each job has the bounds of the body of `run`. Other requests are served in between.
 * @throws ProblemError `malformed`, `payload_too_large`, `invalid`
 */
export function readJobs(body: Buffer, bounds: SubmissionBounds): Promise<JobBody[]> {
  return runInSlices(bounds.owner, read(body, bounds));
}

function* read(body: Buffer, bounds: SubmissionBounds): Generator<void, JobBody[]> {
  checkText(body);
  const spans = yield* find(body, bounds);
  const jobs: JobBody[] = [];
  let bytes = 0;
  for (const [index, span] of spans.entries()) {
    const job = body.subarray(span.at, span.end);
    const input = span.input && body.subarray(span.input.at, span.input.end);
    // Most jobs have no other member: nothing is left to parse or to check.
    if (input && isBareInput(job, input)) {
      jobs.push({ input, request: { input: {} }, requestHash: undefined });
      continue;
    }
    const envelope = input ? leaveOut(job, input) : job;
    const request = check(parseJson(envelope), runRequest, ['jobs', index]);
    if (!input) throw new Error('the schema accepted a job without an input');
    const isHashed = request.idempotencyKey !== undefined;
    const work = envelope.length + (isHashed ? job.length : 0);
    if (bytes > 0 && bytes + work > SLICE_BYTES) {
      yield;
      bytes = 0;
    }
    bytes += work;
    jobs.push({ input, request, requestHash: isHashed ? hashJson(job, input) : undefined });
  }
  return jobs;
}

/** Returns 1 to 100 jobs. */
function* find(body: Buffer, bounds: SubmissionBounds): Generator<void, readonly JobSpan[]> {
  try {
    const found = yield* findJobs(body, bounds);
    if (!found) throw refuseMalformed();
    const { jobs, value } = found;
    if (jobs.length === 0 || !value || !isBare(body, value)) checkAround(body, found);
    return jobs;
  } catch (error) {
    if (error instanceof TooManyJobsError) {
      const errors = [`jobs: must have at most ${LIMITS.jobsOfRequest} jobs`];
      throw new ProblemError('invalid', `The request body is invalid: ${errors[0]}`, { errors });
    }
    return refuseBeyond(error);
  }
}

const BARE_START = Buffer.from('{"jobs":[');

/** Whether the body is `{"jobs":[…]}` without any space around the array. */
function isBare(body: Buffer, { at, end }: Span): boolean {
  return (
    at === BARE_START.length - 1 &&
    end === body.length - 1 &&
    body[end - 1] === CLOSE_BRACKET &&
    body[end] === CLOSE_BRACE &&
    hasBytes(body, 0, BARE_START)
  );
}

const otherMembers = z.strictObject({ jobs: z.array(z.unknown()) });

/** Parses and checks the body without its jobs. @throws ProblemError */
function checkAround(body: Buffer, { jobs, value }: JobsFinding): void {
  const around = value ? leaveOut(body, body.subarray(value.at, value.end)) : body;
  check(parseJson(around), jobs.length > 0 ? otherMembers : runJobsRequest);
}
