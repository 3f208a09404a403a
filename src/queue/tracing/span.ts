// The spans of the platform's part of a job, and where they go. job-spans.ts makes them; the platform exports them.

/** Kinds of OpenTelemetry. */
export type SpanKind = 'internal' | 'server' | 'client';

export interface Span {
  /** 32 hex digits. */
  traceId: string;
  /** 16 hex digits. */
  spanId: string;
  /** Undefined: the first span of its trace. */
  parentSpanId: string | undefined;
  tracestate: string | undefined;
  name: string;
  kind: SpanKind;
  /** Unix ms. */
  startMs: number;
  endMs: number;
  attributes: Readonly<Record<string, string | number | boolean>>;
  /** Why it failed; undefined: it did not. */
  error: string | undefined;
}

/** Takes spans that have ended. `add` must not block, and never throws. */
export interface SpanSink {
  add(span: Span): void;
}
