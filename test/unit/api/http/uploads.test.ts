// Clients that are slow to send, over real sockets: how much they may hold, and how long.
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { setImmediate, setTimeout } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import {
  ENDPOINT,
  type Platform,
  readJson,
  startPlatform,
  takeJob,
} from '../../../support/api/platform.ts';
import { type Client, MB, openClient, writeHead } from '../../../support/api/slow-client.ts';
import { until } from '../../../support/until.ts';

/** A runsync body of that many bytes. */
function writeBody(bytes: number): Buffer {
  const frame = '{"input":{"a":""}}'.length;
  return Buffer.from(`{"input":{"a":"${'x'.repeat(bytes - frame)}"}}`);
}

/** Begins an upload and does not go on with it. */
function sendHalf(platform: Platform, bytes: number): Client {
  const client = openClient(platform);
  client.socket.write(writeHead(platform, { bytes }));
  client.socket.write(writeBody(bytes).subarray(0, bytes / 2));
  return client;
}

/** Bytes that the server has received on the connection of the next request. */
function watchReceived(): () => number {
  let socket: Socket | undefined;
  const note = (message: unknown) => {
    socket ??= (message as { request: IncomingMessage }).request.socket;
  };
  subscribe('http.server.request.start', note);
  onTestFinished(() => void unsubscribe('http.server.request.start', note));
  return () => socket?.bytesRead ?? 0;
}

/** Small bounds, so that little has to be sent. */
const SMALL = {
  ...{ maxInFlightBytes: 4 * MB, maxUserInFlightBytes: 4 * MB, inFlightWaitMs: 5_000 },
};

describe('uploads that stall', () => {
  it('hold at most the budget, and the others get Retry-After', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock, server: { bounds: SMALL } });
    const clients = Array.from({ length: 20 }, () => sendHalf(platform, MB));
    await until(() => platform.flows.usedBytes === 4 * MB);
    const count = () => clients.filter(({ text }) => text().startsWith('HTTP/1.1 503')).length;
    while (count() < 16) {
      await clock.advance(5_000);
      await setImmediate();
      expect(platform.flows.usedBytes).toBeLessThanOrEqual(4 * MB);
    }
    const [refused] = clients.filter(({ text }) => text() !== '');
    expect(refused?.text()).toMatch(/retry-after: 5\r\n/i);
    expect(refused?.text()).toContain('application/problem+json');
  });

  it('end with 408 after the stall, and their bytes are free', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock, server: { bounds: SMALL } });
    const client = sendHalf(platform, MB);
    await until(() => platform.flows.usedBytes === MB);
    await clock.advance(29_000);
    expect(client.text()).toBe('');
    await clock.advance(5_000);
    await until(() => client.text() !== '');
    expect(client.text()).toMatch(/^HTTP\/1.1 408 /);
    expect(client.text()).toContain('"code":"request_timeout"');
    expect(platform.flows.usedBytes).toBe(0);
  });

  it('have the whole time again after they continued', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock, server: { bounds: SMALL } });
    const received = watchReceived();
    const client = openClient(platform);
    const head = writeHead(platform, { bytes: MB });
    client.socket.write(head);
    for (const sent of [100_000, 200_000]) {
      await clock.advance(20_000);
      client.socket.write(Buffer.alloc(100_000));
      await until(() => received() >= head.length + sent);
    }
    await clock.advance(29_000);
    expect(client.text()).toBe('');
    await clock.advance(4_000);
    await until(() => client.text() !== '');
    expect(client.text()).toMatch(/^HTTP\/1.1 408 /);
  });

  it('free their bytes when their client disconnects', async () => {
    const platform = await startPlatform({ server: { bounds: SMALL } });
    const clients = Array.from({ length: 6 }, () => sendHalf(platform, MB));
    await until(() => platform.flows.usedBytes === 4 * MB);
    for (const { socket } of clients) socket.destroy();
    await until(() => platform.flows.usedBytes === 0);
  });

  it('hold nothing once they are dropped while they wait for budget', async () => {
    const clock = new ManualClock();
    const bounds = { ...SMALL, maxInFlightBytes: 100_000, inFlightWaitMs: 600_000 };
    const platform = await startPlatform({ clock, server: { bounds } });
    const client = openClient(platform);
    client.socket.write(writeHead(platform, { headers: ['Transfer-Encoding: chunked'] }));
    const piece = writeBody(20_000);
    const write = () => client.socket.write(`${piece.length.toString(16)}\r\n${piece}\r\n`);
    for (const claimed of [16_384, 49_152]) {
      write();
      await until(() => platform.flows.usedBytes === claimed);
    }
    // The next claim of 64 KB waits until the upload is dropped, which frees enough for that claim.
    while (client.text() === '') {
      write();
      await clock.advance(1_000);
      await setTimeout(4);
    }
    expect(client.text()).toMatch(/^HTTP\/1.1 503 /);
    await until(() => platform.flows.usedBytes === 0);
  });

  it('hold nothing without a valid key', async () => {
    const platform = await startPlatform({ server: { bounds: SMALL } });
    const client = openClient(platform);
    const head = writeHead({ ...platform, admin: 'mr_nobody' }, { bytes: MB });
    client.socket.write(head);
    await until(() => client.text() !== '');
    expect(client.text()).toMatch(/^HTTP\/1.1 401 /);
    expect(platform.flows.usedBytes).toBe(0);
  });
});

