// One attempt over real sockets: the request, the meaning of each answer, and refused addresses.
import type { IncomingHttpHeaders, RequestListener } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { verifyWebhook, WebhookRefusedError } from '../../../../src/client.ts';
import {
  deriveEndpointSecret,
  generatePlatformSecret,
  HttpWebhookSender,
  type HttpWebhookSenderOptions,
} from '../../../../src/queue/webhooks/webhook-sender.ts';
import type { SendAttempt } from '../../../../src/queue/webhooks/webhooks.ts';
import { startServer } from '../../../support/handler-context.ts';
import { makeDelivery } from '../../../support/store/stored-jobs.ts';

const SECRET = generatePlatformSecret();
const RECORD = Buffer.from('{"id":"job-1","status":"COMPLETED","output":"ä"}');
const NEVER = new AbortController().signal;

const senders: HttpWebhookSender[] = [];
afterEach(async () => {
  for (const sender of senders.splice(0)) await sender.close();
});

function createSender(options: Partial<HttpWebhookSenderOptions> = {}): HttpWebhookSender {
  const defaults = { secrets: [SECRET], addresses: 'any' as const, version: '1.2.3' };
  const sender = new HttpWebhookSender({ ...defaults, ...options });
  senders.push(sender);
  return sender;
}

async function send(
  url: string,
  options: Partial<HttpWebhookSenderOptions> = {},
): Promise<SendAttempt | undefined> {
  const delivery = makeDelivery({ id: 'd-1', url, attempts: 2, bytes: RECORD.length });
  return createSender(options).send(delivery, inParts(RECORD), NEVER);
}

/** Of few bytes each. */
function inParts(record: Uint8Array, partBytes = 7) {
  return async function* () {
    for (let at = 0; at < record.length; at += partBytes) {
      yield record.subarray(at, at + partBytes);
    }
  };
}

interface Received {
  method: string | undefined;
  url: string | undefined;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** Notes what comes, and answers by the listener. */
function receive(received: Received[], answer: RequestListener): RequestListener {
  return async (request, response) => {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece);
    const { method, url, headers } = request;
    received.push({ method, url, headers, body: Buffer.concat(pieces) });
    answer(request, response);
  };
}

