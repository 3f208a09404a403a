// WorkerLink over HTTP against a real server on loopback: what travels, and what each failure means.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { afterEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.ts';
import { createClient } from '../../../src/client.ts';
import { createHttpLink } from '../../../src/transport/http-link.ts';
import type { RoutedLink } from '../../../src/transport/routed-link.ts';
import { decodeFrames, encodeFrames, FRAMES_MEDIA_TYPE } from '../../../src/wire/link/http-form.ts';
import type { LinkError, Report, TakeRequest } from '../../../src/wire/link/worker-link.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../../support/certificates.ts';

type Handle = (request: IncomingMessage, response: ServerResponse, body: Buffer) => void;

const servers: Server[] = [];
const links: RoutedLink[] = [];

afterEach(async () => {
  await Promise.all(links.splice(0).map((link) => link.close()));
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

/** A server that does what the test says, and a link to it. */
async function serve(handle: Handle, options: { answerMarginMs?: number; path?: string } = {}) {
  const { path = '', ...rest } = options;
  const server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on('data', (piece: Buffer) => pieces.push(piece));
    request.on('end', () => handle(request, response, Buffer.concat(pieces)));
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return connect(portOf(server), path, rest);
}

function connect(port: number, path = '', rest: { answerMarginMs?: number } = {}): RoutedLink {
  const url = `http://127.0.0.1:${port}${path}`;
  const link = createHttpLink({ url, endpointId: 'echo', key: 'mr_k', log: silentLog, ...rest });
  links.push(link);
  return link;
}

function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('not listening');
  return address.port;
}

function answerJson(response: ServerResponse, value: unknown, status = 200): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
}

async function errorOf(call: Promise<unknown>): Promise<LinkError> {
  return call.then(
    () => {
      throw new Error('the call was answered');
    },
    (error: LinkError) => error,
  );
}

const never = new AbortController().signal;
const identity = { workerId: 'w1', incarnation: 3 };
const hello = { ...identity, protocol: 1, version: '0.0.0', slots: 2, devices: [], outbox: [] };
const welcome = { protocol: 1, leaseMs: 15_000, renewEveryMs: 5_000, takeWaitMs: 20_000 };
const take: TakeRequest = { ...identity, takeId: 't', max: 2, waitMs: 20, held: ['x'] };
const leaseHeader = {
  jobId: 'a',
  attempt: 1,
  token: 'secret',
  executionTimeoutMs: 1_000,
  solo: false,
  submittedAt: 5,
};
const leaseFrames = Buffer.concat(
  encodeFrames([{ header: leaseHeader, body: Buffer.from('{"n":1}') }]),
);
const outcome: Report = {
  kind: 'outcome',
  jobId: 'a',
  attempt: 1,
  token: 'secret',
  seq: 1,
  outcome: { kind: 'completed', executionMs: 3, output: 'value' },
  body: Buffer.from('"äöü"'),
};

function answerFrames(response: ServerResponse, message: Uint8Array): void {
  response.writeHead(200, { 'content-type': FRAMES_MEDIA_TYPE }).end(message);
}

