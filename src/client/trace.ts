// The trace that a new job belongs to: what the caller names, else the program's active span.
import { readTraceContext, TRACE_HEADERS } from '../wire/trace-context.ts';

type Api = typeof import('@opentelemetry/api');

/** Where every API of version 1, whoever loaded it, keeps what an SDK has registered. */
const REGISTERED = Symbol.for('opentelemetry.js.api.1');

/** Not written where it is imported, so that bundlers do not ask for what is optional. */
const API_PACKAGE: string = '@opentelemetry/api';

/** Undefined: cannot be loaded here. */
let loading: Promise<Api | undefined> | undefined;

/** The headers to send; none if there is no valid trace. */
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

/** By the W3C format whatever propagators are registered: it is what the service reads. */
async function readActiveSpan(): Promise<Named> {
  // Without an SDK there is no active span, and the API is not even looked for.
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
