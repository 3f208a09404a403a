// The span of an attempt, made by a real OpenTelemetry SDK in this process, and what there is without
// one. That threads use the API of the author's module is in test/unit/worker/tracing.test.ts.
import {
  context,
  type DiagLogger,
  diag,
  SpanKind,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  AlwaysOffSampler,
  BasicTracerProvider,
  InMemorySpanExporter,
  type Sampler,
  SimpleSpanProcessor,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { afterEach, describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { type AttemptCall, invoke } from '../../../../src/handler/attempt/invoke.ts';
import { readHandler } from '../../../../src/handler/loading/load.ts';
import { NonRetryableError } from '../../../../src/handler/thrown.ts';
import { RecordingSink } from '../../../support/network/recording-sink.ts';
import { cpu, readOutput } from '../../../support/workers/leases.ts';

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
const spanId = '00f067aa0ba902b7';
const traceparent = `00-${traceId}-${spanId}-01`;

const exporter = new InMemorySpanExporter();

function register(options: { processor?: SpanProcessor; sampler?: Sampler } = {}): void {
  const { processor = new SimpleSpanProcessor(exporter), sampler } = options;
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(
    new BasicTracerProvider({ spanProcessors: [processor], ...(sampler && { sampler }) }),
  );
}

afterEach(() => {
  exporter.reset();
  trace.disable();
  context.disable();
  diag.disable();
});

function begin(handler: unknown, call: Partial<AttemptCall> = {}) {
  const sink = new RecordingSink();
  const attempt = invoke(
    readHandler(handler, 'handler'),
    {
      number: 1,
      jobId: 'job-1',
      attempt: 2,
      input: Buffer.from('{}'),
      traceparent,
      timeoutMs: 60_000,
      devices: [cpu],
      windowBytes: 1_000_000,
      limits: { outputBytes: 1_000, chunkTotalBytes: 10_000_000 },
      clock: new ManualClock(),
      ...call,
    },
    sink,
  );
  return { ...attempt, end: attempt.end, stop: attempt.stop.bind(attempt), sink };
}

/** The one span that was ended. */
function readSpan() {
  const [span, ...others] = exporter.getFinishedSpans();
  if (!span || others.length > 0) throw new Error(`${others.length + 1} spans`);
  return span;
}

const readContext = (_job: unknown, ctx: { traceparent?: string; tracestate?: string }) => ({
  traceparent: ctx.traceparent ?? null,
  tracestate: ctx.tracestate ?? null,
});

describe('without an SDK', () => {
  it('gives the handler the trace of the client’s request', async () => {
    const traced = begin(readContext, { tracestate: 'a=1' });
    expect(readOutput(await traced.end)).toEqual({ traceparent, tracestate: 'a=1' });
    const untraced = begin(readContext, { traceparent: undefined });
    expect(readOutput(await untraced.end)).toEqual({ traceparent: null, tracestate: null });
  });

  it('puts the trace ID into log lines of both kinds', async () => {
    const { end, sink } = begin((_: unknown, ctx: { log: { info(text: string): void } }) => {
      ctx.log.info('by the log');
    });
    await end;
    expect(sink.logLines).toMatchObject([{ msg: 'by the log', job: 'job-1', trace_id: traceId }]);
    const untraced = begin(
      (_: unknown, ctx: { log: { info(text: string): void } }) => ctx.log.info('by the log'),
      { traceparent: undefined },
    );
    await untraced.end;
    expect(untraced.sink.logLines[0]).not.toHaveProperty('trace_id');
  });
});

describe('the span of an attempt', () => {
  it('is a child of the client’s and names its attempt', async () => {
    register();
    await begin(() => 1, { tracestate: 'vendor=state' }).end;
    const span = readSpan();
    expect(span).toMatchObject({
      name: 'millrace.attempt',
      kind: SpanKind.CONSUMER,
      parentSpanContext: { traceId, spanId, isRemote: true },
      attributes: {
        'millrace.job.id': 'job-1',
        'millrace.attempt': 2,
        'millrace.outcome': 'completed',
      },
      status: { code: SpanStatusCode.UNSET },
    });
    expect(span.spanContext().traceId).toBe(traceId);
    expect(span.spanContext().traceState?.serialize()).toBe('vendor=state');
  });

  it('starts its own trace without a client’s, which log lines then carry', async () => {
    register();
    const { end, sink } = begin(
      (_: unknown, ctx: { log: { info(text: string): void } }) => ctx.log.info('here'),
      { traceparent: undefined },
    );
    await end;
    const span = readSpan();
    expect(span.parentSpanContext).toBeUndefined();
    expect(sink.logLines).toMatchObject([{ trace_id: span.spanContext().traceId }]);
  });

  it('is active in the handler, so that spans created there are its children', async () => {
    register();
    const make = (name: string) => trace.getTracer('author').startSpan(name).end();
    await begin(async function* () {
      make('first');
      yield 1;
      await new Promise(setImmediate);
      make('second');
      yield 2;
    }).end;
    const spans = exporter.getFinishedSpans();
    const parent = spans.find(({ name }) => name === 'millrace.attempt')?.spanContext();
    const children = spans.filter(({ name }) => name !== 'millrace.attempt');
    expect(children.map(({ name }) => name)).toEqual(['first', 'second']);
    for (const child of children) {
      expect(child.parentSpanContext?.spanId).toBe(parent?.spanId);
      expect(child.spanContext().traceId).toBe(traceId);
    }
  });

  it('has its own children in each of two concurrent attempts', async () => {
    register();
    const handler = async (job: { id: string }) => {
      await new Promise(setImmediate);
      trace.getTracer('author').startSpan(job.id).end();
    };
    await Promise.all(['a', 'b'].map((jobId) => begin(handler, { jobId }).end));
    const spans = exporter.getFinishedSpans();
    for (const jobId of ['a', 'b']) {
      const own = spans.find(({ attributes }) => attributes['millrace.job.id'] === jobId);
      const child = spans.find(({ name }) => name === jobId);
      expect(child?.parentSpanContext?.spanId).toBe(own?.spanContext().spanId);
    }
  });

  it('records the thrown error and its error code', async () => {
    register();
    await begin(() => {
      throw new NonRetryableError('no such model');
    }).end;
    expect(readSpan()).toMatchObject({
      status: { code: SpanStatusCode.ERROR, message: 'no such model' },
      attributes: { 'millrace.outcome': 'failed', 'error.type': 'handler_error' },
      events: [
        {
          name: 'exception',
          attributes: {
            'exception.type': 'NonRetryableError',
            'exception.message': 'no such model',
            'exception.stacktrace': expect.stringContaining('trace.test.ts'),
          },
        },
      ],
    });
  });

  it('records a thrown value that is not an error', async () => {
    register();
    await begin(() => Promise.reject({ odd: 1 })).end;
    expect(readSpan().events).toMatchObject([
      { attributes: { 'exception.message': '{ odd: 1 }' } },
    ]);
  });

  it('is no error for a cancelled attempt', async () => {
    register();
    const running = begin(
      (_: unknown, { signal }: { signal: AbortSignal }) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason));
        }),
    );
    await new Promise(setImmediate);
    running.stop('cancelled');
    await running.end;
    expect(readSpan()).toMatchObject({
      status: { code: SpanStatusCode.UNSET },
      attributes: { 'millrace.outcome': 'cancelled' },
      events: [],
    });
  });

  it('is an error without an exception for a timed-out attempt', async () => {
    register();
    const clock = new ManualClock();
    const running = begin(() => clock.advance(50), { clock, timeoutMs: 50 });
    await running.end;
    expect(readSpan()).toMatchObject({
      status: { code: SpanStatusCode.ERROR },
      attributes: { 'millrace.outcome': 'timed_out', 'error.type': 'execution_timeout' },
      events: [],
    });
  });

  it('is not recorded when the client’s trace is not sampled, by the SDK’s default', async () => {
    register();
    await begin(() => 1, { traceparent: traceparent.replace(/01$/, '00') }).end;
    expect(exporter.getFinishedSpans()).toEqual([]);
  });

  it('has its trace ID in the log also if it is not sampled', async () => {
    register({ sampler: new AlwaysOffSampler() });
    const { end, sink } = begin((_: unknown, ctx: { log: { info(text: string): void } }) =>
      ctx.log.info('here'),
    );
    await end;
    expect(sink.logLines).toMatchObject([{ trace_id: traceId }]);
  });

  it.each(['onStart', 'onEnd'])('cannot fail the job when its SDK’s %s throws', async (broken) => {
    const told: string[] = [];
    const tell = (text: string) => told.push(text);
    const logger: DiagLogger = { error: tell, warn: tell, info() {}, debug() {}, verbose() {} };
    diag.setLogger(logger);
    const fail = () => {
      throw new Error('full disk');
    };
    const processor = new SimpleSpanProcessor(exporter);
    register({ processor: Object.assign(processor, { [broken]: fail }) });
    const end = await begin(() => 1).end;
    expect(end.outcome).toMatchObject({ kind: 'completed' });
    expect(told.join('\n')).toContain('span of an attempt failed');
  });
});
