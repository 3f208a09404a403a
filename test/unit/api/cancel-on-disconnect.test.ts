// Calls that cancel their job when their connection ends, over real sockets.
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { ENDPOINT, type Platform, startPlatform, takeJob } from '../../support/api/platform.ts';
import { until } from '../../support/until.ts';

function send({ admin, port }: Platform, line: string, body = '', headers = ''): Socket {
  const socket = connect({ port, host: '127.0.0.1' });
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {});
  socket.write(
    `${line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${admin}\r\nContent-Type: application/json\r\n` +
      `${headers}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
  return socket;
}

async function readStatus(platform: Platform, id: string): Promise<string> {
  const answer: unknown = await (await platform.call(`/v2/${ENDPOINT}/status/${id}`)).json();
  return typeof answer === 'object' && answer && 'status' in answer ? String(answer.status) : '';
}

const untilStatus = (platform: Platform, id: string, status: string) =>
  until(async () => (await readStatus(platform, id)) === status);

const RUNSYNC = `POST /v2/${ENDPOINT}/runsync`;

it('cancels the job of a runsync whose client has gone, if the client asked for it', async () => {
  const platform = await startPlatform();
  const socket = send(platform, `${RUNSYNC}?cancelOnDisconnect=true`, '{"input":{}}');
  const { id } = await takeJob(platform);
  socket.destroy();
  await untilStatus(platform, id, 'CANCELLED');
});

it('lets the job go on otherwise', async () => {
  const platform = await startPlatform();
  const plain = send(platform, RUNSYNC, '{"input":{}}');
  const first = await takeJob(platform);
  const asked = send(platform, `${RUNSYNC}?cancelOnDisconnect=true`, '{"input":{}}');
  const second = await takeJob(platform);
  plain.destroy();
  asked.destroy();
  // The later one is cancelled: the platform has seen that both have gone.
  await untilStatus(platform, second.id, 'CANCELLED');
  expect(await readStatus(platform, first.id)).toBe('IN_PROGRESS');
});

it('cancels the job of a stream that its client leaves', async () => {
  const platform = await startPlatform();
  await platform.post(`/v2/${ENDPOINT}/run`, { input: {} });
  const { id } = await takeJob(platform);
  const path = `GET /v2/${ENDPOINT}/stream/${id}?cancelOnDisconnect=true`;
  const socket = send(platform, path, '', 'Accept: text/event-stream\r\n');
  await once(socket, 'data');
  socket.destroy();
  await untilStatus(platform, id, 'CANCELLED');
});

it('does not let a key cancel by a stream that may only read', async () => {
  const platform = await startPlatform();
  const made = await platform.post('/v1/keys', { name: 'reader', scopes: ['jobs:read'] });
  const body: unknown = await made.json();
  const key = typeof body === 'object' && body && 'key' in body ? body.key : '';
  const path = `/v2/${ENDPOINT}/stream/x?cancelOnDisconnect=true`;
  const answer = await platform.call(path, { headers: { authorization: `Bearer ${key}` } });
  expect(answer.status).toBe(403);
});
