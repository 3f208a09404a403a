// The trace of one attempt: a span around the handler if the author's module registered an
// OpenTelemetry SDK, otherwise nothing. Sampling and export belong to that SDK.
import { createRequire } from 'node:module';
import type { Outcome } from '../wire/link/worker-link.ts';
import { splitTraceparent } from '../wire/trace-context.ts';
import { describeThrown } from './thrown.ts';

export interface TracedAttempt {
  jobId: string;
  attempt: number;
  endpointId: string | undefined;
  /** File of the author's module, whose copy of the API is used. Without one it is ours. */
  file: string | undefined;
  /** Of the client's request, valid. */
  traceparent: string | undefined;
  tracestate: string | undefined;
}

export interface AttemptTrace {
  /** Of the client's trace, else of the span's own; undefined if there is neither. */
  readonly traceId: string | undefined;
  /** Spans that are made in what `act` calls and awaits are children of the attempt's. */
  run<T>(act: () => T): T;
  /** `thrown` by the handler, if that is how it ended. */
  end(outcome: Outcome, thrown: unknown): void;
}

type Api = typeof import('@opentelemetry/api');

/** Where every API of version 1, whoever loaded it, keeps what an SDK has registered. */
const REGISTERED = Symbol.for('opentelemetry.js.api.1');

/** What was found for a file, so that no attempt searches the disk for it again. */
const apis = new Map<string | undefined, Api | undefined>();

/** Never throws: what goes wrong in tracing is said to OpenTelemetry's own diagnostics. */
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

/** Without an SDK the API would do nothing, so it is not even looked for. */
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
      // What is thrown after a stop is the answer to that, not an error.
      if (outcome.kind === 'failed' && thrown !== undefined) {
        const { type, ...told } = describeThrown(thrown);
        this.#span.recordException({ name: type ?? 'unknown', ...told });
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
