import { once } from 'node:events';
import { Agent, type IncomingMessage } from 'node:http';
import { connect as openSocket } from 'node:net';
import type { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import {
  type BalancedPlatform,
  readAnswer,
  startBalanced,
} from '../../../support/api/balanced-platform.ts';
import { exchange } from '../../../support/api/platform.ts';

/** A worker that speaks WebSocket and sends back what it gets. */
async function addEcho(platform: BalancedPlatform, podId?: string) {
  const worker = await platform.addWorker((_request, response) => response.end('plain'), podId);
  const sockets = new WebSocketServer({ server: worker.server });
  sockets.on('connection', (socket) => {
    socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
  });
  return { ...worker, sockets };
}

function connect(platform: BalancedPlatform, path = '/', headers: object = {}): WebSocket {
  const url = `ws://127.0.0.1:${platform.port}${platform.base}${path}`;
  return new WebSocket(url, { headers: { authorization: platform.admin, ...headers } });
}

/** The head of a request that asks for another protocol. */
function askFor(protocol: string, platform: BalancedPlatform, path = platform.base): string {
  return [
    `GET ${path} HTTP/1.1`,
    'Host: x',
    `Authorization: ${platform.admin}`,
    'Connection: upgrade',
    `Upgrade: ${protocol}`,
    '\r\n',
  ].join('\r\n');
}

describe('a WebSocket to a load-balancing endpoint', () => {
  it('carries text and bytes in both directions', async () => {
    const platform = await startBalanced();
    const { sockets } = await addEcho(platform);
    const requests: IncomingMessage[] = [];
    sockets.on('connection', (_socket, request) => requests.push(request));
    const socket = connect(platform, '/chat?room=1');
    await once(socket, 'open');
    socket.send('hello');
    expect(String((await once(socket, 'message'))[0])).toBe('hello');
    const bytes = Buffer.alloc(3_000_000, 7);
    socket.send(bytes);
    expect(bytes.equals((await once(socket, 'message'))[0])).toBe(true);
    expect(requests[0]?.url).toBe('/chat?room=1');
    expect(requests[0]?.headers).not.toHaveProperty('authorization');
    socket.close();
    await once(socket, 'close');
  });

  it('counts as a request while it is open', async () => {
    const platform = await startBalanced();
    const { sockets } = await addEcho(platform);
    const socket = connect(platform);
    await once(socket, 'open');
    const load = () => platform.balancer?.load(platform.endpointId);
    expect(await load()).toMatchObject({ running: 1, workers: [{ jobs: 1 }] });
    const [atWorker] = sockets.clients;
    socket.close();
    await once(socket, 'close');
    if (atWorker && atWorker.readyState !== WebSocket.CLOSED) await once(atWorker, 'close');
    await expect.poll(async () => (await load())?.running).toBe(0);
  });

  it('ends when the worker or the client ends it', async () => {
    const platform = await startBalanced();
    const { sockets } = await addEcho(platform);
    const first = connect(platform);
    await once(first, 'open');
    const firstClosed = once(first, 'close');
    for (const socket of sockets.clients) socket.terminate();
    await firstClosed;
    const connected = once(sockets, 'connection');
    const second = connect(platform);
    const [[atWorker]] = await Promise.all([connected, once(second, 'open')]);
    const closed = once(atWorker, 'close');
    second.terminate();
    await closed;
  });

  it('needs a key like every request', async () => {
    const platform = await startBalanced();
    await addEcho(platform);
    const { key } = await platform.keys.issue({ name: 'k', scopes: ['jobs:read'] });
    for (const [authorization, status] of [
      ['mr_no', 401],
      [key, 403],
    ] as const) {
      const socket = connect(platform, '/', { authorization });
      socket.on('error', () => {});
      const [, answer] = await once(socket, 'unexpected-response');
      expect(answer.statusCode).toBe(status);
      expect(answer.headers['content-type']).toBe('application/problem+json');
      socket.terminate();
    }
  });

  it('waits for a worker like every request', async () => {
    const platform = await startBalanced();
    const socket = connect(platform);
    await platform.untilWaiting(1);
    await addEcho(platform);
    await once(socket, 'open');
    socket.terminate();
  });

  it('is abandoned if its client disconnects while it waits', async () => {
    const platform = await startBalanced();
    const socket = openSocket(platform.port, '127.0.0.1');
    socket.write(askFor('websocket', platform));
    await platform.untilWaiting(1);
    socket.end();
    const load = () => platform.balancer?.load(platform.endpointId);
    await expect.poll(async () => (await load())?.running).toBe(0);
    expect(platform.logged()).toBe('');
  });

  it('is aborted at the worker if its client disconnects before the worker accepts', async () => {
    const platform = await startBalanced();
    const worker = await platform.addWorker(() => {});
    const asked = once(worker.server, 'upgrade');
    const socket = openSocket(platform.port, '127.0.0.1');
    socket.write(askFor('websocket', platform));
    const [, atWorker] = await asked;
    const ended = once(atWorker.resume(), 'end');
    socket.end();
    await ended;
    atWorker.destroy();
  });

  it('gets its answer if a worker does not accept it, and closes the connection', async () => {
    const platform = await startBalanced();
    await platform.addWorker((_request, response) => {
      response.writeHead(426, { 'content-type': 'text/plain' }).end('no such thing');
    });
    const answer = await exchange(platform.port, [askFor('websocket', platform)]);
    expect(answer).toMatch(/^HTTP\/1.1 426[\s\S]*connection: close[\s\S]*no such thing/i);
  });

  it('is closed when the platform has waited long enough for its end', async () => {
    const platform = await startBalanced({ server: { closeMs: 50 } });
    await addEcho(platform);
    const socket = connect(platform);
    await once(socket, 'open');
    const closed = once(socket, 'close');
    await platform.close();
    await closed;
  });

  it('continues while the platform waits for its end', async () => {
    const platform = await startBalanced({ server: { closeMs: 60_000 } });
    await addEcho(platform);
    const socket = connect(platform);
    await once(socket, 'open');
    const closed = platform.close();
    await expect.poll(() => platform.queue.isClosing).toBe(true);
    socket.send('still here');
    expect(String((await once(socket, 'message'))[0])).toBe('still here');
    socket.close();
    await closed;
  });
});

describe('a protocol other than HTTP', () => {
  it('is carried unchanged, with the bytes sent in advance', async () => {
    const platform = await startBalanced();
    const worker = await platform.addWorker((_request, response) => response.end());
    worker.server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      socket.write(`HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n`);
      socket.write(`${request.headers.upgrade}:`);
      socket.write(head);
      socket.pipe(socket);
    });
    const answer = await exchange(
      platform.port,
      [askFor('echo', platform), 'one ', 'two'],
      (seen) => seen.endsWith('two'),
    );
    expect(answer).toMatch(/^HTTP\/1.1 101[\s\S]*upgrade: echo[\s\S]*\r\n\r\necho:one two$/i);
  });

  it('carries all bytes that were sent while it waited for a worker', async () => {
    const platform = await startBalanced();
    const ahead = 'x'.repeat(300_000);
    const head = askFor('echo', platform);
    const answer = exchange(platform.port, [head, ahead, 'end'], (seen) => seen.endsWith('end'));
    await platform.untilWaiting(1);
    const worker = await platform.addWorker(() => {});
    worker.server.on('upgrade', (_request, socket: Duplex, sentAhead: Buffer) => {
      socket.write('HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n');
      socket.write(sentAhead);
      socket.pipe(socket);
    });
    expect((await answer).split('\r\n\r\n')[1]).toBe(`${ahead}end`);
  });

  it('is ignored on other routes, and the request is answered', async () => {
    const platform = await startBalanced();
    const head = askFor('websocket', platform, '/healthz').replace(
      'upgrade\r\n',
      'upgrade, close\r\n',
    );
    expect(await exchange(platform.port, [head])).toMatch(/^HTTP\/1.1 200/);
  });

  it('is ignored if it is HTTP/2, and the worker gets the request unchanged', async () => {
    const platform = await startBalanced();
    await platform.addWorker((request, response) =>
      response.end(request.headers.upgrade ?? 'none'),
    );
    const head = askFor('h2c', platform).replace('upgrade\r\n', 'upgrade, close\r\n');
    expect(await exchange(platform.port, [head])).toMatch(/^HTTP\/1.1 200[\s\S]*none/);
  });

  it('is refused with CONNECT', async () => {
    const { port } = await startBalanced();
    const answer = await exchange(port, ['CONNECT other.example:443 HTTP/1.1\r\nHost: x\r\n\r\n']);
    expect(answer).toMatch(/^HTTP\/1.1 400[\s\S]*application\/problem\+json/);
  });

  it('may be requested on a connection that has carried other requests', async () => {
    const platform = await startBalanced();
    await addEcho(platform);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const sent = platform.open('/plain', { agent });
    sent.end();
    const answer = await readAnswer(sent);
    await text(answer);
    await nextTurn();
    const key = 'dGhlIHNhbXBsZSBub25jZQ==';
    const asking = { connection: 'upgrade', upgrade: 'websocket' };
    const headers = { ...asking, 'sec-websocket-key': key, 'sec-websocket-version': '13' };
    const upgrade = platform.open('/', { agent, headers });
    upgrade.end();
    const [, socket] = await once(upgrade, 'upgrade');
    expect(upgrade.reusedSocket).toBe(true);
    socket.destroy();
  });
});

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
