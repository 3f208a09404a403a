// Selects the headers that pass to another node. Pure.
import type { IncomingMessage } from 'node:http';
import { describeForwarded, type ForwardedTerms, isNodeHeader } from '../nodes/forwarded.ts';
import { readTokens } from '../proxy/headers.ts';

/** About one connection, or set anew below. */
const NOT_FORWARDED = new Set([
  ...['connection', 'keep-alive', 'proxy-connection', 'proxy-authenticate', 'proxy-authorization'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade', 'expect', 'content-length'],
]);

export interface NodeHeaderTerms extends ForwardedTerms {
  /** `late`: it is sent after `100 Continue`. */
  body: 'none' | 'small' | 'late';
  /** Protocol of an upgrade. */
  protocol: string | undefined;
  /** For a request without a Host header. */
  host: string;
}

/** Alternating names and values; repeated headers stay repeated. */
export function composeNodeHeaders(request: IncomingMessage, terms: NodeHeaderTerms): string[] {
  const { headers, rawHeaders } = request;
  const dropped = readTokens(headers.connection);
  const passed: string[] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const [name = '', value = ''] = [rawHeaders[at], rawHeaders[at + 1]];
    const lowered = name.toLowerCase();
    const isKept = !NOT_FORWARDED.has(lowered) && !isNodeHeader(lowered);
    // The key and the host are the request's own, whatever the client lists.
    if (isKept && (!dropped.has(lowered) || lowered === 'authorization' || lowered === 'host')) {
      passed.push(name, value);
    }
  }
  if (headers.host === undefined) passed.push('host', terms.host);
  const length = headers['content-length'];
  if (terms.body !== 'none' && headers['transfer-encoding'] !== undefined) {
    passed.push('transfer-encoding', 'chunked');
  } else if (terms.body !== 'none' && length !== undefined) {
    passed.push('content-length', length);
  }
  if (terms.body === 'late') passed.push('expect', '100-continue');
  if (readTokens(headers['te']).has('trailers')) passed.push('te', 'trailers');
  if (terms.protocol !== undefined) {
    passed.push('connection', 'upgrade', 'upgrade', terms.protocol);
  }
  passed.push(...describeForwarded(request, terms));
  return passed;
}
