// Sends requests piece by piece; the body may stay incomplete.
import { once } from 'node:events';
import {
  type ClientRequest,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  request,
} from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import type { ProblemAnswer } from '../answers.ts';
import { checkAnswer } from '../openapi-check.ts';
import type { PlatformProcess } from '../processes.ts';

const PIECE_BYTES = 65_536;

export interface OpenRequest {
  request: ClientRequest;
  /** Resolves when the answer arrives, whether or not the request has ended. */
  answer: Promise<ProblemAnswer>;
}

export interface RawRequestOptions {
  method?: string;
  /** Headers besides the admin key and the JSON media type. */
  headers?: OutgoingHttpHeaders;
}

export function openRequest(
  platform: PlatformProcess,
  path: string,
  { method = 'POST', headers = {} }: RawRequestOptions = {},
): OpenRequest {
  const opened = request(`${platform.url}${path}`, {
    method,
    // A new connection, because some of these end with half a body.
    agent: false,
    headers: {
      authorization: `Bearer ${platform.adminKey}`,
      'content-type': 'application/json',
      ...headers,
    },
  });
  return { request: opened, answer: readAnswer(opened) };
}

/** Sends a body, with its length or in chunks, until it is sent or answered. */
export async function sendBody(
  platform: PlatformProcess,
  path: string,
  { body, transfer }: { body: Uint8Array; transfer: 'with its length' | 'in chunks' },
): Promise<ProblemAnswer> {
  const headers: OutgoingHttpHeaders =
    transfer === 'in chunks'
      ? { 'transfer-encoding': 'chunked' }
      : { 'content-length': body.length };
  const { request: opened, answer } = openRequest(platform, path, { headers });
  const answered = answer.then(() => true);
  for (let at = 0; at < body.length; at += PIECE_BYTES) {
    if (opened.write(body.subarray(at, at + PIECE_BYTES))) continue;
    const drained = once(opened, 'drain').then(() => false);
    if (await Promise.race([drained, answered])) return answer;
  }
  opened.end();
  return answer;
}

/** Sends everything before it reads, as simple clients do. @returns the answer */
export async function sendThenRead(
  platform: PlatformProcess,
  { body, head }: { head: string[]; body: Uint8Array },
): Promise<string> {
  const socket = connect(Number(new URL(platform.url).port), '127.0.0.1');
  const headers = [
    ...head,
    'Host: 127.0.0.1',
    `Authorization: ${platform.adminKey}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
  ];
  socket.pause();
  socket.write(`${headers.join('\r\n')}\r\n\r\n`);
  await new Promise<void>((resolve, reject) => {
    socket.once('error', reject);
    socket.write(body, () => resolve());
  });
  const answer = text(socket);
  socket.end();
  return answer;
}

async function readAnswer(opened: ClientRequest): Promise<ProblemAnswer> {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    opened.once('response', resolve);
    // After the answer, the server may close the connection on an unread body.
    opened.on('error', reject);
  });
  const body = await text(response);
  const { headers, statusCode: status = 0 } = response;
  const seen = new Headers(Object.entries(headers).map(([name, value]) => [name, String(value)]));
  checkAnswer({ method: opened.method, path: opened.path, status, headers: seen, body });
  return { status, mediaType: headers['content-type'], body };
}
