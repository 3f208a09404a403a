import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Fault, TcpProxy } from '../../support/network/tcp-proxy.ts';
import { until } from '../../support/until.ts';

/** Answers each piece it gets with `<piece>!`, and keeps what it got and how connections ended. */
let server: Server;
let got: string[];
let serverSockets: Socket[];
let proxy: TcpProxy;
let clients: Client[];

beforeEach(async () => {
  got = [];
  serverSockets = [];
  clients = [];
  server = createServer((socket) => {
    serverSockets.push(socket);
    socket.on('error', () => undefined);
    socket.on('data', (piece) => {
      got.push(String(piece));
      socket.write(`${piece}!`);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  proxy = await TcpProxy.start(`http://127.0.0.1:${port}`);
});

afterEach(async () => {
  for (const { socket } of clients) socket.destroy();
  await proxy.close();
  for (const socket of serverSockets) socket.destroy();
  server.close();
});

interface Client {
  socket: Socket;
  /** Sends a request. */
  send: (text: string) => void;
  /** What came back, when there is as much. */
  receive: (length: number) => Promise<string>;
  /** All that came until the connection ended, and how it did. */
  ended: Promise<{ text: string; code?: string }>;
}

async function open(): Promise<Client> {
  const socket = connect(Number(new URL(proxy.url).port), '127.0.0.1');
  let text = '';
  let code: string | undefined;
  socket.on('data', (piece) => {
    text += String(piece);
  });
  socket.on('error', (error: NodeJS.ErrnoException) => {
    code = error.code;
  });
  const ended = once(socket, 'close').then(
    () => ({ text, ...(code && { code }) }),
    () => ({ text, ...(code && { code }) }),
  );
  const receive = async (length: number) => {
    while (text.length < length) await once(socket, 'data');
    return text;
  };
  await once(socket, 'connect');
  const client = { socket, send: (piece: string) => void socket.write(piece), receive, ended };
  clients.push(client);
  return client;
}

function strikeOnce(fault: Fault): void {
  let left = 1;
  proxy.weather = () => (left-- > 0 ? fault : undefined);
}

describe('a proxy without faults', () => {
  it('passes several exchanges of one connection', async () => {
    const client = await open();
    client.send('one');
    await client.receive(4);
    client.send('two');
    expect(await client.receive(8)).toBe('one!two!');
    expect([proxy.exchanges, proxy.struck]).toEqual([2, 0]);
  });

  it('passes an end on', async () => {
    const client = await open();
    client.send('one');
    await client.receive(4);
    client.socket.end();
    expect(await client.ended).toEqual({ text: 'one!' });
  });
});

describe('a proxy with faults', () => {
  it('cuts in the middle of a request, with a reset', async () => {
    strikeOnce({ kind: 'cut', direction: 'request', afterBytes: 2 });
    const client = await open();
    client.send('first');
    expect(await client.ended).toEqual({ text: '', code: 'ECONNRESET' });
    expect(got.join('')).not.toBe('first');
    expect(proxy.struck).toBe(1);
  });

  it('cuts in the middle of an answer, with a reset', async () => {
    strikeOnce({ kind: 'cut', direction: 'answer', afterBytes: 2 });
    const client = await open();
    client.send('first');
    expect((await client.ended).code).toBe('ECONNRESET');
    expect(got).toEqual(['first']);
  });

  it('never passes all of a truncated message', async () => {
    strikeOnce({ kind: 'truncated', afterBytes: 600 });
    const client = await open();
    client.send('first');
    expect(await client.ended).toEqual({ text: 'first' });
  });

  it('ends a truncated answer properly', async () => {
    strikeOnce({ kind: 'truncated', afterBytes: 3 });
    const client = await open();
    client.send('first');
    expect(await client.ended).toEqual({ text: 'fir' });
    expect(got).toEqual(['first']);
  });

  it('loses an answer after the server has acted', async () => {
    strikeOnce({ kind: 'answer-lost' });
    const client = await open();
    client.send('first');
    expect((await client.ended).text).toBe('');
    expect(got).toEqual(['first']);
  });

  it('passes nothing over a half-open connection in either direction, not even its end', async () => {
    strikeOnce({ kind: 'half-open', direction: 'answer', afterBytes: 2 });
    const client = await open();
    client.send('first');
    expect(await client.receive(2)).toBe('fi');
    client.send('second');
    client.socket.end();
    // Another connection goes through the same proxy later and is through before.
    const other = await open();
    other.send('other');
    await other.receive(6);
    expect(got).toEqual(['first', 'other']);
    expect(serverSockets.map((socket) => socket.readableEnded)).toEqual([false, false]);
  });

  it('gives a slow connection its bytes in slices', async () => {
    const request = 'so much takes many slices, too many to be seen as one piece';
    strikeOnce({ kind: 'slow', bytesPerSecond: 150 });
    const client = await open();
    client.send(request);
    await until(() => got.join('') === request);
    expect(got.length).toBeGreaterThan(1);
    expect(proxy.struck).toBe(1);
  });

  it('delays a connection while others pass', async () => {
    strikeOnce({ kind: 'held', direction: 'request', behind: 2, maxMs: 60_000 });
    const held = await open();
    held.send('held');
    await until(() => proxy.struck > 0);
    for (const text of ['one', 'two']) {
      const other = await open();
      other.send(text);
      await other.receive(4);
    }
    expect(await held.receive(5)).toBe('held!');
    // The second that passes releases it: the two arrive in either order.
    expect(got[0]).toBe('one');
    expect(got.toSorted()).toEqual(['held', 'one', 'two']);
  });

  it('delays an answer while the server answers others', async () => {
    strikeOnce({ kind: 'held', direction: 'answer', behind: 2, maxMs: 60_000 });
    const held = await open();
    held.send('held');
    await until(() => proxy.struck > 0);
    expect(got).toEqual(['held']);
    const answered: string[] = [];
    const arrival = held.receive(5).then((text) => answered.push(text));
    for (const text of ['one', 'two']) {
      const other = await open();
      other.send(text);
      answered.push(await other.receive(4));
    }
    await arrival;
    expect(answered[0]).toBe('one!');
    expect(answered).toContain('held!');
  });

  it('delivers a delayed message although its client has disconnected', async () => {
    strikeOnce({ kind: 'held', direction: 'request', behind: 1, maxMs: 60_000 });
    const held = await open();
    held.send('held');
    await until(() => proxy.struck > 0);
    held.socket.destroy();
    const other = await open();
    other.send('other');
    await other.receive(6);
    await until(() => got.length >= 2);
    expect(got.toSorted()).toEqual(['held', 'other']);
  });
});