describe('the HTTP link', () => {
  it('posts each verb to its path with the key, JSON both ways', async () => {
    const seen: unknown[] = [];
    const link = await serve((request, response, body) => {
      seen.push([
        request.method,
        request.url,
        request.headers.authorization,
        JSON.parse(body.toString()),
      ]);
      if (request.url?.endsWith('hello')) answerJson(response, welcome);
      else if (request.url?.endsWith('renew')) answerJson(response, { ended: [], drain: true });
      else response.writeHead(204).end();
    });
    const renew = { ...identity, waitMs: 10, leases: [] };
    const bye = { ...identity, reason: 'drained' as const, outbox: [] };
    expect(await link.hello(hello)).toEqual(welcome);
    expect(await link.renew(renew, never)).toEqual({ ended: [], drain: true });
    await link.bye(bye);
    expect(seen).toEqual([
      ['POST', '/v2/echo/worker/hello', 'Bearer mr_k', hello],
      ['POST', '/v2/echo/worker/renew', 'Bearer mr_k', renew],
      ['POST', '/v2/echo/worker/bye', 'Bearer mr_k', bye],
    ]);
  });

  it('prefixes all routes with the path of its URL', async () => {
    const link = await serve(
      (request, response) => answerJson(response, { ...welcome, leaseMs: request.url?.length }),
      {
        path: '/platform/',
      },
    );
    expect((await link.hello(hello)).leaseMs).toBe('/platform/v2/echo/worker/hello'.length);
  });

  it('reads leases with their inputs from frames', async () => {
    const link = await serve((_request, response) => answerFrames(response, leaseFrames));
    const [lease, ...others] = await link.take(take, never);
    expect(others).toEqual([]);
    expect(lease).toMatchObject(leaseHeader);
    expect(Buffer.from(lease?.input ?? []).toString()).toBe('{"n":1}');
  });

  it('treats 204 as no jobs', async () => {
    const link = await serve((_request, response) => response.writeHead(204).end());
    expect(await link.take(take, never)).toEqual([]);
  });

  it('sends reports as frames with the worker in the headers', async () => {
    const seen: unknown[] = [];
    const link = await serve((request, response, body) => {
      const { headers } = request;
      seen.push(
        headers['millrace-worker'],
        headers['millrace-incarnation'],
        headers['content-type'],
      );
      seen.push(...decodeFrames(body).map((frame) => [frame.header, frame.body.toString()]));
      answerJson(response, [{ answer: 'applied' }]);
    });
    const replies = await link.report({ ...identity, reports: [outcome] });
    expect(replies).toEqual([{ answer: 'applied' }]);
    const { body, ...header } = outcome;
    expect(seen).toEqual(['w1', '3', FRAMES_MEDIA_TYPE, [header, body.toString()]]);
  });

  it('does not make one verb wait for another', async () => {
    const link = await serve((request, response) => {
      if (request.url?.endsWith('report')) answerJson(response, [{ answer: 'applied' }]);
      else if (request.url?.endsWith('hello')) answerJson(response, welcome);
    });
    const polls = [
      link.take(take, never),
      link.renew({ ...identity, waitMs: 60_000, leases: [] }, never),
    ];
    const settled = Promise.allSettled(polls);
    expect(await link.report({ ...identity, reports: [outcome] })).toHaveLength(1);
    expect(await link.hello(hello)).toEqual(welcome);
    await link.close();
    expect((await settled).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  });

  it('gives a large report more time than a small one', async () => {
    const link = await serve(
      (_request, response, body) => {
        // Longer than the margin.
        const answer = () => answerJson(response, [{ answer: 'applied' }]);
        if (body.length > 1_000) setTimeout(answer, 200);
      },
      { answerMarginMs: 50 },
    );
    const large = { ...outcome, body: Buffer.from(`"${'x'.repeat(1_000_000)}"`) };
    expect(await link.report({ ...identity, reports: [large] })).toEqual([{ answer: 'applied' }]);
    const small = link.report({ ...identity, reports: [outcome] });
    expect(await errorOf(small)).toMatchObject({ code: 'unavailable' });
  });

  it('gives up an answer that pauses within its body', async () => {
    const link = await serve(
      (_request, response) => {
        response.writeHead(200, { 'content-type': 'application/json' });
        response.write('{');
      },
      { answerMarginMs: 50 },
    );
    expect(await errorOf(link.hello(hello))).toMatchObject({ code: 'unavailable' });
  });

  it('sends further requests of a verb after the first two, on their connections', async () => {
    const held: ServerResponse[] = [];
    const ports = new Set<number | undefined>();
    const isHeld = Promise.withResolvers<void>();
    const link = await serve((request, response) => {
      ports.add(request.socket.remotePort);
      if (held.push(response) === 2) isHeld.resolve();
      if (held.length > 2) answerJson(response, welcome);
    });
    const calls = Array.from({ length: 5 }, () => link.hello(hello));
    await isHeld.promise;
    for (const response of [...held]) answerJson(response, welcome);
    expect(await Promise.all(calls)).toEqual(Array(5).fill(welcome));
    expect(ports.size).toBe(2);
  });

  it('fails calls that wait for a connection when it is closed', async () => {
    const isHeld = Promise.withResolvers<void>();
    const link = await serve(() => isHeld.resolve());
    const errors = Array.from({ length: 3 }, () => errorOf(link.hello(hello)));
    await isHeld.promise;
    await link.close();
    for (const error of await Promise.all(errors)) expect(error.code).toBe('unavailable');
    expect((await errorOf(link.hello(hello))).code).toBe('unavailable');
  });

  it('cancels the request when its signal aborts', async () => {
    const closed = Promise.withResolvers<void>();
    const arrived = Promise.withResolvers<void>();
    const link = await serve((_request, response) => {
      response.on('close', () => closed.resolve());
      arrived.resolve();
    });
    const controller = new AbortController();
    const error = errorOf(link.take({ ...take, waitMs: 60_000 }, controller.signal));
    await arrived.promise;
    controller.abort();
    expect(await error).toMatchObject({ code: 'unavailable' });
    await closed.promise;
  });

  it('abandons a missing answer and does not reuse its connection', async () => {
    const ports: (number | undefined)[] = [];
    const link = await serve(
      (request, response) => {
        ports.push(request.socket.remotePort);
        if (ports.length > 1) response.writeHead(204).end();
      },
      { answerMarginMs: 50 },
    );
    expect(await errorOf(link.take(take, never))).toMatchObject({ code: 'unavailable' });
    expect(await link.take({ ...take, waitMs: 60_000 }, never)).toEqual([]);
    expect(ports[1]).not.toBe(ports[0]);
  });
});

describe('a failure', () => {
  const problem = (status: number, code: string) => ({
    title: 'T',
    status,
    code,
    detail: 'because',
  });

  it.each([
    [401, 'unauthorized', 'unauthorized'],
    [403, 'forbidden', 'unauthorized'],
    [409, 'stale_incarnation', 'stale_incarnation'],
    [409, 'unknown_worker', 'unknown_worker'],
    [409, 'conflict', 'invalid'],
    [422, 'invalid', 'invalid'],
    [413, 'payload_too_large', 'invalid'],
    [404, 'not_found', 'unavailable'],
    [429, 'queue_full', 'unavailable'],
    [500, 'internal', 'unavailable'],
    [503, 'unavailable', 'unavailable'],
  ])('turns %i %s into %s, with the detail', async (status, code, linkCode) => {
    const link = await serve((_request, response) =>
      answerJson(response, problem(status, code), status),
    );
    const error = await errorOf(link.hello(hello));
    expect(error).toMatchObject({ name: 'LinkError', code: linkCode });
    expect(error.message).toContain('because');
  });

  it.each([null, 7, 'because', [], { code: 7, detail: null }])(
    'is judged by its status if it has %j instead of a problem',
    async (body) => {
      const link = await serve((_request, response) => answerJson(response, body, 401));
      const error = await errorOf(link.hello(hello));
      expect(error).toMatchObject({ name: 'LinkError', code: 'unauthorized' });
    },
  );

  it('passes on the platform’s retry delay', async () => {
    const link = await serve((_request, response) =>
      response.writeHead(503, { 'retry-after': '7' }).end(),
    );
    expect(await errorOf(link.take(take, never))).toMatchObject({
      code: 'unavailable',
      retryAfterMs: 7_000,
    });
  });

  it.each(['2592000', '99999999999999999999', 'Fri, 31 Dec 2100 00:00:00 GMT'])(
    'is retried after an hour if its Retry-After is very long (%s)',
    async (retryAfter) => {
      const link = await serve((_request, response) =>
        response.writeHead(503, { 'retry-after': retryAfter }).end(),
      );
      expect(await errorOf(link.hello(hello))).toMatchObject({ retryAfterMs: 3_600_000 });
    },
  );

  it('is retried slowly for an unknown endpoint', async () => {
    const link = await serve((_request, response) => response.writeHead(404).end('no such page'));
    expect(await errorOf(link.take(take, never))).toMatchObject({
      code: 'unavailable',
      retryAfterMs: 10_000,
    });
  });

  it('names --ca for a certificate that is not trusted', async () => {
    const server = createHttpsServer({ cert: CERTIFICATE, key: CERTIFICATE_KEY });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const url = `https://127.0.0.1:${portOf(server)}`;
    const link = createHttpLink({ url, endpointId: 'echo', key: 'mr_k', log: silentLog });
    links.push(link);
    expect((await errorOf(link.hello(hello))).message).toBe(
      'hello: self-signed certificate; give the worker --ca FILE (DEPTH_ZERO_SELF_SIGNED_CERT)',
    );
    const client = createClient({ url, endpoint: 'echo', repeats: 0 });
    await expect(client.health()).rejects.toThrow(
      `${url} does not respond: self-signed certificate; set NODE_EXTRA_CA_CERTS=FILE`,
    );
  });

  it.each([
    ['https://a.test/x/v2/echo/worker/hello', 'to https://a.test/x; use that URL'],
    ['/login?to=secret', '/login; use the URL of the platform itself'],
    [`https://a.test/${'x'.repeat(10_000)}`, 'x; use the URL of the platform itself'],
    ['', ' redirects (301); use the URL that it redirects to'],
  ])('names the target of a redirect to %.20s, which is not followed', async (location, said) => {
    const link = await serve((_request, response) => response.writeHead(301, { location }).end());
    const { code, message } = await errorOf(link.hello(hello));
    expect(code).toBe('invalid');
    expect(message).toMatch(/^hello: http:\/\/127\.0\.0\.1:\d+ redirects \(301\)/);
    expect(message).toContain(said);
    expect(message.length).toBeLessThan(500);
    expect(message).not.toContain('secret');
  });

  const broken: [string, Handle][] = [
    ['a connection that is cut before the answer', (request) => request.socket.destroy()],
    [
      'a connection that is cut within the answer',
      (request, response) => {
        response.writeHead(200, {
          'content-type': FRAMES_MEDIA_TYPE,
          'content-length': leaseFrames.length,
        });
        response.write(leaseFrames.subarray(0, 20), () => request.socket.destroy());
      },
    ],
    [
      'a connection that is cut within a large answer',
      (request, response) => {
        response.writeHead(200, { 'content-type': FRAMES_MEDIA_TYPE, 'content-length': 1_000_000 });
        response.write(Buffer.alloc(500_000), () => request.socket.destroy());
      },
    ],
    [
      'frames that end too early',
      (_request, response) => answerFrames(response, leaseFrames.subarray(0, -1)),
    ],
    [
      'a lease that is none',
      (_request, response) =>
        answerFrames(
          response,
          Buffer.concat(encodeFrames([{ header: { jobId: 'a' }, body: Buffer.alloc(0) }])),
        ),
    ],
    [
      'a page of something in between',
      (_request, response) =>
        response.writeHead(200, { 'content-type': 'text/html' }).end('<html>'),
    ],
  ];
  it.each(broken)('is temporary if the cause is %s', async (_what, handle) => {
    const link = await serve(handle);
    const error = await errorOf(link.take(take, never));
    expect(error).toMatchObject({ code: 'unavailable' });
    // It is noticed at once, not by a time limit.
    expect(error.message).not.toContain('timed out');
  });

  it.each([
    ['not JSON', 'welcome!'],
    ['JSON of another shape', '{"protocol":"one"}'],
  ])('is temporary if the answer is %s', async (_what, body) => {
    const link = await serve((_request, response) => response.end(body));
    expect(await errorOf(link.hello(hello))).toMatchObject({ code: 'unavailable' });
  });

  it('is temporary if there are fewer answers than reports', async () => {
    const link = await serve((_request, response) => answerJson(response, []));
    const error = await errorOf(link.report({ ...identity, reports: [outcome] }));
    expect(error).toMatchObject({ code: 'unavailable' });
  });

  it('is temporary at a closed port, and names the cause', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const port = portOf(server);
    await new Promise((resolve) => server.close(resolve));
    const error = await errorOf(connect(port).hello(hello));
    expect(error.code).toBe('unavailable');
    expect(error.message).toContain('ECONNREFUSED');
  });

  it('suggests an https URL at a port with TLS', async () => {
    const tls = createTlsServer({ cert: CERTIFICATE, key: CERTIFICATE_KEY });
    await new Promise<void>((resolve) => tls.listen(0, '127.0.0.1', resolve));
    const { port } = tls.address() as AddressInfo;
    expect((await errorOf(connect(port).hello(hello))).message).toContain('use an https:// URL');
    const client = createClient({ url: `http://127.0.0.1:${port}`, endpoint: 'e', repeats: 0 });
    await expect(client.health()).rejects.toThrow('use an https:// URL');
    await new Promise((resolve) => tls.close(resolve));
  });

  it('is reported at once for a URL that is not http', () => {
    const options = { endpointId: 'echo', key: 'k', log: silentLog };
    expect(() => createHttpLink({ url: 'ftp://127.0.0.1/', ...options })).toThrow(TypeError);
  });
});

