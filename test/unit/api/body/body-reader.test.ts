import { randomBytes } from 'node:crypto';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { fastify } from 'fastify';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createBodyReader } from '../../../../src/api/body/body-reader.ts';
import { DEFAULT_BOUNDS } from '../../../../src/api/limits/bounds.ts';
import { noteExchange } from '../../../../src/api/limits/exchanges.ts';
import { Flows } from '../../../../src/api/limits/flows.ts';
import { ManualClock } from '../../../../src/base/clock.ts';
import type { Store } from '../../../../src/store/store.ts';
import { encodeFrames, FRAMES_MEDIA_TYPE } from '../../../../src/wire/link/http-form.ts';
import { ENDPOINT, type Platform, readJson, startPlatform } from '../../../support/api/platform.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../../../support/certificates.ts';
import { until } from '../../../support/until.ts';
import { packProject } from '../../../support/version-project.ts';

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

/** Delays writes from `stop` on until `go`. */
class StoppableStore {
  #going: Promise<void> = Promise.resolve();
  /** Writes that were requested since `stop`. */
  requested = 0;
  go = () => {};

  stop(): void {
    this.requested = 0;
    this.#going = new Promise((resolve) => {
      this.go = resolve;
    });
  }

  readonly wrap = (store: Store): Store => ({
    read: (operation) => store.read(operation),
    write: async (operation, options) => {
      this.requested++;
      await this.#going;
      return store.write(operation, options);
    },
    reclaim: (pages) => store.reclaim(pages),
    close: () => store.close(),
  });
}

/** Resolves when the response to the next request has closed. */
function untilNextCloses(): Promise<void> {
  return new Promise((resolve) => {
    const channel = 'http.server.request.start';
    const note = (message: unknown) => {
      unsubscribe(channel, note);
      (message as { response: ServerResponse }).response.once('close', () => resolve());
    };
    subscribe(channel, note);
    onTestFinished(() => void unsubscribe(channel, note));
  });
}

const INPUT = makeInput(600_000, 1);
const SUBMISSION = `{"input":${INPUT}}`;
const REPORTS = Buffer.concat(
  encodeFrames([
    {
      header: {
        ...{ jobId: 'j', attempt: 1, token: 't', seq: 1, kind: 'outcome' },
        outcome: { kind: 'completed', executionMs: 1, output: 'value' },
      },
      body: Buffer.from(INPUT),
    },
    {
      header: {
        ...{ jobId: 'k', attempt: 1, token: 't', seq: 1, kind: 'progress' },
      },
      body: Buffer.from('1'),
    },
  ]),
);

describe('the body of a client that disconnects while the store is slow', () => {
  const json = 'Content-Type: application/json';
  it.each([
    ['run', `/v2/${ENDPOINT}/run`, [json], SUBMISSION],
    ['runsync', `/v2/${ENDPOINT}/runsync`, [json], SUBMISSION],
    ['run of RunPod', `/runpod/v2/${ENDPOINT}/run`, [json], SUBMISSION],
    [
      'a report',
      `/v2/${ENDPOINT}/worker/report`,
      [`Content-Type: ${FRAMES_MEDIA_TYPE}`, 'Millrace-Worker: w1', 'Millrace-Incarnation: 1'],
      REPORTS,
    ],
  ])('counts until it is stored or refused: %s', async (_name, path, headers, body) => {
    const store = new StoppableStore();
    const platform = await startPlatform({ wrapStore: store.wrap });
    await takeInputs(platform, 0);
    await expectCounted(platform, store, { path, headers, body: Buffer.from(body) });
  });

  it('counts until it is stored or refused: a version of a handler', async () => {
    const store = new StoppableStore();
    const platform = await startPlatform({ engine: 'process', wrapStore: store.wrap });
    const create = async (path: string, body: object) =>
      (await readJson(await platform.post(path, body)))['id'];
    const templateId = await create('/v1/templates', { name: 't', image: 'i' });
    const settings = { name: 'e', templateId, source: 'VERSION' };
    const endpoint = await create('/v1/endpoints', settings);
    const data = randomBytes(100_000).toString('base64');
    const { bytes: body } = await packProject({ 'handler.ts': 'export default 1;', data });
    const path = `/v1/endpoints/${endpoint}/versions?entry=handler.ts`;
    await expectCounted(platform, store, {
      path,
      headers: ['Content-Type: application/gzip'],
      body,
    });
  });
});

interface SentBody {
  path: string;
  headers: string[];
  body: Buffer;
}

async function expectCounted(
  platform: Platform,
  store: StoppableStore,
  { body, headers, path }: SentBody,
) {
  store.stop();
  // Runs before the platform closes, even if the test has failed.
  onTestFinished(() => store.go());
  const closed = untilNextCloses();
  const socket = connect(platform.port, '127.0.0.1');
  const key = path.includes('worker') ? platform.worker : platform.admin;
  const head = [`POST ${path} HTTP/1.1`, 'Host: x', `Authorization: Bearer ${key}`, ...headers];
  socket.write(`${head.join('\r\n')}\r\nContent-Length: ${body.length}\r\n\r\n`);
  socket.write(body);
  await until(() => platform.flows.usedBytes > 0);
  await until(() => store.requested > 0);
  socket.destroy();
  await closed;
  expect(platform.flows.usedBytes).toBe(body.length);
  store.go();
  await until(() => platform.flows.usedBytes === 0);
}

/** A server whose bodies wait for `turn`, and a client that has sent the body of a request after its head. */
async function sendBehindHead(body: string) {
  const events: string[] = [];
  const turn = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  const app = fastify();
  onTestFinished(() => app.close());
  const clock = new ManualClock();
  const flows = new Flows({ ...DEFAULT_BOUNDS, clock });
  const readBody = createBodyReader({
    ...{ stallMs: 60_000, clock, flows },
    schedule() {
      events.push('asked for a turn');
      asked.resolve();
      return turn.promise;
    },
  });
  app.server.prependListener('request', noteExchange);
  app.addContentTypeParser('application/test', { bodyLimit: body.length }, readBody);
  app.post('/', { bodyLimit: body.length }, (_request, reply) => {
    events.push('served');
    return reply.send('done');
  });
  const { port } = new URL(await app.listen({ port: 0, host: '127.0.0.1' }));
  const socket = connect(Number(port), '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  const head = `Host: x\r\nContent-Type: application/test\r\nContent-Length: ${body.length}\r\n`;
  const began = once(app.server, 'request');
  socket.write(`POST / HTTP/1.1\r\n${head}\r\n`);
  const [, response] = await began;
  const closed = once(response, 'close');
  socket.write(body);
  await asked.promise;
  return { closed, events, flows, socket, turn };
}

it('makes a body that arrives after its head wait', async () => {
  const { events, socket, turn } = await sendBehindHead('{}');
  expect(events).toEqual(['asked for a turn']);
  turn.resolve();
  const [answer] = await once(socket, 'data');
  expect(String(answer)).toContain('200 OK');
  expect(events).toEqual(['asked for a turn', 'served']);
});

it('counts a body that waits, and does not serve it if its client leaves', async () => {
  const body = 'x'.repeat(2_000_000);
  const { closed, events, flows, socket, turn } = await sendBehindHead(body);
  socket.destroy();
  await closed;
  expect(flows.clients.usedBytes).toBe(body.length);
  turn.resolve();
  await until(() => flows.clients.usedBytes === 0);
  expect(events).toEqual(['asked for a turn']);
});
