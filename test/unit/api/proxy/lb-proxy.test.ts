import { once } from 'node:events';
import type { IncomingMessage, RequestListener } from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import { RateGate } from '../../../../src/api/limits/rate-limit.ts';
import { readAnswer, startBalanced } from '../../../support/api/balanced-platform.ts';
import { exchange, readJson } from '../../../support/api/platform.ts';

/** Answers with what it was asked, as JSON. */
const mirror: RequestListener = async (request, response) => {
  const { headers, method, url } = request;
  const body = await text(request);
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify({ method, url, headers, body }));
};

const nothing: RequestListener = (_request, response) => response.end();

describe('a request to a load-balancing endpoint', () => {
  it('reaches a worker with its method, path, query, headers and body', async () => {
    const platform = await startBalanced();
    await platform.addWorker(mirror);
    const answer = await platform.call(`${platform.base}/things/7?color=red&color=blue`, {
      method: 'PATCH',
      body: 'all of it',
      headers: { 'content-type': 'text/x-odd; what="is this"', 'x-mine': '1' },
    });
    expect(answer.status).toBe(200);
    expect(await answer.json()).toMatchObject({
      ...{ method: 'PATCH', url: '/things/7?color=red&color=blue', body: 'all of it' },
      headers: { 'content-type': 'text/x-odd; what="is this"', 'x-mine': '1' },
    });
  });

  it.each([
    ['', '/'],
    ['?a=1', '/?a=1'],
    ['/', '/'],
    ['/../../v2/pods', '/../../v2/pods'],
    ['/a%2f..%2f%zz', '/a%2f..%2f%zz'],
    ['//other.example/x', '//other.example/x'],
    ['/a//b/./c?x=//&y=%00', '/a//b/./c?x=//&y=%00'],
    ['/%E2%82%AC/\\', '/%E2%82%AC/\\'],
  ])('reaches the worker from the path "%s" below its prefix as "%s"', async (path, seen) => {
    const platform = await startBalanced();
    await platform.addWorker(mirror);
    const sent = platform.open(path);
    sent.end();
    expect(JSON.parse(await text(await readAnswer(sent)))).toMatchObject({ url: seen });
  });

  it('cannot leave its prefix for another endpoint or the API', async () => {
    const platform = await startBalanced();
    await platform.addWorker(mirror);
    for (const path of ['/lb/../v2/pods', '/lb/..%2fv2/x', '/lb//x', '/lb', '/lb/', '/lb/none/x']) {
      const head = `GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n`;
      const answer = await exchange(platform.port, [
        `${head}Authorization: ${platform.admin}\r\n\r\n`,
      ]);
      expect([path, answer.slice(0, 12)]).toEqual([path, 'HTTP/1.1 404']);
    }
  });

  it.each(['GET', 'PUT', 'DELETE', 'OPTIONS', 'TRACE', 'QUERY', 'PROPFIND', 'M-SEARCH'])(
    'may have the method %s',
    async (method) => {
      const platform = await startBalanced();
      await platform.addWorker(mirror);
      const sent = platform.open('/x', { method });
      sent.end();
      expect(JSON.parse(await text(await readAnswer(sent)))).toMatchObject({ method });
    },
  );

  it('arrives without the key and with the client’s address', async () => {
    const platform = await startBalanced();
    await platform.addWorker(mirror);
    const sent = platform.open('/x', {
      headers: {
        ...{ host: 'api.example', 'x-forwarded-for': '10.0.0.1', 'x-forwarded-proto': 'gopher' },
        ...{ connection: 'x-hop', 'x-hop': 'gone', 'proxy-authorization': 'x', te: 'trailers' },
        forwarded: 'for=10.0.0.1',
      },
    });
    sent.end();
    const { headers } = JSON.parse(await text(await readAnswer(sent)));
    expect(headers).toMatchObject({
      ...{ 'x-forwarded-for': '10.0.0.1, 127.0.0.1', 'x-forwarded-proto': 'http' },
      ...{ 'x-forwarded-host': 'api.example', 'x-forwarded-prefix': platform.base },
      ...{ via: '1.1 millrace', te: 'trailers', host: expect.stringContaining('127.0.0.1:') },
    });
    for (const name of ['authorization', 'x-hop', 'proxy-authorization', 'forwarded']) {
      expect(headers).not.toHaveProperty(name);
    }
    expect(JSON.stringify(headers)).not.toContain('mr_');
  });

  const CLAIMS = {
    ...{ 'x-real-ip': '10.9.9.9', 'true-client-ip': '10.9.9.9', 'client-ip': '10.9.9.9' },
    ...{ 'cf-connecting-ip': '10.9.9.9', 'x-client-ip': '10.9.9.9', 'fly-client-ip': '10.9.9.9' },
    ...{ 'x-cluster-client-ip': '10.9.9.9', 'x-remote-addr': '10.9.9.9' },
    ...{ x_real_ip: '10.9.9.9', 'x_forwarded-for': '10.9.9.9', client_ip: '10.9.9.9' },
    ...{ 'x-original-forwarded-for': '10.9.9.9', 'x-forwarded-user': 'root' },
    ...{
      'x-appengine-user-ip': '10.9.9.9',
      'cf-connecting-ipv6': '::9',
      'x-forwarded': '10.9.9.9',
    },
  };

  it('arrives without the address that the client claims', async () => {
    const platform = await startBalanced();
    await platform.addWorker(mirror);
    const sent = platform.open('/x', { headers: { ...CLAIMS, 'x-forwarded-for': '10.9.9.9' } });
    sent.end();
    const { headers } = JSON.parse(await text(await readAnswer(sent)));
    expect(headers).toMatchObject({ 'x-real-ip': '127.0.0.1' });
    for (const name of Object.keys(CLAIMS)) {
      if (name !== 'x-real-ip') expect(headers).not.toHaveProperty(name);
    }
  });

  it('arrives with the address that a trusted proxy gives', async () => {
    const trustedProxies = ['127.0.0.1', '10.0.0.0/8'];
    const platform = await startBalanced({ server: { bounds: { trustedProxies } } });
    await platform.addWorker(mirror);
    const sent = platform.open('/x', {
      headers: {
        ...CLAIMS,
        'x-forwarded-for': '198.51.100.1, 203.0.113.7, 10.1.2.3',
        ...{ 'x-forwarded-proto': 'https', 'x-forwarded-host': 'api.example' },
      },
    });
    sent.end();
    const { headers } = JSON.parse(await text(await readAnswer(sent)));
    expect(headers).toMatchObject({
      // The last one that no trusted proxy stands for: those before it are claims.
      'x-real-ip': '203.0.113.7',
      'x-forwarded-for': '198.51.100.1, 203.0.113.7, 10.1.2.3, 127.0.0.1',
      ...{ 'x-forwarded-proto': 'https', 'x-forwarded-host': 'api.example' },
      'cf-connecting-ip': '10.9.9.9',
    });
  });

  it('arrives with what a trusted proxy writes into Forwarded, and without X-Forwarded headers of clients', async () => {
    const bounds = { trustedProxies: ['127.0.0.1'], forwardedHeaders: 'forwarded' as const };
    const platform = await startBalanced({ server: { bounds } });
    await platform.addWorker(mirror);
    const sent = platform.open('/x', {
      headers: {
        forwarded: 'for=198.51.100.1, for="[2001:db8::7]:4711";proto=https;host=api.example',
        ...{ 'x-forwarded-for': '10.9.9.9', 'x-forwarded-proto': 'http' },
        'x-forwarded-host': 'bank.example',
      },
    });
    sent.end();
    const { headers } = JSON.parse(await text(await readAnswer(sent)));
    expect(headers).toMatchObject({
      'x-real-ip': '2001:db8::7',
      'x-forwarded-for': '198.51.100.1, [2001:db8::7]:4711, 127.0.0.1',
      ...{ 'x-forwarded-proto': 'https', 'x-forwarded-host': 'api.example' },
    });
    expect(headers).not.toHaveProperty('forwarded');
  });

  it('needs a key with jobs:write for the endpoint, and one of its owner', async () => {
    const platform = await startBalanced();
    await platform.addWorker(mirror);
    const { base, call, endpointId, keys, url } = platform;
    const statusWith = async (scopes: string[], userId = 'owner') => {
      const { key } = await keys.issue({ name: 'k', scopes, userId });
      return (await call(`${base}/x`, { headers: { authorization: key } })).status;
    };
    expect((await fetch(`${url}${base}/x`)).status).toBe(401);
    expect(await statusWith(['jobs:read'])).toBe(403);
    expect(await statusWith([`jobs:write:${endpointId}`])).toBe(200);
    expect(await statusWith(['admin'], 'somebody')).toBe(404);
  });

  it('gets 404 if the endpoint has a queue', async () => {
    const platform = await startBalanced();
    const answer = await platform.call('/lb/demo/x');
    expect(answer.status).toBe(404);
    expect(await readJson(answer)).toMatchObject({ code: 'not_found' });
  });

  it('is forwarded while it arrives, if it has many megabytes', async () => {
    const platform = await startBalanced();
    const firstPiece = Promise.withResolvers<void>();
    await platform.addWorker(async (request, response) => {
      let bytes = 0;
      request.once('data', () => firstPiece.resolve());
      for await (const piece of request) bytes += piece.length;
      response.end(String(bytes));
    });
    const sent = platform.open('/up', { method: 'POST' });
    const piece = Buffer.alloc(1_048_576, 'x');
    sent.write(piece);
    await firstPiece.promise;
    for (let i = 1; i < 30; i++) if (!sent.write(piece)) await once(sent, 'drain');
    sent.end();
    expect(await text(await readAnswer(sent))).toBe(String(30 * piece.length));
  });

  it('gets 100 Continue, if it waits for it, when a worker is ready', async () => {
    const platform = await startBalanced();
    const expecting = { method: 'POST', headers: { expect: '100-continue', 'content-length': 5 } };
    const sent = platform.open('/x', expecting);
    const order: string[] = [];
    sent.on('continue', () => order.push('continue'));
    sent.flushHeaders();
    await platform.untilWaiting(1);
    order.push('worker');
    await platform.addWorker(mirror);
    await once(sent, 'continue');
    sent.end('hello');
    expect(JSON.parse(await text(await readAnswer(sent)))).toMatchObject({ body: 'hello' });
    expect(order).toEqual(['worker', 'continue']);
  });

  it('may be refused while it waits for 100 Continue', async () => {
    const platform = await startBalanced();
    const sent = platform.open('/x', {
      method: 'POST',
      headers: { expect: '100-continue', 'content-length': 5, authorization: 'mr_no' },
    });
    let isContinued = false;
    sent.on('continue', () => {
      isContinued = true;
    });
    sent.flushHeaders();
    expect((await readAnswer(sent)).statusCode).toBe(401);
    expect(isContinued).toBe(false);
    sent.destroy();
  });

  it('is aborted at the worker if its client disconnects', async () => {
    const platform = await startBalanced();
    const arrived = Promise.withResolvers<IncomingMessage>();
    await platform.addWorker((request) => arrived.resolve(request));
    const sent = platform.open('/slow').on('error', () => {});
    sent.end();
    const atWorker = await arrived.promise;
    const isClosed = once(atWorker.socket, 'close');
    sent.destroy();
    await isClosed;
    expect((await platform.balancer?.load(platform.endpointId))?.running).toBe(0);
    expect(platform.logged()).toBe('');
  });

  it('is aborted at the worker if its client disconnects within the body', async () => {
    const platform = await startBalanced();
    const arrived = Promise.withResolvers<IncomingMessage>();
    await platform.addWorker((request) => arrived.resolve(request));
    const sent = platform.open('/up', { method: 'POST' }).on('error', () => {});
    sent.write('half of');
    const atWorker = await arrived.promise;
    const closed = new Promise((resolve) => atWorker.socket.once('close', resolve));
    sent.destroy();
    await closed;
    expect(atWorker.complete).toBe(false);
  });
});

