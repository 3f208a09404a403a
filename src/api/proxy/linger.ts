// Ends the exchange of a client that continues to send after it has the whole answer.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../../base/clock.ts';

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
