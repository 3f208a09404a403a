// Which connections are open and which of them have a request under way: so that an end is bounded.
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

export class Connections {
  /** With the last answer that was asked for on it. */
  readonly #open = new Map<Socket, ServerResponse | undefined>();
  /** Also those that are still agreeing on TLS. */
  readonly #sockets = new Set<Socket>();

  /** `speaksFrom`: the event from which on a connection can carry requests. */
  watch(server: Server, speaksFrom: 'connection' | 'secureConnection'): void {
    server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    server.on(speaksFrom, (socket: Socket) => {
      this.#open.set(socket, undefined);
      socket.once('close', () => this.#open.delete(socket));
    });
  }

  noteRequest(request: IncomingMessage, response: ServerResponse): void {
    this.#open.set(request.socket, response);
  }

  /** Whatever else is written to it would be read as a part of an answer, or as that to another request. */
  isAnswering(socket: Socket): boolean {
    const last = this.#open.get(socket);
    if (!last || last.writableFinished) return false;
    // Behind an answer that is not over yet, the last one has no socket.
    return last.headersSent || last.socket === null;
  }

  /**
   * Node's own closeIdleConnections spares those that have not sent anything yet, and clients open
   * such in advance.
   */
  closeIdle(): void {
    for (const [socket, response] of this.#open) {
      if (!response || (response.writableFinished && !isUpgraded(response))) socket.destroy();
    }
  }

  closeAll(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}

/** Its answer was the beginning of what it is there for. */
function isUpgraded({ statusCode }: ServerResponse): boolean {
  return statusCode === 101;
}
