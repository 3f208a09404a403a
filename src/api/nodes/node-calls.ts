// Answers `POST /node/<name>` of other nodes.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Log } from '../../base/log.ts';
import { ProblemError } from '../../wire/problem.ts';
import { sendContinue } from '../limits/exchanges.ts';
import { CALL_PATH, MAX_CALL_BYTES } from './node-client.ts';

/** A call without an effect: whether the node answers. */
export const PING = 'ping';

export interface NodeCallsOptions {
  /** Default: every call is unknown. */
  onCall?: ((name: string, body: unknown) => Promise<unknown>) | undefined;
  log: Log;
}

export function isNodeCall({ url = '' }: IncomingMessage): boolean {
  return url.startsWith(CALL_PATH);
}

/** Always answers. The caller has checked the secret. */
export async function answerNodeCall(
  request: IncomingMessage,
  response: ServerResponse,
  { log, onCall }: NodeCallsOptions,
): Promise<void> {
  const name = decodeName(request.url ?? '');
  try {
    if (request.method !== 'POST') throw new ProblemError('method_not_allowed', 'use POST');
    const body = await readCall(request);
    if (name === PING) return send(response, 200, {});
    if (!onCall) throw new ProblemError('not_found', `call ${name} not found`);
    send(response, 200, (await onCall(name, body)) ?? null);
  } catch (error) {
    if (error instanceof ProblemError) {
      send(response, error.status, error.toProblem());
      return;
    }
    if (!request.destroyed) log.error({ err: error, call: name }, 'call of another node failed');
    send(response, 500, { code: 'internal' });
  }
}

/** @throws ProblemError `payload_too_large`, `malformed` */
async function readCall(request: IncomingMessage): Promise<unknown> {
  sendContinue(request);
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of request) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes > MAX_CALL_BYTES) {
      throw new ProblemError('payload_too_large', `a call has at most ${MAX_CALL_BYTES} bytes`);
    }
  }
  try {
    return JSON.parse(Buffer.concat(pieces).toString());
  } catch {
    throw new ProblemError('malformed', 'the call is not JSON');
  }
}

function decodeName(url: string): string {
  try {
    return decodeURIComponent(url.slice(CALL_PATH.length));
  } catch {
    return '';
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  if (response.destroyed) return;
  const json = Buffer.from(JSON.stringify(body));
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': json.length });
  response.end(json);
}