describe('a large payload', () => {
  const large = Buffer.from(JSON.stringify('é'.repeat(600_000)));

  it('is sent with its length in a report, once and again', async () => {
    const received: { length: string | undefined; frames: Buffer[] }[] = [];
    const link = await serve((request, response, body) => {
      const frames = decodeFrames(body).map((frame) => Buffer.from(frame.body));
      received.push({ length: request.headers['content-length'], frames });
      answerJson(response, [{ answer: 'applied' }, { answer: 'applied' }]);
    });
    const progress = { jobId: 'a', attempt: 1, token: 't', seq: 1, kind: 'progress' } as const;
    const reports: Report[] = [
      { ...progress, body: Buffer.from('1') },
      { ...progress, seq: 2, body: large },
    ];
    await link.report({ ...identity, reports });
    await link.report({ ...identity, reports });
    expect(received).toHaveLength(2);
    for (const { frames, length } of received) {
      expect(Number(length)).toBeGreaterThan(large.length);
      expect(frames.map((bytes) => bytes.equals(large))).toEqual([false, true]);
    }
  });

  it.each(['with', 'without'])('arrives in a lease %s the length of the answer', async (how) => {
    const answer = Buffer.concat(encodeFrames([{ header: leaseHeader, body: large }]));
    const link = await serve((_request, response) => {
      const length = how === 'with' ? { 'content-length': answer.length } : {};
      response.writeHead(200, { 'content-type': FRAMES_MEDIA_TYPE, ...length });
      response.write(answer.subarray(0, 700_000));
      response.end(answer.subarray(700_000));
    });
    const [lease] = await link.take(take, never);
    expect(Buffer.from(lease?.input ?? []).equals(large)).toBe(true);
  });
});
