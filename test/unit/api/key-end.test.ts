// What lasts is cut off when the key that it came with is revoked, rotated away or expires.
import { once } from 'node:events';
import { describe, expect, it, onTestFinished } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { RateGate } from '../../../src/api/limits/rate-limit.ts';
import { ManualClock } from '../../../src/base/clock.ts';
import { Keys, KeyWatch } from '../../../src/control/keys/keys.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import {
  type BalancedPlatform,
  type BalancedSettings,
  startBalanced,
} from '../../support/api/balanced-platform.ts';
import {
  ENDPOINT,
  nextTake,
  type Platform,
  startPlatform,
  submitJob,
} from '../../support/api/platform.ts';

async function startEcho(settings?: BalancedSettings) {
  const platform = await startBalanced(settings);
  const { server } = await platform.addWorker((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: 1\n\n');
  });
  const sockets = new WebSocketServer({ server });
  return { platform, sockets };
}

async function openSocket({ base, port }: BalancedPlatform, key: string): Promise<WebSocket> {
  const headers = { authorization: key };
  const socket = new WebSocket(`ws://127.0.0.1:${port}${base}/`, { headers });
  await once(socket, 'open');
  return socket;
}

const GRANT = { name: 'k', scopes: ['jobs:write', 'jobs:read'] };

/** How a key ends, by what is done. */
const ENDS = {
  'a revocation': (keys: Keys, id: string) => keys.remove(id),
  'a rotation': (keys: Keys, id: string) => keys.rotate(id, 0),
  'a rotation with a grace': (keys: Keys, id: string) => keys.rotate(id, 50),
};

/** Resolves when a call begins to wait for the end of a job. */
function nextWait({ queue }: Platform): Promise<void> {
  const untilEnd = queue.jobs.untilEnd.bind(queue.jobs);
  return new Promise((resolve) => {
    queue.jobs.untilEnd = (...call) => {
      resolve();
      return untilEnd(...call);
    };
  });
}

describe.each(Object.entries(ENDS))('%s', (_name, endKey) => {
  it('ends the WebSockets of the key, on both sides, and no others', async () => {
    const { platform, sockets } = await startEcho();
    const { holder, key } = await platform.keys.issue(GRANT);
    const connected = once(sockets, 'connection');
    const socket = await openSocket(platform, key);
    const [atWorker] = await connected;
    const other = await openSocket(platform, platform.admin);
    const closed = Promise.all([once(socket, 'close'), once(atWorker, 'close')]);
    await endKey(platform.keys, holder.keyId);
    await closed;
    expect(other.readyState).toBe(WebSocket.OPEN);
    other.terminate();
  });

  it('ends answers of load-balancing endpoints', async () => {
    const { platform } = await startEcho();
    const { holder, key } = await platform.keys.issue(GRANT);
    const answer = await fetch(`${platform.url}${platform.base}/`, {
      headers: { authorization: key },
    });
    const rest = answer.text();
    await endKey(platform.keys, holder.keyId);
    await expect(rest).rejects.toThrow();
  });

  it('ends an open take of a RunPod worker, which gets no job', async () => {
    const platform = await startPlatform();
    const { holder, key } = await platform.keys.issue({ name: 'w', scopes: ['worker'] });
    const reached = nextTake(platform);
    const path = `/runpod/v2/${ENDPOINT}/job-take/pod-1?&job_in_progress=0`;
    const taking = fetch(platform.url + path, { headers: { authorization: key } });
    taking.catch(() => {});
    await reached;
    await endKey(platform.keys, holder.keyId);
    await expect(taking).rejects.toThrow();
    const id = await submitJob(platform);
    const record = await platform.call(`/v2/${ENDPOINT}/status/${id}`);
    expect(await record.json()).toMatchObject({ status: 'IN_QUEUE' });
  });

  it.each([
    ['status?wait=', 'GET', (id: string) => `/v2/${ENDPOINT}/status/${id}?wait=60000`],
    ['runsync', 'POST', () => `/v2/${ENDPOINT}/runsync?wait=60000`],
    [
      "status-sync of RunPod's API",
      'GET',
      (id: string) => `/runpod/v2/${ENDPOINT}/status-sync/${id}`,
    ],
    ["runsync of RunPod's API", 'POST', () => `/runpod/v2/${ENDPOINT}/runsync?wait=60000`],
  ])('answers an open %s with 401, and the job goes on', async (_call, method, pathOf) => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { holder, key } = await platform.keys.issue(GRANT);
    const waiting = nextWait(platform);
    const headers = { authorization: key, 'content-type': 'application/json' };
    const body = method === 'POST' ? { body: '{"input":{}}' } : {};
    const calling = fetch(platform.url + pathOf(id), { method, headers, ...body });
    await waiting;
    await endKey(platform.keys, holder.keyId);
    const answer = await calling;
    expect(answer.status).toBe(401);
    expect(await answer.text()).toMatch(
      /revoked or has expired while the call waited; job .* goes on/,
    );
    const record = await platform.call(`/v2/${ENDPOINT}/status/${id}`);
    expect(await record.json()).toMatchObject({ status: 'IN_QUEUE' });
  });

  it.each(['text/event-stream', 'application/json'])('ends a stream of %s', async (accept) => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { holder, key } = await platform.keys.issue(GRANT);
    const headers = { authorization: key, accept };
    const path = `${platform.url}/v2/${ENDPOINT}/stream/${id}?wait=60000`;
    const reading = fetch(path, { headers }).then((answer) => answer.text());
    reading.catch(() => {});
    if (accept === 'application/json') await new Promise((resolve) => setTimeout(resolve, 50));
    await endKey(platform.keys, holder.keyId);
    // Whatever came first: it was cut off, or refused at its beginning.
    expect(await reading.catch(() => 'cut off')).toMatch(/cut off|unauthorized/);
  });
});

