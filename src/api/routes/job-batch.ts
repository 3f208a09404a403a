// Submits the jobs of one request, and describes what became of each. The body is scanned once, with pauses, and the
// bytes of each input are cut out unchanged: no input is ever parsed.
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { runInSlices } from '../../base/slices.ts';
import type { Queues } from '../../queue/queues.ts';
import { LIMITS, type ParentReference, type RunRequest } from '../../wire/job/job.ts';
import type { RunJobsAnswer } from '../../wire/job/job-records.ts';
import { runJobsRequest, runRequest } from '../../wire/job/job-schemas.ts';
import { CLOSE_BRACE, CLOSE_BRACKET } from '../../wire/json-bytes.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { JOB_ROUTES } from '../../wire/routes/routes.ts';
import {
  check,
  checkText,
  hashJson,
  isBareInput,
  leaveOut,
  parseJson,
  refuseBeyond,
  refuseMalformed,
  type SubmissionBody,
  type SubmissionBounds,
} from '../body/body.ts';
import {
  checkJson,
  hasBytes,
  isKey,
  JsonBoundError,
  JsonDepthError,
  type ScanWatch,
  SLICE_BYTES,
} from '../body/json-check.ts';
import { requireScope } from '../http/auth.ts';
import { findNewJob } from '../http/forwarded.ts';
import { readTrace, readUser } from '../http/requests.ts';
import type { HttpBounds } from '../limits/bounds.ts';
import type { RateGate } from '../limits/rate-limit.ts';
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
    jobs: jobs.map((job) => toSubmission(job, request.holder)),
    trace: readTrace(headers),
    newJobs,
  });
  return {
    jobs: submitted.map((each) =>
      each instanceof ProblemError ? { error: each.toProblem() } : each,
    ),
  };
}

function toSubmission({ input, request, requestHash }: JobBody, holder: FastifyRequest['holder']) {
  const { after, idempotencyKey: key, policy = {}, webhook } = request;
  const idempotency = key === undefined || !requestHash ? undefined : { key, requestHash };
  return { input, policy, webhook, idempotency, after: readAfter(after, holder) };
}

/** Undefined: no parents. @throws ProblemError `forbidden` */
export function readAfter(
  after: readonly (string | ParentReference)[] | undefined,
  holder: FastifyRequest['holder'],
): ParentReference[] | undefined {
  if (!after || after.length === 0) return undefined;
  const references = after.map((each) => (typeof each === 'string' ? { id: each } : each));
  for (const { endpoint } of references) {
    if (endpoint !== undefined) requireScope(holder, 'jobs:read', endpoint);
  }
  return references;
}

interface CountedRequest {
  request: FastifyRequest;
  reply: FastifyReply;
  jobs: readonly unknown[];
}