describe('an honest upload', () => {
  it('succeeds if it is slow but steady, however long it takes', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock, server: { bounds: SMALL } });
    const received = watchReceived();
    const client = openClient(platform);
    const body = writeBody(600_000);
    const head = writeHead(platform, { bytes: body.length });
    client.socket.write(head);
    for (let at = 0; at < body.length; at += 60_000) {
      const piece = body.subarray(at, at + 60_000);
      client.socket.write(piece);
      await until(() => received() >= head.length + at + piece.length);
      await clock.advance(25_000);
    }
    const job = await takeJob(platform);
    await job.complete('7');
    await until(() => client.text() !== '');
    expect(client.text()).toMatch(/^HTTP\/1.1 200 /);
  });

  it('is counted as it grows if its length is unknown', async () => {
    const platform = await startPlatform({ server: { bounds: SMALL } });
    const client = openClient(platform);
    const body = writeBody(900_000);
    client.socket.write(writeHead(platform, { headers: ['Transfer-Encoding: chunked'] }));
    const sendChunk = (piece: Buffer) => {
      client.socket.write(`${piece.length.toString(16)}\r\n`);
      client.socket.write(piece);
      client.socket.write('\r\n');
    };
    sendChunk(body.subarray(0, 500_000));
    await until(() => platform.flows.usedBytes >= 480_000);
    expect(platform.flows.usedBytes).toBeLessThan(MB);
    sendChunk(body.subarray(500_000));
    client.socket.write('0\r\n\r\n');
    const job = await takeJob(platform);
    await job.complete('7');
    await until(() => client.text() !== '');
    expect(client.text()).toMatch(/^HTTP\/1.1 200 /);
  });

  it('may come in small chunks, unless these are many and tiny', async () => {
    const platform = await startPlatform();
    const send = (bytes: number, chunkBytes: number) => {
      const client = openClient(platform);
      const text = writeBody(bytes).toString();
      client.socket.write(writeHead(platform, { headers: ['Transfer-Encoding: chunked'] }));
      for (let at = 0; at < text.length; at += chunkBytes) {
        const chunk = text.slice(at, at + chunkBytes);
        client.socket.write(`${chunk.length.toString(16)}\r\n${chunk}\r\n`);
      }
      client.socket.write('0\r\n\r\n');
      return client;
    };
    const few = send(3_000, 1);
    await (await takeJob(platform)).complete('7');
    const larger = send(200_000, 40);
    await (await takeJob(platform)).complete('7');
    const tiny = send(20_000, 1);
    await until(() => [few, larger, tiny].every(({ text }) => text() !== ''));
    const statuses = [few, larger, tiny].map(({ text }) => text().slice(9, 12));
    expect(statuses).toEqual(['200', '200', '400']);
    await tiny.closed;
  });

  it('is no longer counted while its job runs', async () => {
    const platform = await startPlatform({ server: { bounds: SMALL } });
    const answers = Array.from({ length: 6 }, () =>
      platform.post(`/v2/${ENDPOINT}/runsync`, writeBody(MB).toString()),
    );
    for (const _ of answers) await (await takeJob(platform)).complete('7');
    for (const answer of answers) expect((await answer).status).toBe(200);
    expect(platform.flows.usedBytes).toBe(0);
  });

  it('is served beside half-sent ones of another user', async () => {
    const bounds = { ...SMALL, maxUserInFlightBytes: 2 * MB };
    const platform = await startPlatform({ server: { bounds } });
    for (let n = 0; n < 10; n += 1) sendHalf(platform, MB);
    await until(() => platform.flows.usedBytes === 2 * MB);
    const { key } = await platform.keys.issue({ name: 'b', userId: 'other', scopes: ['admin'] });
    const env = { A: 'x'.repeat(100_000) };
    const response = await platform.post(
      '/v1/templates',
      { name: 'n', image: 'i', env },
      {
        headers: { authorization: key },
      },
    );
    expect(response.status).toBe(201);
  });
});

