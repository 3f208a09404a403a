// Reads and writes the trace context of a client's request (W3C Trace Context,
// https://www.w3.org/TR/trace-context) for platform and worker.

export const TRACE_HEADERS = { parent: 'traceparent', state: 'tracestate' } as const;

/** Length in version 00; newer versions are converted to it. */
export const TRACEPARENT_LENGTH = 55;
/** Length that the standard requires every system to pass on. A longer tracestate is dropped. */
export const MAX_TRACESTATE_LENGTH = 512;
const MAX_STATE_MEMBERS = 32;

export interface TraceContext {
  /** In version 00: `00-<trace id>-<span id>-<flags>`. */
  traceparent: string;
  /** Data of the vendors' tracing systems: `name=value,…`. */
  tracestate?: string;
}

/** Version, trace ID, span ID, flags; newer versions may append more. */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const ALL_ZERO = /^0+$/;
const STATE_KEY = /^[a-z0-9][a-z0-9_\-*/@]{0,255}$/;
/** Printable ASCII except comma and equals sign; no space at the end. */
const STATE_VALUE = /^[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;
/** Sampled and random trace ID: the only flags of newer versions with a known meaning. */
const KNOWN_FLAGS = 0x03;

/**
 * Returns undefined if the traceparent is invalid: the request then counts as untraced. An invalid
 * or too long tracestate alone is dropped. Accepts headers as received: repeated headers arrive
 * joined by commas, which is an invalid traceparent but one valid tracestate.
 */
export function readTraceContext(
  traceparent: unknown,
  tracestate?: unknown,
): TraceContext | undefined {
  const parent = typeof traceparent === 'string' ? readTraceparent(traceparent) : undefined;
  if (parent === undefined) return undefined;
  const context: TraceContext = { traceparent: parent };
  const state = typeof tracestate === 'string' ? readTracestate(tracestate) : undefined;
  if (state !== undefined) context.tracestate = state;
  return context;
}

/** Splits a valid traceparent. */
export function splitTraceparent(traceparent: string) {
  return {
    traceId: traceparent.slice(3, 35),
    spanId: traceparent.slice(36, 52),
    flags: Number.parseInt(traceparent.slice(53, 55), 16),
  };
}

/** Fields for log lines of a job; none without a trace. */
export function nameTrace(traceparent: string | undefined): { trace_id?: string } {
  return traceparent ? { trace_id: splitTraceparent(traceparent).traceId } : {};
}

function readTraceparent(text: string): string | undefined {
  const [, version = '', traceId = '', spanId = '', flags = '', rest] =
    TRACEPARENT.exec(text) ?? [];
  if (version === '' || version === 'ff') return undefined;
  if (ALL_ZERO.test(traceId) || ALL_ZERO.test(spanId)) return undefined;
  if (version === '00') return rest === undefined ? text : undefined;
  const known = Number.parseInt(flags, 16) & KNOWN_FLAGS;
  return `00-${traceId}-${spanId}-${known.toString(16).padStart(2, '0')}`;
}

function readTracestate(text: string): string | undefined {
  const members = text
    .split(',')
    .map((member) => member.replaceAll(/^[ \t]+|[ \t]+$/g, ''))
    .filter((member) => member !== '');
  const state = members.join(',');
  if (state.length === 0 || state.length > MAX_TRACESTATE_LENGTH) return undefined;
  if (members.length > MAX_STATE_MEMBERS) return undefined;
  const keys = new Set<string>();
  for (const member of members) {
    const at = member.indexOf('=');
    const key = member.slice(0, Math.max(at, 0));
    if (!STATE_KEY.test(key) || !STATE_VALUE.test(member.slice(at + 1))) return undefined;
    keys.add(key);
  }
  return keys.size === members.length ? state : undefined;
}
