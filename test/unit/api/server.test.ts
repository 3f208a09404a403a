import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { get } from 'node:https';
import { connect } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import { type Store, StoreUnavailableError } from '../../../src/store/store.ts';
import {
  exchange,
  nextTake,
  readJson,
  startPlatform,
  submitJob,
  takeJob,
} from '../../support/api/platform.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../../support/certificates.ts';
import { replaceVerb } from '../../support/replace-verb.ts';

it('starts a bounded number of requests of a burst in one iteration of the event loop', async () => {
  let asked = 0;
  const isReady = () => {
    asked += 1;
    return true;
  };
  const { port } = await startPlatform({ server: { isReady } });
  const perTurn: number[] = [];
  let isOver = false;
  const watch = async () => {
    for (let before = 0; !isOver; before = asked) {
      await setImmediate();
      perTurn.push(asked - before);
    }
  };
  const watching = watch();
  const socket = connect(port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  // In one block; Node parses it in one go.
  socket.write('GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(100));
  let answers = '';
  while (answers.split('HTTP/1.1 200').length <= 100) {
    const [data] = await once(socket, 'data');
    answers += data;
  }
  isOver = true;
  await watching;
  expect(asked).toBe(100);
  expect(Math.max(...perTurn)).toBeLessThan(100);
});

describe('one more address', () => {
  it('is served like the first, and closes with it', async () => {
    const { close, listenAlso, port } = await startPlatform();
    await listenAlso('127.0.0.2');
    const url = `http://127.0.0.2:${port}`;
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    expect((await fetch(`${url}/v2/demo/health`)).status).toBe(401);
    const socket = connect(port, '127.0.0.2');
    onTestFinished(() => void socket.destroy());
    await once(socket, 'connect');
    await close();
    await expect(fetch(url)).rejects.toThrow();
  });

  it('is served over TLS if the first is', async () => {
    const tls = { cert: CERTIFICATE, key: CERTIFICATE_KEY };
    const { listenAlso, port } = await startPlatform({ server: { tls } });
    await listenAlso('127.0.0.2');
    const options = { host: '127.0.0.2', port, path: '/healthz', ca: CERTIFICATE };
    const request = get({ ...options, servername: 'localhost' });
    const [response] = await once(request, 'response');
    expect(response.statusCode).toBe(200);
    response.resume();
  });

  it('is refused if this machine does not have it', async () => {
    const { listenAlso } = await startPlatform();
    await expect(listenAlso('192.0.2.254')).rejects.toMatchObject({ code: 'EADDRNOTAVAIL' });
  });
});

describe('without a route', () => {
  it('answers an unknown path with a 404 problem', async () => {
    const { url } = await startPlatform();
    for (const path of ['/v3', '/v2', '/v2/demo/fly', '/v2/demo/status', '/v2/demo/run/']) {
      const response = await fetch(url + path);
      expect(response.status).toBe(404);
      expect(response.headers.get('content-type')).toBe('application/problem+json');
    }
  });

  it('answers OPTIONS with 204 and Allow, without a key', async () => {
    const { url } = await startPlatform();
    for (const [path, allow] of [
      ['/v2/demo/health', 'GET, HEAD'],
      ['/v2/demo/run', 'POST'],
      ['/v2/demo/stream/x', 'GET'],
    ] as const) {
      const response = await fetch(url + path, { method: 'OPTIONS' });
      expect([response.status, response.headers.get('allow')]).toEqual([204, allow]);
    }
    expect((await fetch(`${url}/nothing`, { method: 'OPTIONS' })).status).toBe(404);
  });

  it('answers a wrong method with 405 and Allow', async () => {
    const { call } = await startPlatform();
    for (const [method, path, allow] of [
      ['GET', '/v2/demo/run', 'POST'],
      ['POST', '/v2/demo/status/x?ttl=1', 'GET, HEAD'],
      ['HEAD', '/v2/demo/run', 'POST'],
      ['HEAD', '/v2/demo/stream/x', 'GET'],
      ['DELETE', '/healthz', 'GET, HEAD'],
    ] as const) {
      const response = await call(path, { method });
      expect([method, response.status]).toEqual([method, 405]);
      expect(response.headers.get('allow')).toBe(allow);
    }
  });

  it('answers an ID longer than any valid one with a 404 problem, without a log line', async () => {
    const { call, logged } = await startPlatform();
    for (const path of [`/v2/demo/status/${'x'.repeat(201)}`, `/v2/${'x'.repeat(5_000)}/health`]) {
      const response = await call(path);
      expect(response.status).toBe(404);
      expect(await readJson(response)).toMatchObject({ code: 'not_found' });
    }
    expect(logged()).toBe('');
  });

  it('ignores an unknown Expect header', async () => {
    const { port } = await startPlatform();
    const head = 'GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\nConnection: close\r\n\r\n';
    expect(await exchange(port, [head])).toMatch(/^HTTP\/1.1 200/);
  });

  it('answers a path that cannot be decoded with a 400 problem', async () => {
    const { url } = await startPlatform();
    const response = await fetch(`${url}/v2/%ff/health`);
    expect(response.status).toBe(400);
    expect(await readJson(response)).toMatchObject({ code: 'malformed' });
  });

  it('answers a request without a Host header with a 400 problem', async () => {
    const { port } = await startPlatform();
    const head = 'GET /healthz HTTP/1.1\r\n\r\n';
    const answer = await exchange(port, [head], (soFar) => soFar.endsWith('}'));
    expect(answer).toMatch(/^HTTP\/1.1 400/);
    expect(answer).toContain('application/problem+json');
    expect(answer).toContain('The Host header is missing.');
  });

  it('needs no Host header in a request of HTTP/1.0', async () => {
    const { port } = await startPlatform();
    expect(await exchange(port, ['GET /healthz HTTP/1.0\r\n\r\n'])).toMatch(/^HTTP\/1.1 200/);
  });

  it('answers bytes that are not HTTP with a 400 problem, and closes the connection', async () => {
    const { port } = await startPlatform();
    const answer = await exchange(port, ['HELLO\r\n\r\n']);
    expect(answer).toMatch(/^HTTP\/1.1 400/);
    expect(answer).toContain('application/problem+json');
  });
});

describe('a connection that received bytes that are not HTTP', () => {
  it('answers a client that sends far more first', async () => {
    const { port } = await startPlatform();
    const head = 'GET /\u00e9 HTTP/1.1\r\nHost: x\r\n\r\n';
    const answer = await exchange(port, [head, Buffer.alloc(8_000_000)]);
    expect(answer).toMatch(/^HTTP\/1.1 400/);
    // As each answer: it may quote what the client has sent.
    expect(answer).toMatch(/^x-content-type-options: nosniff\r$/im);
    expect(answer).toMatch(/^cross-origin-resource-policy: same-origin\r$/im);
  });

  it.each(['HELLO\r\n\r\n', 'CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n'])(
    'is closed even if the client keeps it open: %j',
    async (head) => {
      const clock = new ManualClock();
      const { port } = await startPlatform({ clock });
      const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
      onTestFinished(() => void socket.destroy());
      socket.write(head);
      await once(socket.resume(), 'end');
      const gone = once(socket, 'error');
      await clock.advance(2_000);
      const writing = setInterval(() => socket.write('x'), 5);
      onTestFinished(() => clearInterval(writing));
      await expect(gone).resolves.toHaveLength(1);
    },
  );
});

describe('a silent connection', () => {
  it.runIf(process.platform === 'linux')('is watched by TCP keep-alive', async () => {
    const { port } = await startPlatform();
    const socket = connect(port, '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    await once(socket, 'connect');
    let timer = readTimer(port, socket.localPort);
    while (timer === undefined) {
      await setImmediate();
      timer = readTimer(port, socket.localPort);
    }
    expect(timer).toBe('keep-alive');
  });
});

describe('the platform', () => {
  it('says without a key that it is alive and ready', async () => {
    const { url } = await startPlatform();
    const alive = await fetch(`${url}/healthz`);
    expect(await alive.json()).toEqual({ status: 'ok', version: '1.2.3' });
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    expect((await fetch(`${url}/readyz`, { method: 'HEAD' })).status).toBe(200);
  });

  it('says that it is not ready when the store does not answer', async () => {
    let isBroken = false;
    const wrapStore = (store: Store): Store => ({
      write: (operation) => store.write(operation),
      read: (operation) => (isBroken ? Promise.reject(new Error('gone')) : store.read(operation)),
      reclaim: (pages) => store.reclaim(pages),
      close: () => store.close(),
    });
    const { url } = await startPlatform({ wrapStore });
    isBroken = true;
    const response = await fetch(`${url}/readyz`);
    expect(response.status).toBe(503);
    expect(response.headers.get('retry-after')).toBe('1');
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
  });

  it('says that it is ready, without reading all endpoints', async () => {
    let listings = 0;
    const wrapStore = (store: Store): Store => ({
      write: (operation) => store.write(operation),
      read: (operation) =>
        store.read((tx) => {
          const endpoints = () => {
            listings += 1;
            return tx.endpoints();
          };
          return operation(replaceVerb(tx, { endpoints }));
        }),
      reclaim: (pages) => store.reclaim(pages),
      close: () => store.close(),
    });
    const { url } = await startPlatform({ wrapStore });
    const atStart = listings;
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    expect(listings).toBe(atStart);
  });

  it('says that it is not ready while its owner says so', async () => {
    const { url } = await startPlatform({ server: { isReady: () => false } });
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
  });

  it('says why it is not ready when the store is not writable, and its warnings when it is', async () => {
    let fault: string | undefined = 'the disk is full (SQLITE_FULL)';
    const store = {
      findFault: async () => fault,
      warnings: ['the database is damaged'],
      failures: new Map([['SQLITE_FULL', 3]]),
      measure: () => ({ database: 4_096, wal: 32, payloads: 300_000 }),
    };
    const { call, url } = await startPlatform({ server: { store } });
    const refused = await fetch(`${url}/readyz`);
    expect(refused.status).toBe(503);
    expect(await readJson(refused)).toMatchObject({ detail: 'the disk is full (SQLITE_FULL)' });
    const text = await (await call('/metrics')).text();
    expect(text).toContain('millrace_store_failures_total{code="SQLITE_FULL"} 3\n');
    expect(text).toContain('millrace_store_writable 0\n');
    expect(text).toContain('millrace_store_bytes{file="database"} 4096\n');
    expect(text).toContain('millrace_store_bytes{file="payloads"} 300000\n');
    fault = undefined;
    const ready = await call('/readyz');
    expect(await ready.json()).toMatchObject({ warnings: ['the database is damaged'] });
  });

  it('shows its metrics even while the store cannot be read', async () => {
    let isBroken = false;
    const wrapStore = (store: Store): Store => ({
      write: (operation) => store.write(operation),
      read: (operation) =>
        isBroken ? Promise.reject(new StoreUnavailableError('gone')) : store.read(operation),
      reclaim: (pages) => store.reclaim(pages),
      close: () => store.close(),
    });
    const { call } = await startPlatform({ wrapStore });
    isBroken = true;
    expect(await (await call('/metrics')).text()).toContain('millrace_store_writable 1');
  });

  it('shows its metrics to keys that may read jobs', async () => {
    const platform = await startPlatform();
    await submitJob(platform);
    await submitJob(platform);
    await (await takeJob(platform)).complete('1');
    expect((await fetch(`${platform.url}/metrics`)).status).toBe(401);
    for (let scrape = 0; scrape < 2; scrape++) {
      const text = await (await platform.call('/metrics')).text();
      expect(text).toContain('millrace_queue_depth{endpoint="demo"} 1');
      const name = 'endpoint="demo",endpoint_name="demo"';
      expect(text).toContain(`millrace_endpoint_info{${name}} 1`);
      expect(text).toContain('millrace_jobs_ended_total{endpoint="demo",status="COMPLETED"} 1');
      expect(text).toContain('millrace_workers{endpoint="demo",state="idle"} 1');
      expect(text).toContain('millrace_endpoint_state{endpoint="demo",state="waiting"} 1');
      expect(text).toContain('millrace_build_info{version="1.2.3"} 1');
      expect(text).toMatch(/duration_seconds_count\{[^}]*route="\/v2\/:endpoint\/run"[^}]*\} 2/);
      expect(text).toContain('nodejs_eventloop_lag_seconds');
    }
  });
});

describe('at its end the platform', () => {
  it('answers waiting calls: runsync with the current record, take without jobs', async () => {
    const platform = await startPlatform();
    const reached = nextTake(platform);
    const runsync = platform.post('/v2/demo/runsync', { input: {} });
    await takeJob(platform);
    const hello = { workerId: 'w2', incarnation: 1, protocol: 1, version: '1', slots: 1 };
    await platform.post('/v2/demo/worker/hello', { ...hello, devices: [], outbox: [] });
    const take = { workerId: 'w2', incarnation: 1, takeId: 't', max: 1, waitMs: 20_000, held: [] };
    const taken = platform.post('/v2/demo/worker/take', take);
    await reached;
    const closed = platform.close();
    expect(await readJson(await runsync)).toMatchObject({ status: 'IN_PROGRESS' });
    expect((await taken).status).toBe(204);
    await closed;
  });

  it('refuses a request on an open connection with 503 and closes it', async () => {
    const platform = await startPlatform();
    const queueClosed = platform.queue.close();
    const request = 'GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n';
    const answer = await exchange(platform.port, [request]);
    expect(answer).toMatch(/^HTTP\/1.1 503/);
    expect(answer.toLowerCase()).toContain('connection: close');
    expect(answer).toContain('the platform is stopping');
    await queueClosed;
  });

  it('does not wait forever for a client that never finishes its request', async () => {
    const platform = await startPlatform({ server: { closeMs: 50 } });
    const head = `POST /v2/demo/run HTTP/1.1\r\nHost: x\r\nAuthorization: ${platform.admin}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{`;
    const open = exchange(platform.port, [head]);
    await platform.call('/healthz');
    await platform.close();
    expect(await open).toBe('');
  });
});

describe('over TLS', () => {
  it('answers clients that trust its certificate, and shuts down in time', async () => {
    const tls = { cert: CERTIFICATE, key: CERTIFICATE_KEY };
    const platform = await startPlatform({ server: { tls, closeMs: 50 } });
    expect(platform.url).toMatch(/^https:/);
    const request = get(`${platform.url}/readyz`, { ca: CERTIFICATE, agent: false });
    const [response] = await once(request, 'response');
    expect(response.statusCode).toBe(200);
    response.resume();
    // Has agreed on TLS with nobody: it must not hold up the end.
    const silent = exchange(platform.port, []);
    await fetch(platform.url).catch(() => undefined);
    await platform.close();
    expect(await silent).toBe('');
  });
});

it('leaves nothing on the connection of a refused body that it does not read', async () => {
  const { port } = await startPlatform();
  const warnings: Error[] = [];
  const note = (warning: Error) => warnings.push(warning);
  process.on('warning', note);
  onTestFinished(() => void process.off('warning', note));
  const request = 'POST /v2/demo/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}';
  const count = (answer: string) => answer.split('HTTP/1.1 401').length - 1;
  const answer = await exchange(port, [request.repeat(20)], (text) => count(text) === 20);
  expect(count(answer)).toBe(20);
  // Warnings are told on the next tick.
  await setImmediate();
  expect(warnings).toEqual([]);
});

/** Which timer the system runs for a connection, seen from this side; undefined while there is none. */
function readTimer(local: number, remote: number | undefined): 'keep-alive' | 'other' | undefined {
  const portOf = (address = '') => Number.parseInt(address.split(':')[1] ?? '', 16);
  const rows = readFileSync('/proc/net/tcp', 'utf8').split('\n').slice(1);
  for (const row of rows) {
    const [, here, there, state, , timer] = row.trim().split(/ +/);
    if (portOf(here) !== local || portOf(there) !== remote || state !== ESTABLISHED) continue;
    return timer?.startsWith('02:') ? 'keep-alive' : 'other';
  }
  return undefined;
}

const ESTABLISHED = '01';
