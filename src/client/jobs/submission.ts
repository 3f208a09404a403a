// One submission of a job: the options of its caller, and the request that they become.

import type { JobPolicy, JobStatus } from '../../wire/job/job.ts';
import { requireKept } from '../../wire/job/kept-input.ts';
import { chooseTrace } from './job-trace.ts';

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
  requireKept(input);
  const body = JSON.stringify({ input, ...rest });
  const trace = await chooseTrace({ traceparent, tracestate });
  return {
    ...(Object.keys(trace).length > 0 && { trace }),
    body,
    isRepeatable: rest.idempotencyKey !== undefined,
    signal,
  };
}
