// The trace that the client sends with new jobs. The SDK is a real one, the service a real server.
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import { context, createTraceState, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { BasicTracerProvider } from '@opentelemetry/sdk-trace-base';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Client, createClient } from '../../../../src/client.ts';

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
