// A node of a test: an HTTP server that answers what the test says, and no pings.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { onTestFinished } from 'vitest';

export async function startFake() {
  let listener: RequestListener = () => {};
  const server = createServer((request, response) => {
    if (request.url?.startsWith('/node/')) return;
    listener(request, response);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const close = async () => {
    server.closeAllConnections();
    if (server.listening) await new Promise((resolve) => server.close(resolve));
  };
  onTestFinished(close);
  const answer = (next: RequestListener) => {
    listener = next;
  };
  return { url: `http://127.0.0.1:${port}`, answer, close };
}

/** Sends the request to a real node, headers between nodes included. @returns the status of the answer */
export async function passOn(request: IncomingMessage, nodeUrl: string): Promise<number> {
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) {
    const isOwn = ['connection', 'content-length', 'expect', 'host', 'transfer-encoding'];
    if (!isOwn.includes(name)) headers.set(name, String(value));
  }
  const { method = '', url = '' } = request;
  const body = Buffer.from(await buffer(request));
  const answer = await fetch(nodeUrl + url, {
    ...{ method, headers },
    ...(body.length > 0 && { body }),
  });
  await answer.arrayBuffer();
  return answer.status;
}
