// Load-balancing endpoints on a real platform, whose workers are processes of an ordinary web service.
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { PlatformProcess } from '../support/processes.ts';
import { until } from '../support/until.ts';

const SERVER = fileURLToPath(new URL('../../examples/load-balanced/server.ts', import.meta.url));
const MAX = 3;

let platform: PlatformProcess;
let endpoint: string;
let template: string;

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: [], args: ['--engine', 'process'] });
});

afterAll(() => platform.close());

beforeEach(async () => {
  const creation = { name: 'web', image: 'none', ports: ['8000/http'] };
  const args = `'${process.execPath}' '${SERVER}'`;
  template = await create('/v1/templates', { ...creation, args });
  endpoint = await create('/v1/endpoints', {
    ...{ name: 'web', type: 'LOAD_BALANCER', templateId: template },
    ...{ workersMax: MAX, idleTimeout: 1, scaler: { type: 'REQUEST_COUNT', perWorker: 2 } },
  });
});

afterEach(async () => {
  await platform.fetch(`/v1/endpoints/${endpoint}`, { method: 'DELETE' });
  await until(async () => (await listPods()).length === 0);
});

async function create(path: string, body: object): Promise<string> {
  const response = await platform.post(path, body);
  expect(response.status).toBe(201);
  return String(JSON.parse(await response.text()).id);
}

/** Those that are not on their way out. */
async function listPods(): Promise<{ id: string; status: string }[]> {
  const { pods } = JSON.parse(await (await platform.fetch('/v2/pods')).text());
  return pods.filter(({ status }: { status: string }) => status !== 'TERMINATED');
}

/** A request to the endpoint's workers. */
function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = { authorization: `Bearer ${platform.adminKey}`, ...init.headers };
  return fetch(`${platform.url}/lb/${endpoint}${path}`, { ...init, headers });
}

async function shout(text: string): Promise<{ text: string; worker: string }> {
  const headers = { 'content-type': 'application/json' };
  const response = await ask('/upper', { method: 'POST', body: JSON.stringify({ text }), headers });
  expect([response.status, response.ok || (await response.text())]).toEqual([200, true]);
  return JSON.parse(await response.text());
}

describe('a load-balancing endpoint', () => {
  it('starts a worker for a request, and scales to zero again', async () => {
    expect(await listPods()).toEqual([]);
    expect((await shout('first')).text).toBe('FIRST');
    expect(await listPods()).toHaveLength(1);
    await until(async () => (await listPods()).length === 0);
  });

  it('forwards streams and WebSockets', async () => {
    const events = await ask('/tokens');
    expect(events.headers.get('content-type')).toBe('text/event-stream');
    expect(await events.text()).toBe('data: one\n\ndata: two\n\ndata: three\n\n');
    const socket = new WebSocket(`${platform.url.replace('http', 'ws')}/lb/${endpoint}/chat`, {
      headers: { authorization: platform.adminKey },
    });
    await once(socket, 'open');
    socket.send('hello');
    expect(String((await once(socket, 'message'))[0])).toBe('HELLO');
    socket.close();
    await once(socket, 'close');
  });

  it('scales up with the open requests and distributes them', async () => {
    const workers = new Set<string>();
    let isEnough = false;
    const clients = Array.from({ length: 3 * MAX }, async () => {
      while (!isEnough) {
        await (await ask('/tokens')).text();
        workers.add((await shout('x')).worker);
        isEnough ||= workers.size === MAX;
      }
    });
    await Promise.all(clients);
    expect((await listPods()).length).toBeLessThanOrEqual(MAX);
  });

  it('keeps its workers after the platform is killed and restarted', async () => {
    await platform.fetch(`/v1/endpoints/${endpoint}`, {
      method: 'PATCH',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ workersMin: 1 }),
    });
    const { worker } = await shout('before');
    await platform.kill();
    await platform.restart();
    expect(await shout('after')).toEqual({ text: 'AFTER', worker });
  });

  it('replaces its workers under load without a failed request', async () => {
    const { worker: old } = await shout('x');
    let isOver = false;
    const seen = new Set<string>();
    const clients = Array.from({ length: 4 }, async () => {
      while (!isOver) seen.add((await shout('x')).worker);
    });
    const all = Promise.all(clients);
    await platform.fetch(`/v1/templates/${template}`, {
      method: 'PATCH',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ env: { NEW: '1' } }),
    });
    const outgoing = async () => (await listPods()).some(({ id }) => id === old);
    await Promise.race([all, until(async () => !(await outgoing()) && seen.size > 1)]);
    isOver = true;
    await all;
    expect(seen.size).toBeGreaterThan(1);
  });
});
