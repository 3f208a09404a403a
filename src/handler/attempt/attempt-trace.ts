// The trace of one attempt: a span around the handler if the handler module has registered an
// OpenTelemetry SDK, otherwise nothing. Sampling and export are the SDK's.
import { createRequire } from 'node:module';
import type { Outcome } from '../../wire/link/worker-link.ts';
import { splitTraceparent } from '../../wire/trace-context.ts';
import { describeThrown } from '../thrown.ts';

interface TracedAttempt {
  jobId: string;
  attempt: number;
  endpointId: string | undefined;
  /** The handler module's file, whose copy of the API is used. Undefined: Millrace's copy. */
  file: string | undefined;
  /** Valid traceparent of the client's request. */
  traceparent: string | undefined;
  tracestate: string | undefined;
}

export interface AttemptTrace {
  /** ID of the client's trace, else of the span's own; undefined without either. */
  readonly traceId: string | undefined;
  /** Spans created inside `act` are children of the attempt's span. */
  run<T>(act: () => T): T;
  /** `thrown` by the handler, if it threw. */
  end(outcome: Outcome, thrown: unknown): void;
}

type Api = typeof import('@opentelemetry/api');

/** The place where every copy of OpenTelemetry's API version 1 stores the registered SDK. */
const REGISTERED = Symbol.for('opentelemetry.js.api.1');

/** Results by file, so that only the first attempt searches the disk. */
const apis = new Map<string | undefined, Api | undefined>();

/** Never throws: tracing errors go to OpenTelemetry's own diagnostics. */
export function beginTrace(attempt: TracedAttempt): AttemptTrace {
  const api = hasTracer() ? findApi(attempt.file) : undefined;
  try {
    if (api) return new SpanTrace(api, attempt);
  } catch (error) {
    api?.diag.error('millrace: starting the span of an attempt failed', error);
  }
  const { traceparent } = attempt;
  const traceId = traceparent && splitTraceparent(traceparent).traceId;
  return { traceId, run: (act) => act(), end: () => undefined };
}

/** Without an SDK the API would do nothing, so it is not loaded. */
function hasTracer(): boolean {
  const registered: unknown = Reflect.get(globalThis, REGISTERED);
  return typeof registered === 'object' && registered !== null && 'trace' in registered;
}

function findApi(file: string | undefined): Api | undefined {
  if (!apis.has(file)) apis.set(file, loadApi(file) ?? loadApi(import.meta.url));
  return apis.get(file);
}

function loadApi(from: string | undefined): Api | undefined {
  try {
    return from === undefined ? undefined : createRequire(from)('@opentelemetry/api');
  } catch {
    return undefined;
  }
}

class SpanTrace implements AttemptTrace {
  readonly traceId: string | undefined;
  readonly #api: Api;
  readonly #span: ReturnType<ReturnType<Api['trace']['getTracer']>['startSpan']>;
  readonly #context: ReturnType<Api['context']['active']>;

  constructor(api: Api, attempt: TracedAttempt) {
    const parent = readParent(api, attempt);
    this.#api = api;
    this.#span = api.trace.getTracer('millrace').startSpan(
      'millrace.attempt',
      {
        kind: api.SpanKind.CONSUMER,
        attributes: {
          'millrace.job.id': attempt.jobId,
          'millrace.attempt': attempt.attempt,
          ...(attempt.endpointId !== undefined && { 'millrace.endpoint': attempt.endpointId }),
        },
      },
      parent,
    );
    this.#context = api.trace.setSpan(parent, this.#span);
    const own = this.#span.spanContext();
    this.traceId = api.isSpanContextValid(own) ? own.traceId : undefined;
  }

  run<T>(act: () => T): T {
    return this.#api.context.with(this.#context, act);
  }

  end(outcome: Outcome, thrown: unknown): void {
    const { SpanStatusCode, diag } = this.#api;
    try {
      this.#span.setAttribute('millrace.outcome', outcome.kind);
      if (outcome.kind === 'failed' || outcome.kind === 'timed_out') {
        const { code, message } = outcome.error;
        this.#span.setAttribute('error.type', code);
        this.#span.setStatus({ code: SpanStatusCode.ERROR, message });
      }
      // An error after a stop is a consequence of the stop.
      if (outcome.kind === 'failed' && thrown !== undefined) {
        const { type, ...description } = describeThrown(thrown);
        this.#span.recordException({ name: type ?? 'unknown', ...description });
      }
      this.#span.end();
    } catch (error) {
      diag.error('millrace: ending the span of an attempt failed', error);
    }
  }
}

function readParent(api: Api, { traceparent, tracestate }: TracedAttempt) {
  if (traceparent === undefined) return api.ROOT_CONTEXT;
  const { traceId, spanId, flags } = splitTraceparent(traceparent);
  return api.trace.setSpanContext(api.ROOT_CONTEXT, {
    traceId,
    spanId,
    traceFlags: flags,
    isRemote: true,
    ...(tracestate === undefined ? {} : { traceState: api.createTraceState(tracestate) }),
  });
}