describe('the answer of a worker', () => {
  it('returns with status, headers and body', async () => {
    const platform = await startBalanced();
    await platform.addWorker((_request, response) => {
      response.writeHead(418, [
        ...['set-cookie', 'a=1', 'set-cookie', 'b=2', 'x-mine', 'yes'],
        ...['connection', 'x-hop', 'x-hop', 'gone', 'proxy-authenticate', 'Basic'],
      ]);
      response.end('short and stout');
    });
    const sent = platform.open('/pot');
    sent.end();
    const { headers, statusCode, ...answer } = await readAnswer(sent);
    expect(statusCode).toBe(418);
    expect(headers).toMatchObject({ 'set-cookie': ['a=1', 'b=2'], 'x-mine': 'yes' });
    expect(headers).not.toHaveProperty('x-hop');
    // Another site may embed the answer unless the worker forbids it.
    expect(headers).not.toHaveProperty('cross-origin-resource-policy');
    expect(headers).toMatchObject({ 'x-content-type-options': 'nosniff' });
    expect(headers).not.toHaveProperty('proxy-authenticate');
    expect(answer).toBeDefined();
  });

  it('streams its head and each piece as soon as the worker has sent them', async () => {
    const platform = await startBalanced();
    const says = Promise.withResolvers<(piece: string) => void>();
    await platform.addWorker((_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
      says.resolve((piece) => (piece === '' ? response.end() : response.write(piece)));
    });
    const sent = platform.open('/events');
    sent.end();
    const answer = await readAnswer(sent);
    expect(answer.headers['content-type']).toBe('text/event-stream');
    const say = await says.promise;
    for (const piece of ['data: 1\n\n', 'data: 2\n\n']) {
      say(piece);
      expect(String((await once(answer, 'data'))[0])).toBe(piece);
    }
    say('');
    await once(answer, 'end');
    expect(answer.complete).toBe(true);
  });

  it('is paused at the worker by a client that does not read', async () => {
    const platform = await startBalanced();
    let written = 0;
    let isHeldUp = false;
    await platform.addWorker((_request, response) => {
      const piece = Buffer.alloc(65_536);
      const write = () => {
        while (written < 500_000_000) {
          written += piece.length;
          if (response.write(piece)) continue;
          isHeldUp = true;
          response.once('drain', write);
          return;
        }
      };
      write();
      response.on('drain', () => {
        isHeldUp = false;
      });
    });
    const sent = platform.open('/flood').on('error', () => {});
    sent.end();
    const answer = await readAnswer(sent);
    answer.pause();
    // What fits into the buffers on the way is sent; then nothing moves any more.
    let before = -1;
    while (written !== before) {
      before = written;
      for (let turn = 0; turn < 200; turn++) await new Promise(setImmediate);
    }
    expect(isHeldUp).toBe(true);
    expect(written).toBeLessThan(100_000_000);
    answer.destroy();
  });

  it('may be empty: HEAD, 204 and 304', async () => {
    const platform = await startBalanced();
    await platform.addWorker((request, response) => {
      const status = Number(request.url?.slice(1));
      response.writeHead(status, status === 200 ? { 'content-length': '1234' } : { etag: '"1"' });
      response.end();
    });
    const head = platform.open('/200', { method: 'HEAD' });
    head.end();
    const seen = await readAnswer(head);
    expect([seen.headers['content-length'], await text(seen)]).toEqual(['1234', '']);
    for (const status of [204, 304]) {
      const answer = await platform.call(`${platform.base}/${status}`);
      expect([answer.status, answer.headers.get('etag')]).toEqual([status, '"1"']);
      expect(await answer.text()).toBe('');
    }
  });

  it('may have a bounded number of early hints, because a client may not read them', async () => {
    const platform = await startBalanced();
    await platform.addWorker((_request, response) => {
      for (let count = 0; count < 1_000; count++) response.writeProcessing();
      response.end('done');
    });
    const sent = platform.open('/');
    sent.end();
    let hints = 0;
    sent.on('information', () => {
      hints += 1;
    });
    expect(await text(await readAnswer(sent))).toBe('done');
    expect(hints).toBe(20);
  });

  it('does not appear in the log if it breaks off', async () => {
    const platform = await startBalanced();
    await platform.addWorker((request, response) => {
      if (request.url === '/ping') response.end();
      else request.socket.end('HTTP/1.1 200 OK\r\nsecret of a user\r\n\r\n');
    });
    expect((await platform.call(`${platform.base}/x`)).status).toBe(502);
    expect(platform.logged()).toContain('worker did not answer a request');
    expect(platform.logged()).not.toContain('secret of a user');
  });

  it('may have early hints and trailers', async () => {
    const platform = await startBalanced();
    await platform.addWorker((_request, response) => {
      response.writeEarlyHints({ link: '</style.css>; rel=preload' });
      response.writeHead(200, { trailer: 'x-sum' });
      response.write('body');
      response.addTrailers({ 'x-sum': '42' });
      response.end();
    });
    const sent = platform.open('/x');
    const hints: unknown[] = [];
    sent.on('information', ({ headers, statusCode }) => hints.push([statusCode, headers['link']]));
    sent.end();
    const answer = await readAnswer(sent);
    expect(await text(answer)).toBe('body');
    expect(hints).toEqual([[103, '</style.css>; rel=preload']]);
    expect(answer.headers.trailer).toBe('x-sum');
    expect(answer.trailers).toEqual({ 'x-sum': '42' });
  });

  it('reaches an HTTP/1.0 client complete, without trailers', async () => {
    const platform = await startBalanced();
    await platform.addWorker((_request, response) => {
      response.writeHead(200, { trailer: 'x-sum' });
      response.write('all of it');
      response.addTrailers({ 'x-sum': '42' });
      response.end();
    });
    const head = `GET ${platform.base}/x HTTP/1.0\r\nAuthorization: ${platform.admin}\r\n\r\n`;
    const answer = await exchange(platform.port, [head]);
    expect(answer).toMatch(/^HTTP\/1.1 200[\s\S]*\r\n\r\nall of it$/);
    expect(answer).not.toContain('x-sum');
  });

  it('breaks the client’s connection if it breaks off within its body', async () => {
    const platform = await startBalanced();
    await platform.addWorker((_request, response) => {
      response.write('half of');
      setImmediate(() => response.destroy());
    });
    const sent = platform.open('/x');
    sent.end();
    const answer = await readAnswer(sent);
    await expect(text(answer)).rejects.toThrow('aborted');
    expect(answer.complete).toBe(false);
  });

  it.each([
    ['after the answer has started', '/begun', 'half of'],
    ['after another request whose answer has started', '/begun', 'half of', '/held'],
  ])('is aborted by an invalid request, without injected bytes: %s', async (_case, ...it) => {
    const [first = '', begun = '', second] = it;
    const platform = await startBalanced();
    await platform.addWorker(({ url }, response) => {
      if (url === '/begun') response.writeHead(200, { 'content-length': '1000' }).write('half of');
    });
    const ask = (path: string) =>
      `GET ${platform.base}${path} HTTP/1.1\r\nHost: x\r\nAuthorization: ${platform.admin}\r\n\r\n`;
    const socket = connect(platform.port, '127.0.0.1');
    socket.write(ask(first));
    let answer = '';
    while (!answer.endsWith(begun)) answer += String((await once(socket, 'data'))[0]);
    if (second) socket.write(ask(second));
    socket.write('this is no request\r\n\r\n');
    expect(await text(socket)).toBe('');
  });

  it('leaves the connection usable if it arrives before the whole body', async () => {
    const platform = await startBalanced();
    await platform.addWorker((request, response) => {
      request.once('data', () => response.writeHead(413).end('too much'));
    });
    const body = Buffer.alloc(200_000);
    const auth = `Host: x\r\nAuthorization: ${platform.admin}\r\n`;
    const first = `POST ${platform.base}/x HTTP/1.1\r\n${auth}Content-Length: ${2 * body.length}\r\n\r\n`;
    const second = `GET /healthz HTTP/1.1\r\n${auth}Connection: close\r\n\r\n`;
    const answer = await exchange(platform.port, [first, body, body, second]);
    expect(answer).toMatch(/^HTTP\/1.1 413[\s\S]*too much[\s\S]*HTTP\/1.1 200/);
  });

  it('has the platform’s own headers, whatever the worker sends', async () => {
    const platform = await startBalanced({ server: { rateGate: new RateGate({ minute: 10 }) } });
    await platform.addWorker((_request, response) => {
      response.writeHead(200, { ratelimit: '"mine";r=1;t=1' }).end();
    });
    const answer = await platform.call(`${platform.base}/x`);
    expect(answer.headers.get('ratelimit')).toMatch(/^"minute";r=7;t=\d+$/);
  });

  it('counts in the metrics under its route', async () => {
    const platform = await startBalanced();
    await platform.addWorker(nothing);
    await (await platform.call(`${platform.base}/x`)).text();
    const metrics = await (await platform.call('/metrics')).text();
    expect(metrics).toContain('route="/lb/:endpoint",status="200"');
  });
});

