import { once } from 'node:events';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { describe, expect, it } from 'vitest';
import { CERTIFICATE, CERTIFICATE_KEY } from '../certificate.ts';
import { ENDPOINT, type Platform, startPlatform } from '../platform.ts';

/** Different at every place, so that nothing moved or lost goes unseen. */
function makeInput(length: number, seed: number): string {
  let text = '';
  for (let n = seed; text.length < length; n += 1) text += `${n},`;
  return JSON.stringify({ text });
}

function formRequest({ admin }: Platform, input: string): string {
  const body = `{"input":${input}}`;
  return [
    `POST /v2/${ENDPOINT}/run HTTP/1.1`,
    'Host: x',
    `Authorization: Bearer ${admin}`,
    'Content-Type: application/json',
    `Content-Length: ${body.length}`,
    '',
    body,
  ].join('\r\n');
}

async function countAnswers(socket: Duplex, wanted: number): Promise<void> {
  let text = '';
  while (text.split('HTTP/1.1 200').length <= wanted) {
    const [data] = await once(socket, 'data');
    text += String(data);
  }
  socket.destroy();
}

async function takeInputs({ link }: Platform, count: number): Promise<string[]> {
  const worker = { workerId: 'w1', incarnation: 1 };
  await link.hello({ ...worker, protocol: 1, version: '1', slots: 9, devices: [], outbox: [] });
  const inputs: string[] = [];
  while (inputs.length < count) {
    const take = { takeId: `${inputs.length}`, max: 9, waitMs: 2_000, held: [] };
    const leases = await link.take({ ...worker, ...take }, new AbortController().signal);
    inputs.push(...leases.map(({ input }) => Buffer.from(input).toString()));
  }
  return inputs;
}

describe('large bodies in direct succession on one connection', () => {
  it.each(['http', 'https'])('arrive as they were sent, over %s', async (scheme) => {
    const tls = { cert: CERTIFICATE, key: CERTIFICATE_KEY };
    const platform = await startPlatform(scheme === 'https' ? { server: { tls } } : {});
    const inputs = [1_500_000, 100, 1_100_000, 70_000].map((length, at) =>
      makeInput(length, at * 1_000_000),
    );
    const address = { port: platform.port, host: '127.0.0.1' };
    const socket =
      scheme === 'https' ? connectTls({ ...address, ca: CERTIFICATE }) : connect(address);
    socket.write(inputs.map((input) => formRequest(platform, input)).join(''));
    await countAnswers(socket, inputs.length);
    expect((await takeInputs(platform, inputs.length)).sort()).toEqual([...inputs].sort());
  });
});

async function exchange({ port }: Platform, text: string): Promise<string> {
  const socket = connect(port, '127.0.0.1');
  socket.write(text);
  let answer = '';
  for await (const data of socket) answer += String(data);
  return answer;
}

describe('a small body that arrives with its head', () => {
  const write = (platform: Platform, body: string, { path = 'run', length = body.length } = {}) =>
    formRequest(platform, body)
      .replace('/run ', `/${path} `)
      .replace(/Content-Length: .*/, `Content-Length: ${length}\r\nConnection: close`)
      .replace(/\{"input":.*$/s, body);

  it('is read, whatever the answer, and the connection ends as the client asked', async () => {
    const platform = await startPlatform();
    for (const [body, status] of [
      ['{"input":{"a":1}}', 200],
      ['{"input":[]}', 422],
      ['?', 400],
    ] as const) {
      const answer = await exchange(platform, write(platform, body));
      expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} [^]*\r\nconnection: close\r\n`, 'i'));
    }
    expect(await takeInputs(platform, 1)).toEqual(['{"a":1}']);
  });

  it('is not read before all of it is there', async () => {
    const platform = await startPlatform();
    const body = '{"input":{"a":"0123456789"}}';
    const text = write(platform, body);
    const socket = connect(platform.port, '127.0.0.1');
    socket.write(text.slice(0, -10));
    await once(socket, 'connect');
    await setTimeout(20);
    socket.write(text.slice(-10));
    await countAnswers(socket, 1);
    expect(await takeInputs(platform, 1)).toEqual(['{"a":"0123456789"}']);
  });

  it('may be followed by further requests', async () => {
    const platform = await startPlatform();
    const socket = connect(platform.port, '127.0.0.1');
    const inputs = ['{"a":1}', '{"a":2}', '{"a":3}'];
    socket.write(inputs.map((input) => formRequest(platform, input)).join(''));
    await countAnswers(socket, 3);
    expect((await takeInputs(platform, 3)).sort()).toEqual(inputs);
  });
});
