// Writes spans as OTLP/HTTP JSON (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding).
import type { Span, SpanKind } from '../../queue/tracing/job-spans.ts';

const KINDS: Readonly<Record<SpanKind, number>> = { internal: 1, server: 2, client: 3 };
const STATUS_ERROR = 2;

export interface TraceResource {
  /** `service.name`. */
  name: string;
  version: string;
  /** `service.instance.id`. */
  instance: string;
}

/** The body of one request. */
export function composeTraces(spans: readonly Span[], resource: TraceResource): string {
  const { instance, name, version } = resource;
  const attributes = listAttributes({
    ...{ 'service.name': name, 'service.version': version, 'service.instance.id': instance },
  });
  const scope = { name: 'millrace', version };
  const scopeSpans = [{ scope, spans: spans.map(composeSpan) }];
  return JSON.stringify({ resourceSpans: [{ resource: { attributes }, scopeSpans }] });
}

function composeSpan(span: Span): object {
  const { attributes, endMs, error, kind, name, parentSpanId, spanId, startMs, traceId } = span;
  return {
    ...{ traceId, spanId, name, kind: KINDS[kind] },
    ...(parentSpanId !== undefined && { parentSpanId }),
    ...(span.tracestate !== undefined && { traceState: span.tracestate }),
    startTimeUnixNano: toNano(startMs),
    endTimeUnixNano: toNano(endMs),
    attributes: listAttributes(attributes),
    ...(error !== undefined && { status: { code: STATUS_ERROR, message: error } }),
  };
}

function listAttributes(attributes: Span['attributes']): object[] {
  return Object.entries(attributes).map(([key, value]) => ({ key, value: typed(value) }));
}

/** JSON of 64-bit integers is text. */
function typed(value: string | number | boolean): object {
  if (typeof value === 'string') return { stringValue: value };
  if (typeof value === 'boolean') return { boolValue: value };
  return Number.isSafeInteger(value) ? { intValue: String(value) } : { doubleValue: value };
}

function toNano(ms: number): string {
  return `${Math.round(ms)}000000`;
}
