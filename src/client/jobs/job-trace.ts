// Finds the trace of a new job: the caller's, or else the program's active span.
import { readTraceContext, TRACE_HEADERS } from '../../wire/trace-context.ts';

type Api = typeof import('@opentelemetry/api');

/** Symbol under which every copy of OpenTelemetry's API version 1 stores the registered SDK. */
const REGISTERED = Symbol.for('opentelemetry.js.api.1');

/** A variable, so that bundlers do not resolve the optional package. */
const API_PACKAGE: string = '@opentelemetry/api';

/** Undefined if the package cannot be loaded. */
let loading: Promise<Api | undefined> | undefined;

/** Returns the headers to send; none without a valid trace. */
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
