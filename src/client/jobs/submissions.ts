// Composes and submits jobs of one endpoint. Jobs that come while requests are under way wait and share the next request.
import { systemClock } from '../../base/clock.ts';
import {
  type JobPolicy,
  type JobStatus,
  LIMITS,
  type ParentReference,
  QUEUE_FULL_RETRY_MS,
} from '../../wire/job/job.ts';
import type { RunJobsAnswer, SubmittedJob } from '../../wire/job/job-records.ts';
import { requireJsonInput } from '../../wire/job/json-input.ts';
import type { Problem } from '../../wire/problem.ts';
import { JOB_ROUTES } from '../../wire/routes/routes.ts';
import { readTraceContext, TRACE_HEADERS } from '../../wire/trace-context.ts';
import { type ApiCaller, ApiError, callOf, UnreachableError } from '../api-caller.ts';

/** Bounds of a request with many jobs. Lengths are those of the JSON, in UTF-16 units. */
export const SHARED_REQUEST = {
  jobs: LIMITS.jobsOfRequest,
  length: 1_000_000,
  /** A longer job gets a request of its own, so that small jobs do not wait for its transfer. */
  lengthOfJob: 65_536,
  /** Further jobs wait while this many requests are under way. */
  underWay: 2,
  /** A request with at least this many jobs lets further jobs wait by itself: a job of a larger request costs less. */
  jobsOfLarge: 8,
} as const;

/** A submission that waits for a shared request, or is part of one. */
interface PendingSubmission extends Omit<Submission, 'trace'> {
  resolve: (job: JobReference) => void;
  reject: (reason: unknown) => void;
  /** Requests that were answered with 429 or 503, or not at all. */
  failures: number;
  /** Most jobs of its next request: it is halved when a request is refused for its content or the rate limit. */
  most: number;
  /** Its request; undefined while it waits. */
  request: SharedRequest | undefined;
  isSettled: boolean;
}

interface Refusal {
  waiting: PendingSubmission;
  error: unknown;
}

interface SharedRequest {
  /** Submissions whose callers still wait. */
  left: number;
  abort: AbortController | undefined;
}

/** A request without an answer for this long holds up no others: its connection may be dead. */
const SLOW_MS = 5_000;

/** Statuses of a request that is refused because of one of its jobs, or because of their number or size. */
const REFUSED_CONTENT: ReadonlySet<number> = new Set([400, 413, 422]);
const TOO_MANY_REQUESTS = 429;

export interface SubmissionsOptions {
  caller: ApiCaller;
  endpoint: string;
  /** False: every job gets a request of its own. */
  canShare: boolean;
  /** Headers of the trace of all jobs. */
  trace?: Readonly<Record<string, string>>;
}

export class Submissions {
  readonly #options: SubmissionsOptions;
  /** In the order of their calls. */
  readonly #waiting = new Set<PendingSubmission>();
  /** Numbers of jobs of the requests under way. */
  readonly #underWay = new Set<{ jobs: number }>();
  #isScheduled = false;

  constructor(options: SubmissionsOptions) {
    this.#options = options;
  }

  /** @throws ApiError, UnreachableError, the signal's reason */
  submit(submission: Submission): Promise<JobReference> {
    const { body, signal, trace } = submission;
    if (!this.#options.canShare || trace || body.length > SHARED_REQUEST.lengthOfJob) {
      return this.#sendAlone(submission);
    }
    if (signal?.aborted) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => this.#add(submission, resolve, reject));
  }

