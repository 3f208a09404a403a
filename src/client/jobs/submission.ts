// One submission of a job: the options of its caller, the trace that it belongs to, and the request that they become.
import type { JobPolicy, JobStatus } from '../../wire/job/job.ts';
import { requireJsonInput } from '../../wire/job/json-input.ts';
import { readTraceContext, TRACE_HEADERS } from '../../wire/trace-context.ts';

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