describe('when a worker fails', () => {
  it('gives the request with its body to another worker, if the first is unreachable', async () => {
    const platform = await startBalanced();
    const lost = await platform.addWorker(mirror, 'pod_lost');
    await platform.call(`${platform.base}/1`);
    await platform.addWorker(mirror, 'pod_kept');
    await platform.untilReady(2);
    await platform.call(`${platform.base}/2`);
    await lost.die();
    // It is the turn of the lost one.
    const answer = await platform.call(`${platform.base}/3`, { method: 'POST', body: 'mine' });
    expect(answer.status).toBe(200);
    expect(await answer.json()).toMatchObject({ body: 'mine' });
    expect(platform.logged()).toContain('connecting to a worker failed');
  });

  it('gives the client 502 before an answer, and the request to no other worker', async () => {
    const platform = await startBalanced();
    let requests = 0;
    for (const podId of ['pod_a', 'pod_b']) {
      await platform.addWorker((request) => {
        requests++;
        request.socket.destroy();
      }, podId);
    }
    const answer = await platform.call(`${platform.base}/x`);
    expect(answer.status).toBe(502);
    expect(answer.headers.get('content-type')).toBe('application/problem+json');
    expect(await readJson(answer)).toMatchObject({ code: 'worker_failed' });
    expect(requests).toBe(1);
  });

  it('gives the client 502 while a body is being sent, and keeps the connection open', async () => {
    const platform = await startBalanced();
    await platform.addWorker((request) => {
      request.once('data', () => request.socket.destroy());
    });
    const body = Buffer.alloc(300_000);
    const auth = `Host: x\r\nAuthorization: ${platform.admin}\r\n`;
    const first = `POST ${platform.base}/x HTTP/1.1\r\n${auth}Content-Length: ${2 * body.length}\r\n\r\n`;
    const second = `GET /healthz HTTP/1.1\r\n${auth}Connection: close\r\n\r\n`;
    const answer = await exchange(platform.port, [first, body, body, second]);
    expect(answer).toMatch(/^HTTP\/1.1 502[\s\S]*worker_failed[\s\S]*HTTP\/1.1 200/);
  });

  it.each([
    ['is not HTTP', 'hello there\r\n\r\n'],
    [
      'has two lengths',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n',
    ],
  ])('gives the client 502 with the reason for an answer that %s', async (_case, said) => {
    const platform = await startBalanced();
    await platform.addWorker((request) => {
      request.socket.end(said);
    });
    const answer = await platform.call(`${platform.base}/x`);
    expect(answer.status).toBe(502);
    const detail = expect.stringContaining('HTTPParserError');
    expect(await readJson(answer)).toMatchObject({ code: 'worker_failed', detail });
  });

  it('gives the client 504 after the execution timeout', async () => {
    const platform = await startBalanced({ endpoint: { executionTimeout: 1_000 } });
    const closed = Promise.withResolvers<void>();
    await platform.addWorker((request) => {
      request.socket.once('close', closed.resolve);
    });
    const answer = await platform.call(`${platform.base}/x`);
    expect(answer.status).toBe(504);
    expect(await readJson(answer)).toMatchObject({
      ...{ code: 'worker_timed_out', detail: expect.stringContaining('1000 ms') },
    });
    await closed.promise;
  });

  it('reveals neither the key nor its address', async () => {
    const platform = await startBalanced();
    await platform.addWorker((request) => request.socket.destroy());
    const answer = await platform.call(`${platform.base}/x`);
    expect(await answer.text()).not.toMatch(/127\.0\.0\.1|mr_/);
    expect(platform.logged()).toContain('worker did not answer a request');
    expect(platform.logged()).not.toContain('mr_');
  });
});