  #add(
    { body, isRepeatable, signal }: Submission,
    resolve: PendingSubmission['resolve'],
    reject: PendingSubmission['reject'],
  ): void {
    const onAbort = () => {
      this.#waiting.delete(waiting);
      waiting.reject(signal?.reason);
      const { request } = waiting;
      if (request && --request.left === 0) request.abort?.abort();
    };
    const settle = () => {
      waiting.isSettled = true;
      signal?.removeEventListener('abort', onAbort);
    };
    const waiting: PendingSubmission = {
      body,
      isRepeatable,
      signal,
      failures: 0,
      most: SHARED_REQUEST.jobs,
      request: undefined,
      isSettled: false,
      resolve(job) {
        settle();
        resolve(job);
      },
      reject(reason) {
        settle();
        reject(reason);
      },
    };
    signal?.addEventListener('abort', onAbort);
    this.#waiting.add(waiting);
    this.#schedule();
  }

  /** Sends after the current calls: those that are made together go together. */
  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      this.#sendWaiting();
    });
  }

  #sendWaiting(): void {
    while (this.#waiting.size > 0 && this.#maySend) {
      const batch = this.#takeBatch();
      const request = { jobs: batch.length };
      this.#underWay.add(request);
      const leave = () => {
        if (this.#underWay.delete(request)) this.#sendWaiting();
      };
      const stopTimer = systemClock.after(SLOW_MS, leave);
      void this.#send(batch).finally(() => {
        stopTimer();
        leave();
      });
    }
  }

  /** While a large request is under way, only a full one may follow. */
  get #maySend(): boolean {
    if (this.#underWay.size >= SHARED_REQUEST.underWay) return false;
    if (this.#waiting.size >= SHARED_REQUEST.jobs) return true;
    return [...this.#underWay].every(({ jobs }) => jobs < SHARED_REQUEST.jobsOfLarge);
  }

  #takeBatch(): PendingSubmission[] {
    const batch: PendingSubmission[] = [];
    let most: number = SHARED_REQUEST.jobs;
    let length = 0;
    for (const waiting of this.#waiting) {
      most = Math.min(most, waiting.most);
      length += waiting.body.length;
      const isFull = batch.length >= most || length > SHARED_REQUEST.length;
      if (isFull && batch.length > 0) break;
      this.#waiting.delete(waiting);
      batch.push(waiting);
    }
    return batch;
  }

  /** Settles the submissions, or lets them wait again; never rejects. */
  async #send(batch: readonly PendingSubmission[]): Promise<void> {
    const [first] = batch;
    try {
      if (first && batch.length === 1) {
        // A wait for a retry must not hold up the others.
        first.resolve(await this.#sendAlone({ ...first, repeats: 0 }));
        return;
      }
      const jobs = await this.#sendTogether(batch);
      const refused: Refusal[] = [];
      for (const [index, waiting] of batch.entries()) {
        const job = jobs[index];
        if (job && 'id' in job) waiting.resolve(job);
        else if (job) refused.push({ waiting, error: refusalOf(job.error) });
      }
      this.#repeatOrReject(refused);
    } catch (error) {
      this.#handleRefusal(batch, error);
    }
  }

  async #sendTogether(batch: readonly PendingSubmission[]): Promise<SubmittedJob[]> {
    // If one caller cannot leave, the request is never aborted.
    const canAbort = batch.every(({ signal }) => signal);
    const abort = canAbort ? new AbortController() : undefined;
    const request = { left: batch.length, abort };
    for (const waiting of batch) waiting.request = request;
    try {
      const { caller, endpoint, trace } = this.#options;
      const { jobs } = await caller.json<RunJobsAnswer>({
        ...callOf(JOB_ROUTES.runJobs, { endpoint }),
        headers: trace,
        text: `{"jobs":[${batch.map(({ body }) => body).join(',')}]}`,
        // Each submission decides for itself.
        repeats: 0,
        signal: abort?.signal,
      });
      if (Array.isArray(jobs) && jobs.length === batch.length) return jobs;
      throw new UnreachableError(`the response does not have ${batch.length} jobs`);
    } finally {
      for (const waiting of batch) waiting.request = undefined;
    }
  }

  #handleRefusal(batch: readonly PendingSubmission[], error: unknown): void {
    const status = error instanceof ApiError ? error.status : 0;
    const isShared = batch.length > 1;
    if (!isShared || !REFUSED_CONTENT.has(status)) {
      // Each job counts as a call, so the rate limit may never admit all of them together.
      if (isShared && status === TOO_MANY_REQUESTS) halve(batch);
      this.#repeatOrReject(batch.map((waiting) => ({ waiting, error })));
      return;
    }
    // In smaller requests, a job that is refused is at last alone.
    halve(batch);
    this.#waitAgain(batch);
  }

  #repeatOrReject(refused: readonly Refusal[]): void {
    const repeated: PendingSubmission[] = [];
    // One wait for all, so that they share a request again.
    let waitMs = 0;
    for (const { error, waiting } of refused) {
      waiting.failures++;
      const ownWaitMs = this.#options.caller.retryWaitMs(error, waiting);
      if (ownWaitMs === undefined) waiting.reject(error);
      else {
        repeated.push(waiting);
        waitMs = Math.max(waitMs, ownWaitMs);
      }
    }
    if (repeated.length === 0) return;
    systemClock.after(waitMs, () => this.#waitAgain(repeated));
  }

  #waitAgain(batch: readonly PendingSubmission[]): void {
    for (const waiting of batch) if (!waiting.isSettled) this.#waiting.add(waiting);
    this.#schedule();
  }

  async #sendAlone(submission: Submission & { repeats?: number }): Promise<JobReference> {
    const { caller, endpoint } = this.#options;
    const { body, isRepeatable, repeats, signal, trace = this.#options.trace } = submission;
    return await caller.json<JobReference>({
      ...callOf(JOB_ROUTES.runJob, { endpoint }),
      headers: trace,
      text: body,
      repeatable: isRepeatable,
      repeats,
      signal,
    });
  }
}

