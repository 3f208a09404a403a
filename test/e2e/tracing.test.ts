// One trace from the client's span over the platform and the worker to the spans that a handler makes,
// with the OpenTelemetry SDK on both ends and real processes between.
import { mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { resolve } from 'node:path';
import { context, type Span, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { BasicTracerProvider } from '@opentelemetry/sdk-trace-base';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type Client, createClient } from '../../src/client.ts';
import { fetchChecked } from '../support/network/checked-fetch.ts';
import { type CommandRun, Workplace } from './cli/command-run.ts';

/** Writes each span that has ended as a line of spans.ndjson. */
const handler = `
  import { appendFileSync } from 'node:fs';
  import { context, trace } from '@opentelemetry/api';
  import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
  import { BasicTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';

  const exporter = {
    export(spans, done) {
      for (const span of spans) {
        const { name, attributes, status, events, parentSpanContext } = span;
        const { traceId, spanId } = span.spanContext();
        const parent = parentSpanContext?.spanId;
        const line = { name, traceId, spanId, parent, attributes, status, events };
        appendFileSync('spans.ndjson', JSON.stringify(line) + '\\n');
      }
      done({ code: 0 });
    },
    shutdown: async () => {},
  };
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const spanProcessors = [new SimpleSpanProcessor(exporter)];
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors }));

  export default async function* ({ input }, ctx) {
    const span = trace.getTracer('author').startSpan('model');
    await new Promise(setImmediate);
    span.end();
    ctx.log.info('by the log');
    console.log('by the console');
    if (ctx.attempt <= input.failures) throw new RangeError('try again');
    yield { attempt: ctx.attempt, traceparent: ctx.traceparent };
  }
`;

const seenSpan = z.object({
  name: z.string(),
  traceId: z.string(),
  spanId: z.string(),
  parent: z.string().optional(),
  attributes: z.record(z.string(), z.unknown()),
  status: z.object({ code: z.number() }),
  events: z.array(z.object({ name: z.string(), attributes: z.record(z.string(), z.unknown()) })),
});

let place: Workplace;
let platform: CommandRun;
let worker: CommandRun;
let client: Client;

beforeAll(async () => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(new BasicTracerProvider());
  place = new Workplace();
  place.write('paint.mjs', handler);
  mkdirSync(place.path('node_modules'));
  const installed = resolve(import.meta.dirname, '../../node_modules/@opentelemetry');
  symlinkSync(installed, place.path('node_modules/@opentelemetry'));
  const settings = ['--data', 'data', '--retry-base-ms', '1', '--log-level', 'debug'];
  platform = place.start(['serve', '--port', '0', '--endpoint', 'paint', ...settings]);
  const url = await platform.until('stdout', /is ready at (\S+)\n/);
  const admin = await platform.until('stdout', /MILLRACE_ADMIN_KEY=(\S+)\n/);
  const key = await platform.until('stdout', /MILLRACE_WORKER_KEY=(\S+)\n/);
  client = createClient({ fetch: fetchChecked, url, key: admin, endpoint: 'paint' });
  const env = { MILLRACE_URL: url, MILLRACE_ENDPOINT: 'paint', MILLRACE_KEY: key };
  worker = place.start(['worker', 'paint.mjs'], { env });
  await worker.until('stderr', /worker ready/);
});

afterAll(async () => {
  await place.close();
  trace.disable();
  context.disable();
});

beforeEach(() => place.write('spans.ndjson', ''));

function lineOf(traceId: string, message: string): RegExp {
  return new RegExp(`^(?=.*${traceId}).*${message}.*$`, 'm');
}

function readSpans() {
  const lines = readFileSync(place.path('spans.ndjson'), 'utf8')
    .split('\n')
    .filter((line) => line !== '');
  return lines.map((line) => seenSpan.parse(JSON.parse(line)));
}

/** A job that the client submits within a span of its own. */
async function runInSpan(input: object) {
  const span: Span = trace.getTracer('test').startSpan('ask');
  const within = trace.setSpan(context.active(), span);
  const record = await context.with(within, () => client.runsync(input));
  return { record, ...span.spanContext() };
}

describe('a job submitted within a span', () => {
  it('has each attempt as a child of that span, and the handler’s spans below it', async () => {
    const { record, traceId, spanId } = await runInSpan({ failures: 1 });
    expect(record).toMatchObject({ status: 'COMPLETED', attempt: 2 });
    const spans = readSpans();
    expect(spans.every((span) => span.traceId === traceId)).toBe(true);
    const attempts = spans.filter(({ name }) => name === 'millrace.attempt');
    expect(attempts).toMatchObject([
      {
        parent: spanId,
        attributes: {
          'millrace.job.id': record.id,
          'millrace.attempt': 1,
          'millrace.endpoint': 'paint',
        },
        status: { code: 2 },
        events: [{ attributes: { 'exception.type': 'RangeError' } }],
      },
      {
        parent: spanId,
        attributes: { 'millrace.attempt': 2, 'millrace.outcome': 'completed' },
        status: { code: 0 },
        events: [],
      },
    ]);
    const children = spans.filter(({ name }) => name === 'model');
    expect(children.map(({ parent }) => parent)).toEqual(attempts.map((span) => span.spanId));
  });

  it('passes the client’s trace context to its handler, and hides it in its record', async () => {
    const { record, traceId, spanId } = await runInSpan({ failures: 0 });
    const traceparent = `00-${traceId}-${spanId}-01`;
    expect(record.output).toEqual([{ attempt: 1, traceparent }]);
    const status = await client.status(record.id);
    expect(status).not.toHaveProperty('traceparent');
  });

  it('has its trace ID in its log and in the logs of worker and platform', async () => {
    const { record, traceId } = await runInSpan({ failures: 1 });
    const { lines } = await client.log(record.id);
    const own = lines.trimEnd().split('\n');
    expect(own.map((line) => JSON.parse(line))).toMatchObject(
      [1, 2].flatMap((attempt) =>
        ['by the log', 'by the console'].map((msg) => ({ msg, attempt, trace_id: traceId })),
      ),
    );
    const failure = await worker.until('stderr', lineOf(traceId, 'attempt failed'));
    expect(JSON.parse(failure)).toMatchObject({ job: record.id, attempt: 1, trace_id: traceId });
    const outcome = await platform.until('stderr', lineOf(traceId, 'outcome reported'));
    expect(JSON.parse(outcome)).toMatchObject({
      job: record.id,
      attempt: 1,
      outcome: 'failed',
      answer: 'applied',
      trace_id: traceId,
    });
  });
});
