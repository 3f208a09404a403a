// A platform that has announced its shutdown serves on, and each of its clients leaves with the next answer.
import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { exchange, type Platform, startPlatform, takeJob } from '../../support/api/platform.ts';

const HEAD = 'Host: a\r\n\r\n';

function open({ port }: Platform) {
  const socket = connect(port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  let answers = '';
  socket.on('data', (data) => {
    answers += data;
  });
  const ended = once(socket, 'close').then(() => answers);
  return { socket, ended, read: () => answers };
}

it('is alive and not ready', async () => {
  const { announceShutdown, call } = await startPlatform();
  expect((await call('/readyz')).status).toBe(200);
  announceShutdown();
  const answer = await call('/readyz');
  expect([answer.status, answer.headers.get('connection')]).toEqual([503, 'close']);
  expect(await answer.text()).toContain('the platform is stopping');
  expect((await call('/healthz')).status).toBe(200);
});

it('answers each request on its last connection, also one that it had before', async () => {
  const platform = await startPlatform();
  const runsync = platform.post('/v2/demo/runsync', { input: {} });
  const { id } = await takeJob(platform);
  platform.announceShutdown();
  await platform.call(`/v2/demo/cancel/${id}`, { method: 'POST' });
  const waited = await runsync;
  expect([waited.status, waited.headers.get('connection')]).toEqual([200, 'close']);
  const later = await platform.post('/v2/demo/run', { input: {} });
  expect([later.status, later.headers.get('connection')]).toEqual([200, 'close']);
  const missing = await platform.call('/nothing');
  expect([missing.status, missing.headers.get('connection')]).toEqual([404, 'close']);
});

it('answers an idle connection once more, then closes it', async () => {
  const platform = await startPlatform();
  const { ended, read, socket } = open(platform);
  socket.write(`GET /healthz HTTP/1.1\r\n${HEAD}`);
  await expect.poll(read).toContain('keep-alive');
  platform.announceShutdown();
  socket.write(`GET /healthz HTTP/1.1\r\n${HEAD}`);
  const answers = await ended;
  expect(answers.match(/HTTP\/1\.1 200/g)).toHaveLength(2);
  expect(answers.match(/connection: close/gi)).toHaveLength(1);
});

const submit = ({ admin }: Platform, verb: string) =>
  `POST /v2/demo/${verb} HTTP/1.1\r\nAuthorization: ${admin}\r\nContent-Type: application/json\r\n` +
  `Content-Length: 12\r\n${HEAD}{"input":{}}`;

it('ends a connection with the last of several requests', async () => {
  const platform = await startPlatform();
  platform.announceShutdown();
  const { ended, socket } = open(platform);
  socket.write(submit(platform, 'runsync') + submit(platform, 'run'));
  const { id } = await takeJob(platform);
  await platform.call(`/v2/demo/cancel/${id}`, { method: 'POST' });
  const answers = await ended;
  expect(answers.match(/HTTP\/1\.1 200/g)).toHaveLength(2);
  expect(answers.match(/connection: close/gi)).toHaveLength(1);
});

it('serves no request behind an answer that ends its connection', async () => {
  const platform = await startPlatform();
  platform.announceShutdown();
  const sent = `GET /healthz HTTP/1.1\r\n${HEAD}${submit(platform, 'run')}`;
  const answers = await exchange(platform.port, [sent]);
  expect(answers.match(/HTTP\/1\.1 200/g)).toHaveLength(1);
  const health = await platform.call('/v2/demo/health');
  expect(await health.json()).toMatchObject({ jobs: { inQueue: 0 } });
});

it('closes idle connections before it refuses requests', async () => {
  const platform = await startPlatform();
  const { ended, read, socket } = open(platform);
  socket.write(`GET /healthz HTTP/1.1\r\n${HEAD}`);
  await expect.poll(read).toContain('keep-alive');
  platform.announceShutdown();
  const closing = platform.close();
  expect((await ended).match(/HTTP/g)).toHaveLength(1);
  await closing;
});
