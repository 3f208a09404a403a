// Reads the trace of a request from its headers.
import type { IncomingHttpHeaders } from 'node:http';
import { readTraceContext, TRACE_HEADERS } from '../../wire/trace-context.ts';

export function readTrace(headers: IncomingHttpHeaders) {
  return readTraceContext(headers[TRACE_HEADERS.parent], headers[TRACE_HEADERS.state]);
}
