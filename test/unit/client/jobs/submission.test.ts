// The trace that the client sends with new jobs, and submissions that share requests.
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import { context, createTraceState, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { BasicTracerProvider } from '@opentelemetry/sdk-trace-base';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Client, createClient } from '../../../../src/client.ts';
import { ENDPOINT, startPlatform } from '../../../support/api/platform.ts';

const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

let server: Server;
let client: Client;
let sent: { headers: IncomingHttpHeaders; body: string }[];

beforeEach(async () => {
  sent = [];
  server = createServer(async (request, response) => {
    const body = (await request.toArray()).join('');
    sent.push({ headers: request.headers, body });
    response.setHeader('content-type', 'application/json').end('{"id":"j","status":"IN_QUEUE"}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  client = createClient({ url: `http://127.0.0.1:${address.port}`, endpoint: 'e' });
});

afterEach(async () => {
  trace.disable();
  context.disable();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

function register(): void {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(new BasicTracerProvider());
}

describe.each(['run', 'runsync'] as const)('%s', (verb) => {
  it('sends the given trace as headers, not in the body', async () => {
    await client[verb]({}, { traceparent, tracestate: 'a=1' });
    expect(sent[0]?.headers).toMatchObject({ traceparent, tracestate: 'a=1' });
    expect(sent[0]?.body).toBe('{"input":{}}');
  });

  it('sends no trace that is not valid', async () => {
    await client[verb]({}, { traceparent: 'made up\n', tracestate: 'a=1' });
    expect(sent[0]?.headers).not.toHaveProperty('traceparent');
    expect(sent[0]?.headers).not.toHaveProperty('tracestate');
  });

  it('sends none without an SDK or a span', async () => {
    await client[verb]({});
    register();
    await client[verb]({});
    for (const { headers } of sent) expect(headers).not.toHaveProperty('traceparent');
    expect(sent).toHaveLength(2);
  });

  it('sends the active span', async () => {
    register();
    const span = trace.getTracer('author').startSpan('ask');
    await context.with(trace.setSpan(context.active(), span), () => client[verb]({}));
    const { traceId, spanId } = span.spanContext();
    expect(sent[0]?.headers['traceparent']).toBe(`00-${traceId}-${spanId}-01`);
  });

  it('sends the active span’s state with it', async () => {
    register();
    const spanContext = {
      traceId: '4bf92f3577b34da6a3ce929d0e0e4736',
      spanId: '00f067aa0ba902b7',
      traceFlags: 0,
      traceState: createTraceState('a=1,b=2'),
    };
    const active = trace.setSpanContext(context.active(), spanContext);
    await context.with(active, () => client[verb]({}));
    expect(sent[0]?.headers).toMatchObject({
      traceparent: traceparent.replace(/01$/, '00'),
      tracestate: 'a=1,b=2',
    });
  });

  it('prefers the given trace', async () => {
    register();
    const span = trace.getTracer('author').startSpan('ask');
    const call = () => client[verb]({}, { traceparent });
    await context.with(trace.setSpan(context.active(), span), call);
    expect(sent[0]?.headers['traceparent']).toBe(traceparent);
  });
});

async function start() {
  const platform = await startPlatform();
  let requests = 0;
  const client = createClient({
    ...{ url: platform.url, key: platform.admin, endpoint: ENDPOINT },
    fetch: (...call) => {
      requests++;
      return fetch(...call);
    },
  });
  return { platform, client, requests: () => requests };
}

const inputs = (count: number) => Array.from({ length: count }, (_, n) => ({ n }));

describe('submissions that share requests', () => {
  it('queue each job with its own input, once', async () => {
    const { client, platform, requests } = await start();
    const jobs = await Promise.all(inputs(250).map((input) => client.run(input)));
    expect(requests()).toBe(3);
    for (const n of [0, 99, 100, 249]) {
      const { input, status } = await client.details(jobs[n]?.id ?? '');
      expect([input, status]).toEqual([{ n }, 'IN_QUEUE']);
    }
    expect((await platform.queue.health(ENDPOINT)).jobs.inQueue).toBe(250);
  });

  it('return the first job for its idempotency key, and refuse another input with that key', async () => {
    const { client } = await start();
    const named = { idempotencyKey: 'order-7' };
    const [first, second, other] = await Promise.allSettled([
      client.run({ n: 1 }, named),
      client.run({ n: 1 }, named),
      client.run({ n: 2 }, named),
    ]);
    expect(first).toMatchObject({ value: { id: expect.any(String) } });
    expect(second).toEqual(first);
    expect(other).toMatchObject({ reason: { status: 409, problem: { code: 'conflict' } } });
  });

  it('refuse an invalid job with the answer that it has alone, and queue the others', async () => {
    const { client } = await start();
    const invalid = { policy: { priority: 99 } };
    const alone = await client.run({ n: 0 }, invalid).catch((error: unknown) => error);
    const [valid, refused] = await Promise.allSettled([
      client.run({ n: 1 }),
      client.run({ n: 2 }, invalid),
    ]);
    expect(valid.status).toBe('fulfilled');
    expect(alone).toMatchObject({ status: 422 });
    expect(refused).toEqual({ status: 'rejected', reason: alone });
  });

  it('refuse all jobs of an endpoint that does not exist', async () => {
    const { platform } = await start();
    const client = createClient({ url: platform.url, key: platform.admin, endpoint: 'none' });
    const settled = await Promise.allSettled(inputs(3).map((input) => client.run(input)));
    for (const each of settled) expect(each).toMatchObject({ reason: { status: 404 } });
  });

  it('go through runMany in any number', async () => {
    const { client, platform, requests } = await start();
    const results = await client.runMany(inputs(1_000).map((input) => ({ input })));
    expect(requests()).toBe(10);
    const last = results.at(-1);
    const id = last?.status === 'fulfilled' ? last.value.id : '';
    expect((await client.details(id)).input).toEqual({ n: 999 });
    expect((await platform.queue.health(ENDPOINT)).jobs.inQueue).toBe(1_000);
  });
});
