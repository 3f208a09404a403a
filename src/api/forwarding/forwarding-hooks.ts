// Hooks of requests that another node has forwarded.
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Queues } from '../../queue/queues.ts';
import { WORKER_HEADERS } from '../../wire/routes/routes.ts';
import { toProblem } from '../http/problem-reply.ts';
import { isAwaitingContinue } from '../limits/exchanges.ts';
import { findForwarded, NODE_HEADERS, NOT_OWNER_STATUS } from '../nodes/forwarded.ts';
import type { Forwarder } from './forwarder.ts';
import { endServed } from './served-here.ts';

/**
 * For the error handler. The endpoint may move while its queue serves a request; then the queue refuses it, and
 * the node that forwarded it may repeat it.
 */
export function noteLost(
  request: FastifyRequest,
  reply: FastifyReply,
  { error, forwarder, queue }: ServedBy & { error: unknown },
): void {
  if (!findForwarded(request.raw) || toProblem(error)?.code !== 'unavailable') return;
  if (queue.isClosing || !forwarder.isHere(request)) reply.header(NODE_HEADERS.answer, 'lost');
}

interface Failed {
  error: unknown;
  forwarder: Forwarder;
}

/** Whether the error may be that this node has lost the endpoint of a client's request. */
export function mayBeLost(
  request: FastifyRequest,
  reply: FastifyReply,
  { error, forwarder }: Failed,
): boolean {
  if (findForwarded(request.raw) || reply.sent || reply.raw.destroyed) return false;
  return toProblem(error)?.code === 'unavailable' && !forwarder.isHere(request);
}

/**
 * For the error handler: lets the next owner answer. Never rejects. @returns the error to send; undefined if another
 * node has answered
 */
export async function passLost(
  request: FastifyRequest,
  reply: FastifyReply,
  { error, forwarder }: Failed,
): Promise<unknown> {
  // A node that hands an endpoint over waits for the requests that it serves.
  endServed(request);
  // They describe the answer that this node began.
  for (const name of ['content-type', WORKER_HEADERS.owner]) reply.removeHeader(name);
  try {
    return (await forwarder.passLost(request, reply)) ? undefined : error;
  } catch (failure) {
    return failure;
  }
}

interface ServedBy {
  forwarder: Forwarder;
  queue: Pick<Queues, 'isClosing'>;
}

/** Add them before the guard: a request is forwarded once, and refused before its key is read. */
export function addForwardingHooks(app: FastifyInstance, { forwarder, queue }: ServedBy): void {
  app.addHook('onRequest', (request, reply, done) => {
    if (!findForwarded(request.raw)) return done();
    const isServed = !queue.isClosing && forwarder.isHere(request);
    // Overrides a worker's header of the same name.
    reply.header(NODE_HEADERS.answer, isServed ? 'owner' : 'not_owner');
    if (isServed) return done();
    // The other node may or may not send the body.
    if (isAwaitingContinue(request.raw)) reply.header('connection', 'close');
    reply.code(NOT_OWNER_STATUS).send();
  });
}