describe('a webhook', () => {
  it('is a POST of the record with its ID and signature', async () => {
    const received: Received[] = [];
    await using server = await startServer(receive(received, (_, response) => response.end('ok')));

    const made = await send(`${server.url}/done?job=1`);

    expect(made).toMatchObject({ result: '2xx' });
    const [first] = received;
    if (!first) throw new Error('nothing came');
    expect(first).toMatchObject({
      method: 'POST',
      url: '/done?job=1',
      body: RECORD,
      headers: {
        'content-type': 'application/json',
        'content-length': String(RECORD.length),
        'user-agent': 'millrace/1.2.3',
        'webhook-id': 'd-1',
        'millrace-endpoint': 'ep_test',
        'millrace-attempt': '3',
      },
    });
    const secret = deriveEndpointSecret(SECRET, 'ep_test');
    const record = await verifyWebhook({ secret, ...first });
    expect(record).toEqual(JSON.parse(RECORD.toString()));
  });

  it('is sent in parts if it is large, complete and signed, even to a slow receiver', async () => {
    const received: Received[] = [];
    const takeIn = receive(received, (_, response) => response.end());
    await using server = await startServer((request, response) => {
      request.pause();
      setTimeout(() => takeIn(request, response), 50);
    });
    const record = Buffer.from(JSON.stringify({ output: 'ä'.repeat(4_000_000) }));
    const delivery = makeDelivery({ id: 'd-1', url: server.url, bytes: record.length });
    // Parts with memory of their own, as the store's: the sender frees them.
    const parts = async function* () {
      for await (const part of inParts(record, 1_000_000)()) yield new Uint8Array(part);
    };

    const made = await createSender().send(delivery, parts, NEVER);

    expect(made).toMatchObject({ result: '2xx' });
    const [first] = received;
    if (!first) throw new Error('nothing came');
    expect(first.headers['content-length']).toBe(String(record.length));
    expect(first.body.equals(record)).toBe(true);
    const secret = deriveEndpointSecret(SECRET, 'ep_test');
    await verifyWebhook({ secret, ...first });
  });

  it('is signed with each of several secrets, and not with those of another endpoint', async () => {
    const received: Received[] = [];
    await using server = await startServer(receive(received, (_, response) => response.end()));
    const next = generatePlatformSecret();

    await send(server.url, { secrets: [SECRET, next] });

    const [first] = received;
    if (!first) throw new Error('nothing came');
    for (const secret of [SECRET, next].map((each) => deriveEndpointSecret(each, 'ep_test'))) {
      await expect(verifyWebhook({ secret, ...first })).resolves.toBeDefined();
    }
    const foreign = deriveEndpointSecret(SECRET, 'ep_other');
    const forged = verifyWebhook({ secret: foreign, ...first });
    await expect(forged).rejects.toThrow(WebhookRefusedError);
  });

  it.each([200, 201, 202, 204])('is received if the answer is %i', async (status) => {
    await using server = await startServer((_, response) => response.writeHead(status).end());
    expect(await send(server.url)).toMatchObject({ result: '2xx' });
  });

  it.each([
    [400, '4xx'],
    [404, '4xx'],
    [429, '4xx'],
    [500, '5xx'],
    [503, '5xx'],
  ])('is not received if the answer is %i', async (status, result) => {
    await using server = await startServer((_, response) => response.writeHead(status).end());
    const made = await send(server.url);
    expect(made).toMatchObject({ result, detail: expect.stringMatching(new RegExp(`${status}$`)) });
    expect(made?.isFinal ?? false).toBe(false);
  });

  it('is not repeated if the answer is 410', async () => {
    await using server = await startServer((_, response) => response.writeHead(410).end());
    expect(await send(server.url)).toMatchObject({ result: '4xx', isFinal: true });
  });

  it.each([429, 503])('returns the wait of Retry-After if the answer is %i', async (status) => {
    await using server = await startServer((_, response) =>
      response.writeHead(status, { 'retry-after': '120' }).end(),
    );
    expect(await send(server.url)).toMatchObject({ retryAfterMs: 120_000 });
  });

  it.each([301, 302, 303, 307, 308])('follows no redirect of status %i', async (status) => {
    let requests = 0;
    await using server = await startServer((_, response) => {
      requests += 1;
      response.writeHead(status, { location: '/elsewhere' }).end();
    });
    const made = await send(server.url);
    expect(made).toEqual({
      result: '3xx',
      detail: expect.stringContaining(`${status}; redirects`),
    });
    expect(requests).toBe(1);
  });

  it('has timed out without an answer in time', async () => {
    await using server = await startServer(() => {});
    const made = await send(server.url, { timeoutMs: 100 });
    expect(made).toEqual({ result: 'timeout', detail: expect.stringContaining('100 ms') });
  });

  it('has more time the larger it is', async () => {
    await using server = await startServer(() => {});
    const delivery = makeDelivery({ id: 'd', url: server.url, bytes: 25_600 });
    const record = inParts(Buffer.alloc(25_600), 1_024);
    const made = await createSender({ timeoutMs: 1 }).send(delivery, record, NEVER);
    expect(made).toEqual({ result: 'timeout', detail: expect.stringContaining('101 ms') });
  });

  it('is received although its answer trickles without an end, because its status has arrived', async () => {
    await using server = await startServer((_, response) => {
      response.writeHead(200).write('x');
    });
    // Enough for the status also on a busy machine; the test takes this long.
    expect(await send(server.url, { timeoutMs: 1_000 })).toMatchObject({ result: '2xx' });
  });

  it('is received without reading all of an endless answer', async () => {
    let written = 0;
    await using server = await startServer(async (_, response) => {
      response.on('error', () => {});
      while (!response.destroyed) {
        written += 65_536;
        await new Promise((resolve) => response.write(Buffer.alloc(65_536), resolve));
      }
    });
    expect(await send(server.url)).toMatchObject({ result: '2xx' });
    expect(written).toBeLessThan(50_000_000);
  });

  it('is delivered if the receiver answers with 100 Continue first', async () => {
    await using server = await startServer((_request, response) => {
      response.writeContinue();
      response.writeHead(204).end();
    });
    expect(await send(server.url)).toMatchObject({ result: '2xx' });
  });

  it('is not received if its connection breaks', async () => {
    await using server = await startServer((request) => request.socket.destroy());
    expect(await send(server.url)).toMatchObject({ result: 'unreachable' });
  });

  it('is not received without a server, and its detail contains no path', async () => {
    const server = await startServer(() => {});
    await server[Symbol.asyncDispose]();
    const made = await send(`${server.url}/hooks/s3cret?token=s3cret`);
    expect(made).toMatchObject({ result: 'unreachable' });
    expect(made?.detail).toMatch(/ECONNREFUSED/);
    expect(made?.detail).not.toContain('s3cret');
  });

  it('ends without a result if it is aborted', async () => {
    const controller = new AbortController();
    await using server = await startServer(() => controller.abort());
    const delivery = makeDelivery({ id: 'd', url: server.url, bytes: RECORD.length });
    expect(await createSender().send(delivery, inParts(RECORD), controller.signal)).toBeUndefined();
  });
});