describe('while no worker is ready', () => {
  it('requests wait and are served when one becomes ready', async () => {
    const platform = await startBalanced();
    const answers = [1, 2, 3].map((n) => platform.call(`${platform.base}/${n}`));
    await platform.untilWaiting(3);
    await platform.addWorker(nothing);
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200, 200]);
  });

  it('answers a request that has waited too long with 503, Retry-After and the reason', async () => {
    const platform = await startBalanced({ balancing: { waitMs: 600 } });
    const worker = await platform.addWorker(nothing);
    worker.ping = 404;
    const answer = await platform.call(`${platform.base}/x`);
    expect(answer.status).toBe(503);
    expect(answer.headers.get('retry-after')).toBe('1');
    const detail = expect.stringMatching(/\b0\.6 s\b.*pod_a.* \/ping .*404/);
    expect(await readJson(answer)).toMatchObject({ code: 'unavailable', detail });
  });

  it('lets maxQueued requests wait, and answers the next with 429', async () => {
    const platform = await startBalanced({ endpoint: { maxQueued: 1 } });
    const first = platform.call(`${platform.base}/1`);
    await platform.untilWaiting(1);
    const answer = await platform.call(`${platform.base}/2`);
    expect(answer.status).toBe(429);
    expect(await readJson(answer)).toMatchObject({ code: 'queue_full' });
    await platform.addWorker(nothing);
    expect((await first).status).toBe(200);
  });

  it('answers waiting requests with 503 at once when the platform stops', async () => {
    const platform = await startBalanced();
    const answer = platform.call(`${platform.base}/x`);
    await platform.untilWaiting(1);
    const closed = platform.close();
    expect((await answer).status).toBe(503);
    await closed;
  });

  it('answers waiting requests with 404 when the endpoint is deleted', async () => {
    const platform = await startBalanced();
    const answer = platform.call(`${platform.base}/x`);
    await platform.untilWaiting(1);
    await platform.call(`/v1/endpoints/${platform.endpointId}`, { method: 'DELETE' });
    expect((await answer).status).toBe(404);
  });
});
