// Finds the jobs in the body of a request that submits several, and the input of each, in one scan that pauses. No
// input is parsed.
import { LIMITS } from '../../wire/job/job.ts';
import { isKey, JsonBoundError, JsonDepthError, type ScanWatch, scan } from './json-check.ts';

/** Where a value is: it ends before `end`. */
export interface Span {
  at: number;
  end: number;
}

/** An element of `jobs`; only an object can have an input. */
export interface JobSpan extends Span {
  input: Span | undefined;
}

export interface JobsFinding {
  /** The value of `jobs`; undefined if the body is not an object or has no such member. */
  value: Span | undefined;
  /** The elements of `jobs`; none if it is not an array. */
  jobs: readonly JobSpan[];
}

export interface JobsSearch {
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
 * Undefined if the body is not JSON. If members have the same name, the last one counts, as with JSON.parse. Pauses
 * after each slice.
 * @throws TooManyJobsError; JsonBoundError; JsonDepthError that names the place
 */
export function* findJobs(
  body: Buffer,
  { maxEnvelopeBytes, maxJsonDepth }: JobsSearch,
): Generator<void, JobsFinding | undefined> {
  const watch = new JobsWatch(body, maxEnvelopeBytes);
  try {
    const isWhole = yield* scan(body, { maxDepth: maxJsonDepth + LEVELS }, watch);
    return isWhole ? { value: watch.value, jobs: watch.jobs } : undefined;
  } catch (error) {
    if (!(error instanceof JsonDepthError)) throw error;
    throw new JsonDepthError(`${watch.place}: must be nested at most ${maxJsonDepth} levels deep`);
  }
}

/** `jobs` has more elements than one request may have. */
export class TooManyJobsError extends Error {
  override readonly name = 'TooManyJobsError';
}

class JobsWatch implements ScanWatch {
  readonly levels = LEVELS;
  jobs: JobSpan[] = [];
  readonly #body: Buffer;
  readonly #maxBytes: number;
  #value: Span | undefined;
  /** The job that the scan is in. */
  #job: JobSpan | undefined;

  constructor(body: Buffer, maxBytes: number) {
    this.#body = body;
    this.#maxBytes = maxBytes;
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
    if (this.jobs.length === LIMITS.jobsOfRequest) throw new TooManyJobsError();
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