describe('a body with an unsupported encoding', () => {
  it.each([
    ['Content-Encoding: gzip', 415, 'Content-Encoding'],
    ['Content-Type: application/json; charset=latin1', 415, 'charset'],
  ])('is refused because of %s with %i', async (header, status, part) => {
    const platform = await startPlatform();
    const [name = '', value = ''] = header.split(': ');
    const response = await platform.post(
      `/v2/${ENDPOINT}/run`,
      { input: {} },
      {
        headers: { [name.toLowerCase()]: value },
      },
    );
    expect(response.status).toBe(status);
    expect((await readJson(response))['detail']).toContain(part);
  });

  it.each(['identity', ''])('is accepted with Content-Encoding %j', async (coding) => {
    const platform = await startPlatform();
    const headers = {
      'content-encoding': coding,
      'content-type': 'application/json; charset="UTF-8"',
    };
    const response = await platform.post(`/v2/${ENDPOINT}/run`, { input: {} }, { headers });
    expect(response.status).toBe(200);
  });
});

describe('a client that sends Expect: 100-continue', () => {
  const waiting = (platform: Platform, bytes: number) =>
    writeHead(platform, { bytes, headers: ['Expect: 100-continue'] });

  it('gets 100 Continue, and its request is served', async () => {
    const platform = await startPlatform();
    const client = openClient(platform);
    client.socket.write(waiting(platform, 12));
    await once(client.socket, 'data');
    expect(client.text()).toBe('HTTP/1.1 100 Continue\r\n\r\n');
    client.socket.write('{"input":{}}');
    await (await takeJob(platform)).complete('7');
    await until(() => client.text().includes('HTTP/1.1 200 OK'));
  });

  it.each([
    [401, (platform: Platform) => waiting({ ...platform, admin: 'mr_nobody' }, 12)],
    [413, (platform: Platform) => waiting(platform, 30 * MB)],
    [415, (platform: Platform) => waiting(platform, 12).replace('application/json', 'text/plain')],
  ])('is refused with %i before it sends any of its body', async (status, compose) => {
    const platform = await startPlatform();
    const client = openClient(platform);
    client.socket.write(compose(platform));
    await client.closed;
    expect(client.text()).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(client.text()).not.toContain('100 Continue');
  });
});

describe('an upload that is refused before it is read', () => {
  it.each([
    [413, (platform: Platform) => writeHead(platform, { bytes: 22 * MB })],
    [
      415,
      (platform: Platform) =>
        writeHead(platform, { bytes: 12 * MB, headers: ['Content-Encoding: br'] }),
    ],
  ])(
    'gives the answer %i also to a client that sends everything first',
    async (status, compose) => {
      const platform = await startPlatform();
      const client = openClient(platform);
      client.socket.write(compose(platform));
      client.socket.write(Buffer.alloc(12 * MB));
      await until(() => client.text() !== '');
      expect(client.text()).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
      await setTimeout(50);
      expect(client.socket.errored).toBeNull();
    },
  );
});