/** Lets the next requests of these submissions have half as many jobs at most. */
function halve(batch: readonly PendingSubmission[]): void {
  for (const waiting of batch) waiting.most = batch.length >> 1;
}

/** The refusal of one job of a request; the answer has no Retry-After for it. */
function refusalOf(problem: Problem): ApiError {
  return new ApiError(problem, problem.code === 'queue_full' ? QUEUE_FULL_RETRY_MS : undefined);
}

export interface JobReference {
  id: string;
  status: JobStatus;
}

export interface JobOptions {
  policy?: JobPolicy;
  /**
   * http or https URL to which the platform posts the record when the job has ended; see
   * `verifyWebhook`.
   */
  webhook?: string;
  /** Within the retention, the same key with the same body returns the same job. */
  idempotencyKey?: string;
  /** Jobs that must end before this one starts: IDs, or IDs with more. */
  after?: (string | ParentReference)[];
}

export interface TraceOptions {
  /**
   * W3C trace context of the job; an invalid one is not sent. Default: the active span's, if the
   * program has registered an OpenTelemetry SDK.
   */
  traceparent?: string;
  /** Sent with `traceparent`; at most 512 characters. */
  tracestate?: string;
}

export interface SubmitOptions extends JobOptions, TraceOptions {
  signal?: AbortSignal;
}

export interface Submission {
  /** JSON of the body of `run`. */
  body: string;
  /** Headers of the job's own trace; absent without one. */
  trace?: Readonly<Record<string, string>>;
  /** It has an idempotency key, so it may be sent again if no answer arrives. */
  isRepeatable: boolean;
  signal?: AbortSignal | undefined;
}

export async function composeSubmission(
  input: unknown,
  { signal, traceparent, tracestate, ...rest }: SubmitOptions,
): Promise<Submission> {
  // Before the first wait: later changes of the input have no effect.
  requireJsonInput(input);
  const body = JSON.stringify({ input, ...rest });
  const trace = await chooseTrace({ traceparent, tracestate });
  return {
    ...(Object.keys(trace).length > 0 && { trace }),
    body,
    isRepeatable: rest.idempotencyKey !== undefined,
    signal,
  };
}

type Api = typeof import('@opentelemetry/api');

/** Symbol under which every copy of OpenTelemetry's API version 1 stores the registered SDK. */
const REGISTERED = Symbol.for('opentelemetry.js.api.1');

/** A variable, so that bundlers do not resolve the optional package. */
const API_PACKAGE: string = '@opentelemetry/api';

/** Undefined if the package cannot be loaded. */
let loading: Promise<Api | undefined> | undefined;

/**
 * The trace of a new job: the caller's, or else that of the program's active span. Returns the headers to send; none
 * without a valid trace.
 */
export async function chooseTrace(given: {
  traceparent: string | undefined;
  tracestate: string | undefined;
}): Promise<Record<string, string>> {
  const { traceparent, tracestate } =
    given.traceparent === undefined ? await readActiveSpan() : given;
  const context = readTraceContext(traceparent, tracestate);
  if (!context) return {};
  const state =
    context.tracestate === undefined ? {} : { [TRACE_HEADERS.state]: context.tracestate };
  return { [TRACE_HEADERS.parent]: context.traceparent, ...state };
}

interface Named {
  traceparent?: string | undefined;
  tracestate?: string | undefined;
}

/** Uses the W3C format whatever propagators are registered, because the platform reads that format. */
async function readActiveSpan(): Promise<Named> {
  // Without an SDK no span is active, so the API is not loaded.
  if (!Reflect.has(globalThis, REGISTERED)) return {};
  loading ??= import(API_PACKAGE).catch(() => undefined);
  const api = await loading;
  const span = api?.trace.getSpanContext(api.context.active());
  if (!api || !span || !api.isSpanContextValid(span)) return {};
  const flags = span.traceFlags.toString(16).padStart(2, '0');
  return {
    traceparent: `00-${span.traceId}-${span.spanId}-${flags}`,
    tracestate: span.traceState?.serialize(),
  };
}
