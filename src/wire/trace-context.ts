// Reads and writes the trace of a client's request by W3C Trace Context
// (https://www.w3.org/TR/trace-context), for platform and worker.

export const TRACE_HEADERS = { parent: 'traceparent', state: 'tracestate' } as const;

/** Of version 00; what is newer is brought down to it. */
export const TRACEPARENT_LENGTH = 55;
/** What every system has to pass on, by the standard. A longer one is dropped. */
export const MAX_TRACESTATE_LENGTH = 512;
const MAX_STATE_MEMBERS = 32;

export interface TraceContext {
  /** Of version 00: `00-<trace id>-<span id>-<flags>`. */
  traceparent: string;
  /** For the vendors' tracing systems: `name=value,…`. */
  tracestate?: string;
}

/** Version, trace id, span id, flags; a newer version may have more behind them. */
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
const ALL_ZERO = /^0+$/;
const STATE_KEY = /^[a-z0-9][a-z0-9_\-*/@]{0,255}$/;
/** Printable ASCII but for comma and equals sign; no space at the end. */
const STATE_VALUE = /^[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;
/** Sampled, and random trace id: all that a newer version's flags are known to mean. */
const KNOWN_FLAGS = 0x03;

/**
 * Undefined if the traceparent is not valid: the request is then one without. A tracestate that is
 * not valid, or too long, is left out alone. Takes headers as they came; two of the same name, which
 * come joined by a comma, are no valid traceparent and one tracestate.
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

/** Parts of a valid traceparent. */
export function splitTraceparent(traceparent: string) {
  return {
    traceId: traceparent.slice(3, 35),
    spanId: traceparent.slice(36, 52),
    flags: Number.parseInt(traceparent.slice(53, 55), 16),
  };
}

/** What log lines of a job carry beside its id; nothing if it has no trace. */
export function nameTrace(traceparent: string | undefined): { trace_id?: string } {
  return traceparent === undefined ? {} : { trace_id: splitTraceparent(traceparent).traceId };
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
