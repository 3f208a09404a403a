// The exporter of spans, against a real HTTP server that takes OTLP.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { silentLog } from '../../../src/base/log.ts';
import { openTraces, TraceExporter } from '../../../src/platform/trace-exporter.ts';
import type { Span } from '../../../src/queue/job-tracing.ts';
import { TraceCollector } from '../../support/network/trace-collector.ts';

const MAX_WAITING = 8_192;

let collector: TraceCollector;
let exporter: TraceExporter;

beforeEach(async () => {
  collector = await TraceCollector.start();
  const resource = { name: 'millrace', version: '0.0.0', instance: 'test' };
  const timing = { collectMs: 5, retryMs: 5 };
  exporter = new TraceExporter({
    ...{ url: `${collector.url}/v1/traces`, headers: {}, resource, log: silentLog, ...timing },
  });
});

afterEach(async () => {
  await exporter.close();
  await collector[Symbol.asyncDispose]();
});

function makeSpan(number: number): Span {
  return {
    ...{ traceId: 'a'.repeat(32), spanId: number.toString(16).padStart(16, '0') },
    ...{ parentSpanId: undefined, tracestate: undefined, name: `span ${number}` },
    ...{ kind: 'internal', startMs: 1_700_000_000_000, endMs: 1_700_000_000_001 },
    ...{ attributes: { text: 'x', whole: 3, share: 0.5, flag: true }, error: undefined },
  };
}

function addSpans(count: number): void {
  for (let number = 1; number <= count; number++) exporter.add(makeSpan(number));
}

describe('the exporter of spans', () => {
  it('sends all spans in the order of their ends, at most 512 in one request', async () => {
    addSpans(1_300);
    await collector.until(({ spans }) => spans.length === 1_300);
    expect(collector.requests.map(({ count }) => count)).toEqual([512, 512, 276]);
    expect(collector.spans.map(({ name }) => name).at(-1)).toBe('span 1300');
    expect(collector.spans[0]?.attributes).toEqual({
      ...{ text: 'x', whole: '3', share: '0.5', flag: 'true' },
    });
  });

  it.each([429, 502, 503, 504])('sends spans again after the answer %i', async (status) => {
    collector.statuses.push(status, status);
    addSpans(1);
    await collector.until(({ spans }) => spans.length === 1);
    expect(collector.requests).toHaveLength(3);
  });

  it('drops spans that the collector refuses, and goes on with the next', async () => {
    collector.statuses.push(400);
    addSpans(512);
    await collector.until(({ requests }) => requests.length === 1);
    exporter.add(makeSpan(600));
    await collector.until(({ spans }) => spans.length > 0);
    expect(collector.spans.map(({ name }) => name)).toEqual(['span 600']);
  });

  it('keeps a bounded number of spans while the collector is away', async () => {
    collector.statuses.push(503);
    addSpans(MAX_WAITING + 100);
    await collector.until(({ spans }) => spans.length === MAX_WAITING);
    exporter.add(makeSpan(1));
    await collector.until(({ spans }) => spans.length > MAX_WAITING);
    expect(collector.spans).toHaveLength(MAX_WAITING + 1);
  });

  it('sends what waits when the platform stops', async () => {
    const slow = new TraceExporter({
      ...{ url: collector.url, headers: {}, log: silentLog, collectMs: 3_600_000 },
      resource: { name: 'millrace', version: '0.0.0', instance: 'test' },
    });
    slow.add(makeSpan(7));
    await slow.close();
    expect(collector.spans.map(({ name }) => name)).toEqual(['span 7']);
  });

  it('does not hold up the stop of the platform if the collector is away', async () => {
    const { url } = collector;
    await collector[Symbol.asyncDispose]();
    const resource = { name: 'millrace', version: '0.0.0', instance: 'test' };
    const away = new TraceExporter({ url, headers: {}, log: silentLog, resource });
    away.add(makeSpan(1));
    await away.close();
  });
});

describe('the options of traces', () => {
  it('accept a URL with and without a path, and refuse others by name', () => {
    expect(openTraces({ log: silentLog })).toBeUndefined();
    const open = (url: string, ratio = 1) => openTraces({ log: silentLog, traces: { url, ratio } });
    expect(open('http://127.0.0.1:4318')?.ratio).toBe(1);
    expect(() => open('127.0.0.1:4318')).toThrow(/traces\.url: must be an http or https URL/);
    expect(() => open('http://a', 2)).toThrow('traces.ratio: must be from 0 to 1, got 2');
  });
});