it('ends the WebSockets of a key when it expires', async () => {
  const clock = new ManualClock();
  const { platform } = await startEcho({ clock });
  const { key } = await platform.keys.issue({ ...GRANT, expiresAt: clock.now() + 1_000 });
  const socket = await openSocket(platform, key);
  const closed = once(socket, 'close');
  await clock.advance(1_000);
  await closed;
});

it('counts a WebSocket in the rate limits, and refuses one too many with 429', async () => {
  const rateGate = new RateGate({ minute: 6 });
  const { platform } = await startEcho({ server: { rateGate } });
  const calls = [];
  // The template and the endpoint were two calls.
  for (let opened = 0; opened < 4; opened++) calls.push(await openSocket(platform, platform.admin));
  const refused = new WebSocket(`ws://127.0.0.1:${platform.port}${platform.base}/`, {
    headers: { authorization: platform.admin },
  });
  const [, response] = await once(refused, 'unexpected-response');
  expect(response.statusCode).toBe(429);
  response.destroy();
  for (const socket of calls) socket.terminate();
});

describe('the watch of a key', () => {
  async function open() {
    const store = openSqliteStore({ path: ':memory:' });
    onTestFinished(() => store.close());
    const clock = new ManualClock();
    const keys = await Keys.open({ store, clock });
    const watch = new KeyWatch({ keys, clock });
    onTestFinished(() => watch.close());
    return { clock, keys, watch };
  }

  it('notifies once when the key ends, however far in the future', async () => {
    const { clock, keys, watch } = await open();
    // Many times as far as one timer waits.
    const expiresAt = clock.now() + 3_600_000;
    const { holder } = await keys.issue({ ...GRANT, expiresAt });
    let told = 0;
    watch.watch(holder.keyId, () => told++);
    await clock.advance(3_599_999);
    expect(told).toBe(0);
    await clock.advance(1);
    await keys.remove(holder.keyId);
    expect(told).toBe(1);
  });

  it('does not notify stopped watchers and notifies late ones at once', async () => {
    const { keys, watch } = await open();
    const { holder } = await keys.issue(GRANT);
    let told = 0;
    const stop = watch.watch(holder.keyId, () => told++);
    stop();
    await keys.remove(holder.keyId);
    expect(told).toBe(0);
    watch.watch(holder.keyId, () => told++);
    expect(told).toBe(1);
  });
});
