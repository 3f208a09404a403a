// Gives a request without a connection what the server uses of one: a socket that can be ended, and distinct headers.
import { Duplex } from 'node:stream';
import type { FastifyInstance } from 'fastify';

/** Nothing is read from it or written to it. Its end ends the request. */
class InnerSocket extends Duplex {
  readonly remoteAddress: string | undefined;

  constructor(remoteAddress: string | undefined) {
    super({ read() {}, write: (_chunk, _encoding, done) => done() });
    this.remoteAddress = remoteAddress;
  }

  destroySoon(): void {
    this.destroy();
  }
}

/** Call it before any other hook. The framework's own stand-in has an address and events only. */
export function completeInnerRequests(app: FastifyInstance): void {
  app.addHook('onRequest', ({ raw }, _reply, done) => {
    if ('destroySoon' in raw.socket) return done();
    const { remoteAddress }: { remoteAddress?: string } = raw.socket;
    const socket = new InnerSocket(remoteAddress);
    socket.once('close', () => raw.destroy());
    const headersDistinct = Object.fromEntries(
      Object.entries(raw.headers).map(([name, value]) => [name, [value ?? []].flat()]),
    );
    Object.assign(raw, { socket, headersDistinct });
    done();
  });
}
