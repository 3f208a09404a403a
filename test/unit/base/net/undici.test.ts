// Over real sockets: interim answers that nobody asked for, whole and in pieces, on connections that are used again.
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { loadUndici } from '../../../../src/base/net/undici.ts';
import { Connections } from '../../../../src/transport/http-link.ts';

const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';
const interim = (status: number) => `HTTP/1.1 ${status} Wait\r\nlink: </a>\r\n\r\n`;

/** Answers each request with the pieces, each in a packet of its own. */
async function startServer(pieces: readonly string[]) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.setNoDelay().on('error', () => {});
    let text = '';
    socket.on('data', async (piece) => {
      text += String(piece);
      if (!text.endsWith('end')) return;
      text = '';
      for (const each of pieces) {
        socket.write(each);
        await new Promise(setImmediate);
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    connections: () => sockets.size,
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

describe('an interim answer that nobody asked for', () => {
  const together = interim(100) + OK;
  it.each([
    ['100', [together]],
    ['100 in a packet of its own', [interim(100), OK]],
    ['100 byte by byte', [...together]],
    ['102', [interim(102), OK]],
    ['103 and 100', [interim(103) + interim(100) + interim(103) + OK]],
    ['100 twice', [interim(100), interim(100) + OK]],
    ['none', [OK]],
  ])('is skipped with status %s, on each request of a connection', async (_name, pieces) => {
    await using server = await startServer(pieces);
    const { Agent, request } = loadUndici();
    const dispatcher = new Agent({ connections: 1 });
    for (const body of ['first end', 'second end']) {
      const answer = await request(server.url, { method: 'POST', body, dispatcher });
      expect([answer.statusCode, await answer.body.text()]).toEqual([200, 'ok']);
    }
    expect(server.connections()).toBe(1);
    await dispatcher.destroy();
  });

  it('is skipped by fetch', async () => {
    await using server = await startServer([interim(100), OK]);
    const answer = await fetch(server.url, { method: 'POST', body: 'end' });
    expect(await answer.text()).toBe('ok');
  });

  it('is skipped by the connections of a worker', async () => {
    await using server = await startServer([interim(100), interim(103) + interim(102) + OK]);
    const limits = { max: 1, connectMs: 5_000, pauseMs: 5_000 };
    const connections = new Connections({
      url: new URL(server.url),
      tls: undefined,
      proxy: undefined,
      ...limits,
    });
    const post = { path: '/', headers: {}, body: 'end', answerMs: 5_000, signal: undefined };
    expect(await connections.post(post)).toMatchObject({ status: 200, body: Buffer.from('ok') });
    connections.close();
  });

  it('leaves bodies alone that look like one', async () => {
    const body = interim(100);
    const answers = [`HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n`, body];
    await using server = await startServer(answers);
    const { request } = loadUndici();
    const answer = await request(server.url, { method: 'POST', body: 'end' });
    expect(await answer.body.text()).toBe(body);
  });
});
