// One trace of a job from its client to its webhook: the OpenTelemetry SDK in the client and in the handler, real
// processes, and the spans that the platform sends to a collector.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { context, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { BasicTracerProvider } from '@opentelemetry/sdk-trace-base';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { type Client, createClient } from '../../src/client.ts';
import { fetchChecked } from '../support/network/checked-fetch.ts';
import { TraceCollector } from '../support/network/trace-collector.ts';
import { WebhookReceiver } from '../support/network/webhook-receiver.ts';
import { PlatformProcess } from '../support/processes.ts';

const ENDPOINT = 'traced';
const handlerSpan = z.object({
  name: z.string(),
  traceId: z.string(),
  spanId: z.string(),
  parent: z.string(),
});

let folder: string;
let collector: TraceCollector;
let platform: PlatformProcess;
let client: Client;

beforeAll(async () => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(new BasicTracerProvider());
  folder = mkdtempSync(join(tmpdir(), 'millrace-traces-'));
  collector = await TraceCollector.start();
  writeFileSync(join(folder, 'headers'), 'x-collector-key: s3cret\n');
  platform = await PlatformProcess.start({
    endpoints: [ENDPOINT],
    args: [
      ...['--trace-url', collector.url, '--trace-header-file', join(folder, 'headers')],
      ...['--allow-private-webhooks', '--retry-base-ms', '1'],
      ...['--lease-ms', '2000', '--renew-every-ms', '500'],
    ],
  });
  const { adminKey: key, url } = platform;
  client = createClient({ fetch: fetchChecked, url, key, endpoint: ENDPOINT });
});

afterAll(async () => {
  await platform.close();
  await collector[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
  trace.disable();
  context.disable();
});

function readHandlerSpans() {
  const lines = readFileSync(join(folder, 'spans.ndjson'), 'utf8').trimEnd().split('\n');
  return lines.map((line) => handlerSpan.parse(JSON.parse(line)));
}

it('joins client, platform, worker and webhook, over a killed worker and a killed platform', async () => {
  await using receiver = await WebhookReceiver.start();
  const first = platform.startWorker(ENDPOINT, 'traced.ts');
  const span = trace.getTracer('test').startSpan('ask');
  const within = trace.setSpan(context.active(), span);
  const { id } = await context.with(within, () =>
    client.run({ folder }, { webhook: receiver.url }),
  );
  const { spanId: asked, traceId } = span.spanContext();
  await collector.find('millrace.queue', { 'millrace.attempt': '1' });
  first.kill();
  platform.startWorker(ENDPOINT, 'traced.ts');
  const lost = await collector.find('millrace.lease', { 'millrace.attempt': '1' });
  await collector.find('millrace.queue', { 'millrace.attempt': '2' });
  await platform.kill();
  await platform.restart();
  writeFileSync(join(folder, 'go'), '');
  expect(await client.wait(id)).toMatchObject({ status: 'COMPLETED', attempt: 2 });
  const posted = await receiver.receive(1);
  const webhook = await collector.find('millrace.webhook');

  const named = { 'millrace.job.id': id, 'millrace.endpoint': ENDPOINT };
  const submit = await collector.find('millrace.submit');
  expect(submit).toMatchObject({ parent: asked, attributes: { ...named, 'millrace.mode': 'run' } });
  expect(lost).toMatchObject({
    ...{ parent: submit.spanId, error: 'the worker did not renew its lease' },
    attributes: { ...named, 'millrace.outcome': 'lost' },
  });
  const lease = await collector.find('millrace.lease', { 'millrace.attempt': '2' });
  expect(lease).toMatchObject({
    ...{ parent: submit.spanId, error: undefined },
    attributes: { ...named, 'millrace.outcome': 'completed' },
  });
  expect(lease.attributes['millrace.worker']).not.toBe(lost.attributes['millrace.worker']);
  expect(await collector.find('millrace.report')).toMatchObject({ parent: lease.spanId });
  expect(webhook).toMatchObject({
    parent: submit.spanId,
    attributes: { ...named, 'millrace.webhook.attempt': '1', 'millrace.webhook.result': '2xx' },
  });
  expect(posted.headers['traceparent']).toBe(`00-${traceId}-${webhook.spanId}-01`);

  const [model, attempt] = readHandlerSpans();
  expect(attempt).toMatchObject({ name: 'millrace.attempt', traceId, parent: lease.spanId });
  expect(model).toMatchObject({ name: 'model', traceId, parent: attempt?.spanId });

  const { spans } = collector;
  expect(spans.every((each) => each.traceId === traceId)).toBe(true);
  expect(new Set(spans.map(({ spanId }) => spanId)).size).toBe(spans.length);
  expect(spans.every(({ endNano, startNano }) => endNano >= startNano)).toBe(true);
  expect(collector.requests.every(({ path }) => path === '/v1/traces')).toBe(true);
  expect(collector.requests[0]?.headers).toMatchObject({ 'x-collector-key': 's3cret' });
});