/** The request itself was counted as one call. @throws ProblemError `rate_limited`, `invalid` */
export async function countJobs(
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

/** One job of the body. Its `input` is a view into the body. */
interface JobBody<Request = RunRequest> extends SubmissionBody<Request> {
  /** Same as for a `run` with this job as its body; undefined without an idempotency key. */
  requestHash: string | undefined;
}

/**
 * Each job has the bounds of the body of `run`. Other requests are served in between.
 * @throws ProblemError `malformed`, `payload_too_large`, `invalid`
 */
export async function readJobs(body: Buffer, bounds: SubmissionBounds): Promise<JobBody[]> {
  return (await readJobsOf(BATCH, body, bounds)).jobs;
}

/** The form of a body with jobs. Its functions throw ProblemError. */
export interface JobsForm<Request, Around> {
  /** Most jobs of the body. */
  most: number;
  /** Checks a job, whose input is empty. */
  checkJob: (value: unknown, path: readonly PropertyKey[]) => Request;
  /** A job that has only an input; undefined: a job needs more. */
  bare: Request | undefined;
  isHashed: (request: Request) => boolean;
  /** Checks the body without its jobs: they are a list of no jobs, unless the body has none. */
  checkAround: (value: unknown, hasJobs: boolean) => Around;
}

export interface JobsBody<Request, Around> {
  jobs: JobBody<Request>[];
  /** Undefined: the body has only jobs. */
  around: Around | undefined;
}

/** Jobs that are independent of each other. */
const BATCH: JobsForm<RunRequest, void> = {
  most: LIMITS.jobsOfRequest,
  checkJob: (value, path) => check(value, runRequest, path),
  bare: { input: {} },
  isHashed: ({ idempotencyKey }) => idempotencyKey !== undefined,
  checkAround(value, hasJobs) {
    check(value, hasJobs ? otherMembers : runJobsRequest);
  },
};

const otherMembers = z.strictObject({ jobs: z.array(z.unknown()) });

/** Like `readJobs`, for a body of another form. */
export function readJobsOf<Request, Around>(
  form: JobsForm<Request, Around>,
  body: Buffer,
  bounds: SubmissionBounds,
): Promise<JobsBody<Request, Around>> {
  return runInSlices(bounds.owner, read(form, body, bounds));
}

function* read<Request, Around>(
  form: JobsForm<Request, Around>,
  body: Buffer,
  bounds: SubmissionBounds,
): Generator<void, JobsBody<Request, Around>> {
  checkText(body);
  const { around, spans } = yield* find(form, body, bounds);
  const jobs: JobBody<Request>[] = [];
  let bytes = 0;
  for (const [index, span] of spans.entries()) {
    const job = body.subarray(span.at, span.end);
    const input = span.input && body.subarray(span.input.at, span.input.end);
    // Most jobs have no other member: nothing is left to parse or to check.
    if (form.bare && input && isBareInput(job, input)) {
      jobs.push({ input, request: form.bare, requestHash: undefined });
      continue;
    }
    const envelope = input ? leaveOut(job, input) : job;
    const request = form.checkJob(parseJson(envelope), ['jobs', index]);
    if (!input) throw new Error('the schema accepted a job without an input');
    const isHashed = form.isHashed(request);
    const work = envelope.length + (isHashed ? job.length : 0);
    if (bytes > 0 && bytes + work > SLICE_BYTES) {
      yield;
      bytes = 0;
    }
    bytes += work;
    jobs.push({ input, request, requestHash: isHashed ? hashJson(job, input) : undefined });
  }
  return { jobs, around };
}

/** Returns at least one job. */
function* find<Around>(
  { checkAround, most }: Pick<JobsForm<unknown, Around>, 'checkAround' | 'most'>,
  body: Buffer,
  bounds: SubmissionBounds,
): Generator<void, { spans: readonly JobSpan[]; around: Around | undefined }> {
  try {
    const found = yield* findJobs(body, { ...bounds, most });
    if (!found) throw refuseMalformed();
    const { jobs: spans, value } = found;
    if (spans.length > 0 && value && isBare(body, value)) return { spans, around: undefined };
    const around = value ? leaveOut(body, body.subarray(value.at, value.end)) : body;
    return { spans, around: checkAround(parseJson(around), spans.length > 0) };
  } catch (error) {
    if (error instanceof TooManyJobsError) {
      const errors = [`jobs: must have at most ${most} jobs`];
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

/** Where a value is: it ends before `end`. */
interface Span {
  at: number;
  end: number;
}

/** An element of `jobs`; only an object can have an input. */
interface JobSpan extends Span {
  input: Span | undefined;
}

interface JobsFinding {
  /** The value of `jobs`; undefined if the body is not an object or has no such member. */
  value: Span | undefined;
  /** The elements of `jobs`; none if it is not an array. */
  jobs: readonly JobSpan[];
}

export interface JobsSearch {
  /** Most jobs. Default: 100. */
  most?: number;
  /** Most bytes of one job besides its input, and of the body besides `jobs`. */
  maxEnvelopeBytes: number;
  /** Levels of arrays and objects in an input. */
  maxJsonDepth: number;
}

/** Levels of arrays and objects around an input: the body, `jobs` and the job. */
const LEVELS = 3;
const JOBS = Buffer.from('jobs');
const INPUT = Buffer.from('input');

/**
 * Finds the jobs in the body, and the input of each, in one scan that pauses. Undefined if the body is not JSON. If
 * members have the same name, the last one counts, as with JSON.parse. Pauses after each slice. @throws
 * TooManyJobsError; JsonBoundError; JsonDepthError that names the place
 */
export function* findJobs(
  body: Buffer,
  { maxEnvelopeBytes, maxJsonDepth, most = LIMITS.jobsOfRequest }: JobsSearch,
): Generator<void, JobsFinding | undefined> {
  const watch = new JobsWatch(body, { maxBytes: maxEnvelopeBytes, most });
  try {
    const isWhole = yield* checkJson(body, { maxDepth: maxJsonDepth + LEVELS }, watch);
    return isWhole ? { value: watch.value, jobs: watch.jobs } : undefined;
  } catch (error) {
    if (!(error instanceof JsonDepthError)) throw error;
    throw new JsonDepthError(`${watch.place}: must be nested at most ${maxJsonDepth} levels deep`);
  }
}

/** `jobs` has more elements than one request may have. */
class TooManyJobsError extends Error {
  override readonly name = 'TooManyJobsError';
}

class JobsWatch implements ScanWatch {
  readonly levels = LEVELS;
  jobs: JobSpan[] = [];
  readonly #body: Buffer;
  readonly #maxBytes: number;
  readonly #most: number;
  #value: Span | undefined;
  /** The job that the scan is in. */
  #job: JobSpan | undefined;

  constructor(body: Buffer, { maxBytes, most }: { maxBytes: number; most: number }) {
    this.#body = body;
    this.#maxBytes = maxBytes;
    this.#most = most;
  }

  get value(): Span | undefined {
    return this.#value;
  }

  /** Where the scan is, for an error: `jobs[3].input`. */
  get place(): string {
    if (!this.#job) return 'body';
    const job = `jobs[${this.jobs.length - 1}]`;
    return this.#job.input?.end === OPEN ? `${job}.input` : job;
  }

  member(keyAt: number, keyEnd: number, valueAt: number, depth: number): void {
    const key = { at: keyAt, end: keyEnd };
    if (depth === 1 && isKey(this.#body, key, JOBS)) {
      this.#value = { at: valueAt, end: OPEN };
      this.jobs = [];
    } else if (this.#job && isKey(this.#body, key, INPUT)) {
      this.#job.input = { at: valueAt, end: OPEN };
    }
  }

  element(at: number, depth: number): void {
    if (depth !== 2 || this.#value?.end !== OPEN) return;
    if (this.jobs.length === this.#most) throw new TooManyJobsError();
    this.#job = { at, end: OPEN, input: undefined };
    this.jobs.push(this.#job);
  }

  valueEnd(at: number, depth: number): void {
    if (depth === 3) {
      if (this.#job?.input?.end === OPEN) this.#job.input.end = at;
    } else if (depth === 2) {
      if (!this.#job) return;
      this.#checkBytes(this.#job, at);
      this.#job.end = at;
      this.#job = undefined;
    } else if (this.#value?.end === OPEN) this.#value.end = at;
  }

  progress(at: number): void {
    if (this.#job) this.#checkBytes(this.#job, at);
    if (at - measure(this.#value, at) <= this.#maxBytes) return;
    throw new JsonBoundError(`the fields except jobs have more than ${this.#maxBytes} bytes`);
  }

  /** `end`: of the job, as far as it is known. */
  #checkBytes({ at, input }: JobSpan, end: number): void {
    if (end - at - measure(input, end) <= this.#maxBytes) return;
    const job = `jobs[${this.jobs.length - 1}]`;
    throw new JsonBoundError(
      `the fields of ${job} except input have more than ${this.#maxBytes} bytes`,
    );
  }
}

/** Ends of values that the scan is in. */
const OPEN = -1;

/** Length of a value; of one that the scan is in, its length so far. */
function measure(span: Span | undefined, now: number): number {
  if (!span) return 0;
  return (span.end === OPEN ? now : span.end) - span.at;
}
