// Finds the response of a request, for code to which Node and the framework pass only the request.
import type { IncomingMessage, ServerResponse } from 'node:http';

interface Exchange {
  response: ServerResponse;
  /** The client waits for `100 Continue` before it sends the body. */
  isWaiting: boolean;
}

const exchanges = new WeakMap<IncomingMessage, Exchange>();

export function noteExchange(request: IncomingMessage, response: ServerResponse): void {
  const { expect = '' } = request.headers;
  const isWaiting = /(?:^|\W)100-continue(?:$|\W)/i.test(expect) && request.httpVersionMinor > 0;
  exchanges.set(request, { response, isWaiting });
}

/** Undefined for requests that did not arrive over a server's socket. */
export function findResponse(request: IncomingMessage): ServerResponse | undefined {
  return exchanges.get(request)?.response;
}

export function isAwaitingContinue(request: IncomingMessage): boolean {
  return exchanges.get(request)?.isWaiting ?? false;
}

/** Tells a waiting client to send the body. */
export function sendContinue(request: IncomingMessage): void {
  const exchange = exchanges.get(request);
  if (!exchange?.isWaiting) return;
  exchange.isWaiting = false;
  exchange.response.writeContinue();
}