describe('to addresses that are not public', () => {
  it.each([
    'http://127.0.0.1:PORT/',
    'http://localhost:PORT/',
    'http://127.1:PORT/',
    'http://2130706433:PORT/',
    'http://0x7f000001:PORT/',
    'http://0.0.0.0:PORT/',
    'http://[::1]:PORT/',
    'http://[::ffff:127.0.0.1]:PORT/',
  ])('sends nothing to %s', async (url) => {
    let connections = 0;
    await using server = await startServer((_, response) => response.end());
    server.onConnection(() => {
      connections += 1;
    });

    const made = await send(url.replace('PORT', String(server.port)), { addresses: 'public' });

    expect(made).toMatchObject({ result: 'refused' });
    expect(connections).toBe(0);
  });

  it.each(['127.0.0.1', '10.0.0.1', '169.254.169.254', '::ffff:127.0.0.1', 'fd00::1'])(
    'sends nothing when the name leads to %s',
    async (address) => {
      let questions = 0;
      const made = await send('http://rebind.example/', {
        addresses: 'public',
        resolve: (_, __, callback) => {
          questions += 1;
          callback(null, [{ address, family: address.includes(':') ? 6 : 4 }]);
        },
      });
      expect(made).toMatchObject({
        result: 'refused',
        detail: expect.stringContaining(address),
      });
      expect(questions).toBe(1);
    },
  );

  it('follows no redirect there', async () => {
    let secrets = 0;
    await using inner = await startServer((_, response) => {
      secrets += 1;
      response.end('secret');
    });
    await using outer = await startServer((_, response) =>
      response.writeHead(307, { location: inner.url }).end(),
    );
    expect(await send(outer.url)).toMatchObject({ result: '3xx' });
    expect(secrets).toBe(0);
  });

  it.each([
    ['http://127.0.0.1/', /^127\.0\.0\.1 .*loopback/],
    ['http://2130706433/', /^127\.0\.0\.1 .*loopback/],
    ['http://[::ffff:10.0.0.1]/', /ipv4Mapped/],
    ['http://192.168.1.1:9000/', /private/],
  ])('refuses %s before any attempt', (url, reason) => {
    expect(createSender({ addresses: 'public' }).judge(url)).toMatch(reason);
    expect(createSender({ addresses: 'any' }).judge(url)).toBeUndefined();
  });

  it('names and public addresses are not checked before the attempt', () => {
    const sender = createSender({ addresses: 'public' });
    expect(sender.judge('http://localhost/')).toBeUndefined();
    expect(sender.judge('https://8.8.8.8/')).toBeUndefined();
  });
});

it('keeps a connection shorter than the receiver asks', async () => {
  const closed = Promise.withResolvers<void>();
  // Of its own accord it never closes one.
  const server = createServer((socket) => {
    socket.on('error', () => {}).on('close', () => closed.resolve());
    socket.once('data', () => {
      socket.write('HTTP/1.1 200 OK\r\nkeep-alive: timeout=600\r\ncontent-length: 0\r\n\r\n');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  expect(await send(`http://127.0.0.1:${port}/`)).toMatchObject({ result: '2xx' });
  await closed.promise;
  server.close();
}, 20_000);

it('keeps no connection once closed', async () => {
  const closed = Promise.withResolvers<void>();
  await using server = await startServer((request, response) => {
    request.socket.on('close', () => closed.resolve());
    response.end();
  });
  const sender = createSender();
  const delivery = makeDelivery({ id: 'd', url: server.url, bytes: RECORD.length });
  await sender.send(delivery, inParts(RECORD), NEVER);
  await sender.close();
  await sender.close();
  await closed.promise;
});
