// Finds the response of a request, for code to which Node and the framework pass only the request; and ends the
// exchange of a client that continues to send after it has the whole answer.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../../base/clock.ts';

interface Exchange {
  response: ServerResponse;
  /** The client waits for `100 Continue` before it sends the body. */
  isWaiting: boolean;
}

/** A property costs less than a WeakMap, whose entries the garbage collector visits each time. */
const EXCHANGE: unique symbol = Symbol('exchange');

declare module 'node:http' {
  interface IncomingMessage {
    [EXCHANGE]?: Exchange;
  }
}

const CONTINUE = /(?:^|\W)100-continue(?:$|\W)/i;

export function noteExchange(request: IncomingMessage, response: ServerResponse): void {
  const { expect } = request.headers;
  const isWaiting = expect !== undefined && CONTINUE.test(expect) && request.httpVersionMinor > 0;
  request[EXCHANGE] = { response, isWaiting };
}

/** Whether the headers of a request say that it has a body. */
export function announcesBody({ headers }: Pick<IncomingMessage, 'headers'>): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/** Undefined for requests that did not arrive over a server's socket. */
export function findResponse(request: IncomingMessage): ServerResponse | undefined {
  return request[EXCHANGE]?.response;
}

export function isAwaitingContinue(request: IncomingMessage): boolean {
  return request[EXCHANGE]?.isWaiting ?? false;
}

/** Tells a waiting client to send the body. */
export function sendContinue(request: IncomingMessage): void {
  const exchange = request[EXCHANGE];
  if (!exchange?.isWaiting) return;
  exchange.isWaiting = false;
  exchange.response.writeContinue();
}

/** How long a client may go on with its body after the end of the answer, ms. */
const LINGER_MS = 2_000;

/** The answer is complete; a client that continues to send blocks the connection. */
export function limitRest(request: IncomingMessage, response: ServerResponse, clock: Clock): void {
  if (request.complete) return;
  response.once('finish', () => {
    const cancel = clock.after(LINGER_MS, () => request.socket.destroy());
    request.socket.once('close', cancel);
    request.once('end', cancel);
  });
}
